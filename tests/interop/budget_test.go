package interop

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// TestC_07_BudgetQuestionOverAKill: a client that knows nothing of budgets is asked for more; the
// server is killed and started again; a bad answer is rejected; and an amount lets the run end within
// the new limit.
func TestC_07_BudgetQuestionOverAKill(t *testing.T) {
	python, program := interoprig.Python(t), interoprig.BuildServer(t)
	for _, binding := range bindings() {
		t.Run(string(binding), func(t *testing.T) {
			args := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "team.db"), "-c", interoprig.Repository(t, "examples", "budget")}
			s := interoprig.Start(t, program, "serve", args...)
			say := func(text string, task ...string) (said struct{ ID, State, Status, Answer, Error string }) {
				t.Helper()
				out, err := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("python", "budget.py"), s.URL, string(binding), "desk", text}, task...)...).CombinedOutput() //nolint:gosec // the test's own
				if err != nil || json.Unmarshal(out, &said) != nil {
					t.Fatalf("%v: %s", err, out)
				}
				t.Logf("%s: %q -> %s", binding, text, out)
				return said
			}
			asked := say("tides")
			if asked.State != "TASK_STATE_INPUT_REQUIRED" || !strings.Contains(asked.Status, `limit max_tokens of "desk"`) {
				t.Fatal(asked)
			}
			s.Kill()
			t.Log("the server was killed and is started again")
			s = interoprig.Start(t, program, "serve", args...)
			if bad := say("plenty", asked.ID); !strings.Contains(bad.Error, "is not an amount") {
				t.Error(bad)
			}
			if got := say("500 tokens", asked.ID); got.State != "TASK_STATE_COMPLETED" || got.Answer != "Tides follow the moon." {
				t.Error(got)
			}
		})
	}
}
