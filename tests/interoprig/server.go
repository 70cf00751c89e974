// Package interoprig is used by the tests with clients of other projects. It starts the server
// as a process, runs programs in other languages, and collects a matrix of the steps that each
// client supports. It is a module of its own without dependencies, so that it can be used by
// tests with different major versions of the Go SDK, which cannot be linked into one program.
package interoprig

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	readyTime = 30 * time.Second // timeout for a server to print that it is ready
	stopTime  = 40 * time.Second // timeout for a server to exit; it may drain for 20 s
)

// Server is a running team-server.
type Server struct {
	URL  string // http://host:port
	GRPC string // host:port

	p *process
}

// Kill kills the server, like a crash, and returns when it has exited.
func (s Server) Kill() {
	s.p.killed.Store(true)
	_ = s.p.Process.Kill()
	<-s.p.drained
}

// process is the program of a server.
type process struct {
	*exec.Cmd
	out     *bufio.Reader
	log     bytes.Buffer // standard error; read it after the end only
	drained chan struct{}
	killed  atomic.Bool // Kill was called, so the exit status is not checked
}

// Serve runs `team-server dev` on free ports until the test ends. The server is then stopped with
// SIGTERM, and the test fails if it does not exit with 0.
func Serve(t *testing.T, program string, args ...string) Server {
	t.Helper()
	return Start(t, program, "dev", args...)
}

// Start is like Serve, but runs the given command of team-server.
func Start(t *testing.T, program, command string, args ...string) Server {
	t.Helper()
	p := &process{drained: make(chan struct{})}
	p.Cmd = exec.Command(program, append([]string{command, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)...) //nolint:noctx,gosec // ended by a signal; the server itself
	p.Stderr = &p.log
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(readyTime, func() { _ = p.Process.Kill() })
	s, err := p.ready()
	late.Stop()
	go func() {
		defer close(p.drained)
		_, _ = io.Copy(io.Discard, p.out)
	}()
	t.Cleanup(func() { p.stop(t) })
	if err != nil {
		t.Fatal(err)
	}
	s.p = p
	return s
}

// ready waits for the line with the addresses of the server.
func (p *process) ready() (Server, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return Server{}, fmt.Errorf("waiting for the server's ready line: %w", err)
	}
	var http, grpc string
	if _, err := fmt.Sscanf(line, "ready http=%s grpc=%s", &http, &grpc); err != nil {
		return Server{}, fmt.Errorf("reading the ready line %q: %w", line, err)
	}
	return Server{URL: "http://" + http, GRPC: grpc}, nil
}

// stop stops the process. If the test has failed or the server has panicked, it logs the standard
// error of the server.
func (p *process) stop(t *testing.T) {
	if err := p.Process.Signal(syscall.SIGTERM); err != nil && !p.killed.Load() {
		t.Logf("ending the server: %v", err)
	}
	late := time.AfterFunc(stopTime, func() { _ = p.Process.Kill() })
	defer late.Stop()
	<-p.drained
	if err := p.Wait(); err != nil && !p.killed.Load() {
		t.Errorf("the server ended with: %v", err)
	}
	if log := p.log.String(); t.Failed() || strings.Contains(log, "panic") {
		t.Logf("the server said:\n%s", log)
	}
}

// root returns the root of the repository, which is two folders above the working directory of
// the tests.
var root = sync.OnceValues(func() (string, error) { return filepath.Abs(filepath.Join("..", "..")) })

// Repository returns the path of a file of the repository.
func Repository(t *testing.T, path ...string) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{dir}, path...)...)
}

// Team returns the path of a file with agents and teams that wait, ask, stream in pieces and fail.
func Team(t *testing.T) string {
	t.Helper()
	return Repository(t, "tests", "interoprig", "testdata", "team.yaml")
}

// program builds the server once for all tests and returns the path of the program.
var program = sync.OnceValues(func() (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "bin", "interop", "team-server")
	c := exec.Command("go", "build", "-o", out, "./cmd/team-server") //nolint:gosec // the go command
	c.Dir = dir
	if log, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, log)
	}
	return out, nil
})

// BuildServer builds the server, once for all tests, and returns the path of the program.
func BuildServer(t *testing.T) string {
	t.Helper()
	Tool(t, "go", "install Go, the version is in go.mod; see https://go.dev/doc/install")
	out, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
