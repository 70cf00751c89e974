// Package interoprig is what the tests with clients of others share: the server as a
// process, programs in other languages, and the matrix of what each client does. It is
// a module of its own that needs nothing, because the lines of the Go SDK cannot be in
// one program.
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
	readyTime = 30 * time.Second // for a server to say that it is ready
	stopTime  = 40 * time.Second // for a server to end: it may drain for 20 s
)

// Server is a running team-server.
type Server struct {
	URL  string // http://host:port
	GRPC string // host:port

	p *process
}

// Kill ends the server at once, as a crash does, and returns when it is gone.
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
	killed  atomic.Bool // nothing is said of how it ended
}

// Serve runs `team-server dev` on free ports until the test ends. It ends with
// SIGTERM, and has to end well.
func Serve(t *testing.T, program string, args ...string) Server {
	t.Helper()
	return Start(t, program, "dev", args...)
}

// Start is Serve for any of the commands that serve.
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

// ready waits for the line that says where the server is.
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

// stop ends the process and shows what it said when something went wrong.
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

// root is the root of the repository: the tests run two folders below.
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

// Team is a file with agents and teams that wait, ask, stream in pieces and fail.
func Team(t *testing.T) string {
	t.Helper()
	return Repository(t, "tests", "interoprig", "testdata", "team.yaml")
}

// program is the server as it is now, built once for all tests.
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

// BuildServer returns the server, as a program.
func BuildServer(t *testing.T) string {
	t.Helper()
	Tool(t, "go", "install Go, the version is in go.mod; see https://go.dev/doc/install")
	out, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
