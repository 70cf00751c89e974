package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestUnit: systemd understands every line of the unit, and counts it among those that are hardened.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIP-MISSING-TOOL: no systemd-analyze: install the package systemd")
	}
	b, err := os.ReadFile("../../deploy/systemd/team-server.service")
	if err != nil {
		t.Fatal(err)
	}
	// A program that exists stands for one that is not installed here.
	text := strings.NewReplacer("/usr/bin/team-server", "/bin/true", "Documentation=man:team-server(1)\n", "").Replace(string(b))
	unit := filepath.Join(t.TempDir(), "team-server.service")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", unit).CombinedOutput()
	level := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if err != nil || level == nil {
		t.Fatalf("%v: %s", err, out)
	}
	// 0 is the best; an ordinary service has 9.6.
	if l, err := strconv.ParseFloat(string(level[1]), 64); err != nil || l > 2 {
		t.Errorf("%s", out)
	}
	t.Logf("exposure level %s", level[1])
}
