package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/agentteams/team-server/internal/scenario"
)

// folders are those of the examples that have a team.
func folders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*/team.yaml")
	if err != nil || len(found) < 10 {
		t.Fatalf("found %v: %v", found, err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// TestScenarios plays the tests that each example has (R-004-37).
func TestScenarios(t *testing.T) {
	for _, folder := range folders(t) {
		env := func(string) (string, bool) { return "", false }
		if folder == "mcp" || folder == "approval" { // compile a server
			buildMCP(t)
			env = os.LookupEnv
		}
		f, err := scenario.Load(scenario.Loader{Env: env}, filepath.Join(folder, "team_test.yaml"))
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		for _, s := range f.Scenarios {
			t.Run(folder+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				r, err := s.Play(t.Context(), zaptest.NewLogger(t))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range r.Failures {
					t.Errorf("%s:%d  %s\n%s", f.File, f.Line, f.Message, f.Why)
				}
			})
		}
	}
}

// command is one that a README shows: team-server, and what stands behind it.
var command = regexp.MustCompile(`(?m)^    (team-server (run|test) .*?)(   +#.*)?$`)

// TestCommands runs what the READMEs of the examples say, without a key. Each
// command that runs a team gives another answer: it changes with its input.
func TestCommands(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/team-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, folder := range folders(t) {
		switch folder {
		case "demo": // is served, see the README of the repository
			continue
		case "openai-endpoint", "remote-agent", "other-languages", "mcp", "approval", "local-model": // want a server, which their own tests start
			continue
		case "support-desk", "research", "coding-crew": // show theirs as blocks that run with those of the documents
			continue
		}
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			answers := map[string]string{}
			for _, m := range command.FindAllStringSubmatch(string(readme), -1) {
				c := exec.CommandContext(t.Context(), "sh", "-c", m[1])
				c.Dir = ".."
				c.Env = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + t.TempDir()}
				var talk strings.Builder
				c.Stderr = &talk
				out, err := c.Output()
				if err != nil {
					t.Errorf("%s: %v\n%s%s", m[1], err, out, talk.String())
				}
				if other, again := answers[string(out)]; again && m[2] == "run" {
					t.Errorf("%s has the answer of %s: %s", m[1], other, out)
				}
				answers[string(out)] = m[1]
			}
			if len(answers) < 2 {
				t.Errorf("the README shows %d commands, want 2", len(answers))
			}
		})
	}
}
