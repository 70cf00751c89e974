//go:build unix

package mcp_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentteams/team-server/pkg/mcp"
)

// leader makes c start its program by a shell that first runs a script, with $f as a file, and returns that file.
func leader(t *testing.T, c *mcp.Config, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	c.Command = append([]string{"sh", "-c", "f='" + file + "'; " + script, "sh"}, c.Command...)
	return file
}

// written returns the process id in a file.
func written(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestProcessesOfProgramEnd: what a program has started ends with it, whether the program exits when its input is
// closed, when it is asked to, or not at all.
func TestProcessesOfProgramEnd(t *testing.T) {
	for name, script := range map[string]string{
		"exits":           `sleep 100 2>/dev/null & echo $! > "$f"; exec "$1"`,
		"holds stderr":    `sleep 100 & echo $! > "$f"; exec "$1"`,
		"runs a child":    `sleep 100 & echo $! > "$f"; "$1"; wait`,
		"ignores SIGTERM": `trap '' TERM; sleep 100 & echo $! > "$f"; "$1"; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := program("plain")
			file := leader(t, &c, script)
			s, err := mcp.Start(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			child := written(t, file)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			gone(t, child)
		})
	}
}

// TestShutdown: a program is killed without being asked to exit when the time is over, at its start and later.
func TestShutdown(t *testing.T) {
	const script = `trap 'echo asked > "$f"' TERM; echo $$ > "$f"; ` // the trap runs when the command in progress has ended
	t.Run("at its start", func(t *testing.T) {
		leaks := goleak.IgnoreCurrent()
		c := program("plain")
		file := leader(t, &c, script+`sleep 100; sleep 100`)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { // until it has set its trap
			for text, _ := os.ReadFile(file); !strings.HasSuffix(string(text), "\n") && ctx.Err() == nil; text, _ = os.ReadFile(file) {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
		}()
		if _, err := mcp.Start(ctx, c); err == nil {
			t.Error("it started")
		}
		groupGone(t, written(t, file))
		goleak.VerifyNone(t, leaks)
	})
	t.Run("later", func(t *testing.T) {
		leaks := goleak.IgnoreCurrent()
		c := program("plain")
		file := leader(t, &c, script+`"$1"; sleep 100; sleep 100`)
		s, err := mcp.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		groupGone(t, written(t, file))
		goleak.VerifyNone(t, leaks)
	})
}

// groupGone waits until no process of a group is left.
func groupGone(t *testing.T, id int) {
	t.Helper()
	ends(t, fmt.Sprintf("process group %d", id), func() bool { return syscall.Kill(-id, 0) == nil })
}
