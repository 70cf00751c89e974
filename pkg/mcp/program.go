package mcp

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
)

// grace is how long a program may take to end once its input has ended, and again
// once it was told to.
const grace = 2 * time.Second

// program is the transport of a program that is started. It ends when its input
// does, also when this process dies.
func (s *Server) program() mcp.Transport {
	c := s.config.Command
	cmd := exec.Command(c[0], c[1:]...) //nolint:gosec,noctx // G204: the operator's own command; it lives as long as the connection
	cmd.Dir = s.config.Dir
	cmd.Env = environment(s.config.Env)
	cmd.Stderr = &lines{log: s.config.Log.With(zap.String("tool", s.config.Name))}
	cmd.WaitDelay = grace
	apart(cmd)
	return &mcp.CommandTransport{Command: cmd, TerminateDuration: grace}
}

// environment is PATH, HOME and what is configured.
func environment(configured map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME"} {
		if _, own := configured[name]; !own && os.Getenv(name) != "" {
			env = append(env, name+"="+os.Getenv(name))
		}
	}
	for name, value := range configured {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// maxLine is how many bytes of a line are logged.
const maxLine = 2000

// lines is a writer that logs each line. Used by one goroutine.
type lines struct {
	log  *zap.Logger
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) < maxLine {
			return len(p), nil
		}
		if !whole {
			line, rest = l.rest[:maxLine], l.rest[maxLine:]
		}
		l.log.Info("a program says", zap.ByteString("line", line[:min(len(line), maxLine)]))
		l.rest = append([]byte(nil), rest...)
	}
}
