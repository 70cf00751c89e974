package mcp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/secret"
)

// grace is how long a program may take to exit after its input was closed, and again after it
// received a signal.
const grace = 2 * time.Second

// program is an MCP server that runs as a child process, and the transport to it.
type program struct {
	cmd    *exec.Cmd
	stderr *lines
	others *lines          // lines on its standard output that are not messages
	ended  chan struct{}   // closed when the program has exited
	hurry  <-chan struct{} // closed when a program that is being stopped must be killed at once
}

// Connect implements mcp.Transport.
func (p *program) Connect(ctx context.Context) (mcp.Connection, error) {
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	// Wait closes the standard output, after the exit.
	pipes := &mcp.IOTransport{Reader: io.NopCloser(&messages{from: bufio.NewReader(stdout), others: p.others}), Writer: stdin}
	c, err := pipes.Connect(ctx)
	return &programConn{Connection: c, program: p}, err
}

// programConn is the connection to a program.
type programConn struct {
	mcp.Connection
	program *program
	once    sync.Once
}

// Close implements mcp.Connection. It stops the program with all processes of its group, and waits until it has
// exited.
func (c *programConn) Close() error {
	c.once.Do(func() {
		_ = c.Connection.Close() // closes the input
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = c.program.cmd.Wait() // the exit code is read from its state
		}()
		c.program.stop(exited)
		<-exited
		kill(c.program.cmd) // processes that it has started and left
		close(c.program.ended)
	})
	return nil
}

// stop ends a program whose input was closed and that does not exit: it is asked to exit after grace, and killed
// after another grace or when it must be at once.
func (p *program) stop(exited <-chan struct{}) {
	wait := time.NewTicker(grace)
	defer wait.Stop()
	for _, end := range []func(*exec.Cmd){terminate, kill} {
		select {
		case <-exited:
			return
		case <-p.hurry:
			kill(p.cmd)
			return
		case <-wait.C:
			end(p.cmd)
		}
	}
}

// hasEnded reports whether the program has exited, after which its output is complete.
func (p *program) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exit returns how a program exited by itself, and its last output. ok is false if it still runs.
func (p *program) exit(ctx context.Context) (how string, stderr []string, ok bool) {
	wait := time.NewTimer(grace) // the connection was closed, so the program is about to exit
	defer wait.Stop()
	select {
	case <-p.ended:
	case <-wait.C:
		return "", nil, false
	case <-ctx.Done():
		return "", nil, false
	}
	state := p.cmd.ProcessState
	switch {
	case state == nil:
		return "", nil, false
	case state.Exited():
		how = fmt.Sprintf("exit code %d", state.ExitCode())
	default:
		how = state.String() // signal: killed
	}
	return how, p.stderr.tail(), true
}

// start returns a program that starts when it is connected. It ends when its input is closed, which
// also happens when this process dies.
func (s *Server) start() *program {
	c := s.config.Command
	cmd := exec.Command(c[0], c[1:]...) //nolint:gosec,noctx // G204: the operator's own command; it runs as long as the connection
	cmd.Dir = s.config.Dir
	cmd.Env = environment(s.config.Env)
	log := s.config.Log.With(zap.String("tool", s.config.Name))
	stderr := &lines{log: func(line string) { log.Info("MCP server stderr", zap.String("line", line)) }}
	others := &lines{log: func(line string) {
		log.Warn("the MCP server wrote a line that is not a message to its standard output; it is skipped", zap.String("line", line))
	}}
	stderr.hide(s.config.Env)
	others.hide(s.config.Env)
	cmd.Stderr = stderr
	cmd.WaitDelay = grace
	apart(cmd)
	return &program{cmd: cmd, stderr: stderr, others: others, ended: make(chan struct{}), hurry: s.hurry.Done()}
}

// environment returns the variables of a program: PATH, HOME and the configured ones.
func environment(configured map[string]secret.Secret) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME"} {
		if _, own := configured[name]; !own && os.Getenv(name) != "" {
			env = append(env, name+"="+os.Getenv(name))
		}
	}
	for name, value := range configured {
		env = append(env, name+"="+value.Reveal())
	}
	slices.Sort(env)
	return env
}

const (
	maxLine = 2000 // bytes of a line that are logged
	maxTail = 10   // lines that are kept for errors
)

// lines is a writer that logs each line and keeps the last ones. It is not safe for concurrent use.
type lines struct {
	log     func(line string)
	secrets []secret.Secret // programs may print their environment
	longest int             // bytes of the longest of secrets
	rest    []byte
	last    []string
}

// tail returns the last lines, including an unfinished one.
func (l *lines) tail() []string {
	last := slices.Clone(l.last)
	if rest := strings.TrimSpace(secret.Hide(string(l.rest), l.secrets...)); rest != "" {
		last = append(last, rest)
	}
	for i, line := range last {
		last[i] = strings.ToValidUTF8(line, "?")
	}
	return last[max(0, len(last)-maxTail):]
}

// hide has l hide the values of variables. A value with several lines is hidden line by line.
func (l *lines) hide(variables map[string]secret.Secret) {
	for _, value := range variables {
		for line := range strings.Lines(value.Reveal()) {
			line = strings.TrimRight(line, "\r\n")
			l.secrets, l.longest = append(l.secrets, secret.New(line)), max(l.longest, len(line))
		}
	}
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) < maxLine+l.longest { // a secret that begins before maxLine is complete
			return len(p), nil
		}
		text := secret.Hide(string(line), l.secrets...)
		end := min(len(text), maxLine)
		if !whole {
			rest = []byte(text[end:])
		}
		text = text[:end]
		l.log(text)
		if l.last = append(l.last, text); len(l.last) > maxTail {
			l.last = l.last[1:]
		}
		l.rest = append([]byte(nil), rest...)
	}
}
