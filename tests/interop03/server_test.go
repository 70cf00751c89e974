package interop03

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	readyTime = 30 * time.Second // for a server to say that it is ready
	stopTime  = 40 * time.Second // for a server to end: it may drain for 20 s
)

// server is a running team-server.
type server struct {
	url  string // http://host:port
	grpc string // host:port
}

// process is the program of a server.
type process struct {
	*exec.Cmd
	out     *bufio.Reader
	log     bytes.Buffer // standard error; read it after the end only
	drained chan struct{}
}

// serve runs `team-server dev` on free ports until the test ends. It ends with
// SIGTERM, and has to end well.
func serve(t *testing.T, program string, args ...string) server {
	t.Helper()
	p := &process{drained: make(chan struct{})}
	p.Cmd = exec.Command(program, append([]string{"dev", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)...) //nolint:noctx // ended by a signal
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
	return s
}

// ready waits for the line that says where the server is.
func (p *process) ready() (server, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return server{}, fmt.Errorf("waiting for the server's ready line: %w", err)
	}
	var http, grpc string
	if _, err := fmt.Sscanf(line, "ready http=%s grpc=%s", &http, &grpc); err != nil {
		return server{}, fmt.Errorf("reading the ready line %q: %w", line, err)
	}
	return server{url: "http://" + http, grpc: grpc}, nil
}

// stop ends the process and shows what it said when something went wrong.
func (p *process) stop(t *testing.T) {
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Logf("ending the server: %v", err)
	}
	late := time.AfterFunc(stopTime, func() { _ = p.Process.Kill() })
	defer late.Stop()
	<-p.drained
	if err := p.Wait(); err != nil {
		t.Errorf("the server ended with: %v", err)
	}
	if log := p.log.String(); t.Failed() || strings.Contains(log, "panic") {
		t.Logf("the server said:\n%s", log)
	}
}

// repository returns the root of the repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// tool returns a command; without it the test is skipped.
func tool(t *testing.T, name, hint string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIP-MISSING-TOOL %s: %s", name, hint)
	}
	return path
}

// program is the server as it is now, built once for all tests.
var program = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	out := filepath.Join(root, "bin", "interop03", "team-server")
	c := exec.Command("go", "build", "-o", out, "./cmd/team-server") //nolint:noctx // as long as it takes
	c.Dir = root
	if log, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, log)
	}
	return out, nil
})

func buildServer(t *testing.T) string {
	t.Helper()
	tool(t, "go", "install Go, the version is in go.mod; see https://go.dev/doc/install")
	out, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
