package architecture

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTemporalIsInItsOwnProgram: team-server links no package of Temporal, so that its size and the time of its first
// build do not depend on it.
func TestTemporalIsInItsOwnProgram(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/team-server")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if len(linked) < 100 {
		t.Fatalf("only %d packages seen", len(linked))
	}
	for _, p := range linked {
		if strings.HasPrefix(p, "go.temporal.io/") {
			t.Errorf("team-server links %s", p)
		}
	}
}
