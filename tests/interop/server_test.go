package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
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
	return start(t, program, "dev", args...)
}

// start is serve for any of the commands that serve.
func start(t *testing.T, program, command string, args ...string) server {
	t.Helper()
	p := &process{drained: make(chan struct{})}
	p.Cmd = exec.Command(program, append([]string{command, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)...) //nolint:noctx // ended by a signal
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
