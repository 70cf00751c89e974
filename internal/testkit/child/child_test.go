package child_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentteams/team-server/internal/testkit/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func script(t *testing.T, text string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "sh", "-c", text)
}

// TestServe waits for a program that is ready, and ends it.
func TestServe(t *testing.T) {
	s, err := child.Serve(script(t, "echo starting; echo warned >&2; echo ready here; exec sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Ready != "here" {
		t.Errorf("ready is %q", s.Ready)
	}
	s.End(syscall.SIGTERM)
	if !strings.Contains(s.Log(), "warned") {
		t.Errorf("the log is %q", s.Log())
	}
}

// TestServe_EndsEarly reports what a program that failed has said.
func TestServe_EndsEarly(t *testing.T) {
	if _, err := child.Serve(script(t, "echo broken >&2; exit 3")); err == nil || !strings.Contains(err.Error(), "before it was ready") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v", err)
	}
}
