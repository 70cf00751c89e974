// Package child starts programs for tests. They are killed when the test process dies.
package child

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	readyTime = 30 * time.Second // how long a program may take to be ready
	stopTime  = 40 * time.Second // how long a program may take to exit; a server drains for 20 seconds
)

// Process is a child process.
type Process struct {
	Cmd  *exec.Cmd
	Gone chan struct{} // closed when it has exited
}

// Start starts a child. The signal on the death of the parent is sent when the thread that forked
// ends, so that thread is kept until the child has exited.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithParent(cmd.SysProcAttr)
	p := &Process{Cmd: cmd, Gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.Gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log shows how it ended
		}
	}()
	return p, <-started
}

// End sends a signal and waits until the child has exited. After 40 seconds it kills the child.
func (p *Process) End(signal syscall.Signal) {
	_ = p.Cmd.Process.Signal(signal) // it may have exited
	late := time.AfterFunc(stopTime, func() { _ = p.Cmd.Process.Kill() })
	defer late.Stop()
	<-p.Gone
}

// Server is a program that has printed that it is ready.
type Server struct {
	*Process
	Ready string // what it printed after "ready "

	log *tail
}

// Serve starts a program and waits until it prints a line that begins with "ready ". The error of one
// that does not has the end of its log. Stderr of cmd, if it is set, gets all of the log.
func Serve(cmd *exec.Cmd) (*Server, error) {
	s := &Server{log: &tail{}}
	if cmd.Stderr == nil {
		cmd.Stderr = s.log
	} else {
		cmd.Stderr = io.MultiWriter(cmd.Stderr, s.log)
	}
	out, in := io.Pipe()
	cmd.Stdout = in
	cmd.WaitDelay = time.Second // for a grandchild that has the pipe
	p, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	s.Process = p
	go func() {
		<-p.Gone
		_ = in.Close()
	}()
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		for {
			text, err := r.ReadString('\n')
			if ready, ok := strings.CutPrefix(strings.TrimSpace(text), "ready "); ok {
				line <- ready
				break
			}
			if err != nil {
				close(line)
				break
			}
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case ready, ok := <-line:
		if ok {
			s.Ready = ready
			return s, nil
		}
		err = fmt.Errorf("%s ended before it was ready", cmd.Path)
	case <-time.After(readyTime):
		err = fmt.Errorf("%s was not ready within %v", cmd.Path, readyTime)
	}
	p.End(syscall.SIGKILL)
	return nil, fmt.Errorf("%w\n%s", err, s.Log())
}

// Log returns the end of what the program has written to its standard error.
func (s *Server) Log() string { return s.log.String() }

// tail keeps the last bytes that are written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

const tailBytes = 8 << 10

// Write appends p and forgets what is too old.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - tailBytes; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// Build builds the package pkg of the module in the folder dir, and returns the path of the program,
// which is removed when t ends.
func Build(t testing.TB, dir, pkg string) string {
	t.Helper()
	program := t.TempDir() + "/program"
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg) //nolint:gosec // the go command
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return program
}
