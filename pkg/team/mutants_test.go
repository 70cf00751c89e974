package team_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/sample"
)

// mutants are faults that the crash tests must notice: each removes one of the
// rules that make a restart a replay.
var mutants = []struct{ name, file, from, to string }{
	{"no commit before an effect", "internal/step/begin.go", "if err := agent.Commit(w.run); err != nil {", "if err := error(nil); err != nil {"},
	{"the record is ignored", "phases.go", "for _, ev := range p.req.GetRecorded() {", "for _, ev := range p.req.GetRecorded()[:0] {"},
	{"a member's record is ignored", "internal/step/member.go", "req.Scope, req.Recorded, req.Envelope = w.Scope, w.Recorded, w.cost.hold.Envelope()", "req.Scope, req.Envelope = w.Scope, w.cost.hold.Envelope()"},
	{"a panic of the consumer is taken for the member's", "internal/step/attempt.go", "	if w.yielding {\n		return\n	}\n", ""},
	{"the owed ack is not paid", "workers.go", "case err := <-ack:\n			return err\n		case <-w.quit:\n			return step.ErrStopped\n", "case err := <-ack:\n			return err\n"},
	{"an answer does not unpark", "../../internal/journal/clock.go", "	waited := now.Sub(c.waits)\n	c.waits = time.Time{}\n", "	waited := now.Sub(c.waits)\n"},
	{"a known failure keeps its key", "internal/step/retry.go", "		w.effect = \"\"\n", ""},
	{"a cancel between commit and call is not seen", "internal/step/begin.go", "return w.by.Run.Begin(w.Scope)", "return nil"},
	{"what is open elsewhere is left", "internal/step/retry.go", "err = attempt(ctx, w).Err", "_ = attempt"},
	{"an unsafe tool is called again", "internal/step/tool.go", "if w.Unsafe && w.Unknown && !w.Answered {", "if false {"},
	{"a person's word to call again counts for ever", "internal/step/work.go", "p.Attempts, p.Reserved, p.Key, p.Open, p.Ruling, p.Answered = s.GetAttempt(), s.GetReserved(), s.GetKey(), true, nil, false", "p.Attempts, p.Reserved, p.Open, p.Answered = s.GetAttempt(), s.GetReserved(), true, false"},
	{"a dropped step begins anew after a crash", "phases.go", "	p.cancelDropped()\n", ""},
	{"no commit before a look", "internal/guards/guards.go", "if err := agent.Commit(ctx); err != nil {", "if err := error(nil); err != nil {"},
	{"a look at the input is forgotten", "checks.go", "		a.checked++\n", ""},
	{"a look at the answer is forgotten", "checks.go", "		f.outputs++\n", ""},
	{"a look at a result is forgotten", "internal/step/guard.go", "		k.Results++\n", ""},
	{"what was looked at is forgotten", "internal/step/guard.go", "g.Message, g.Seq = w.Checks.Answer, w.Checks.Answered", "_ = w.Checks.Answer"},
	{"steps of earlier rounds are forgotten", "fold.go", "	f.Earlier = append(f.Earlier, f.Steps...)\n", ""},
	{"the result of a failed run is shown once more", "fold.go", "		f.artifactRecorded = true\n", "		_ = f.artifactRecorded\n"},
	{"a decision is made anew", "fold.go", "		f.applyDecision(k.Decided)", "		f.applyDecision(&teamv1.Decided{})"},
}

// TestCrash_Mutants runs the crash tests on sources with one fault each; a mutant that passes them
// is a hole in the tests. Each mutant takes a compilation of the package.
func TestCrash_Mutants(t *testing.T) {
	_, here, _, _ := runtime.Caller(0)
	dir := filepath.Dir(here)
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			mutant := mutated(t, filepath.Join(dir, m.file), m.from, m.to)
			if !sample.All() {
				return // the source still has the text that the mutant changes
			}
			t.Parallel()
			out, err := runMutant(t, dir, m.file, mutant)
			if err == nil {
				t.Fatalf("the crash tests pass although %s", m.name)
			}
			if strings.Contains(out, "[build failed]") {
				t.Fatalf("the mutant does not compile:\n%s", out)
			}
		})
	}
}

// mutated returns the content of a file with one text replaced, which must be there
// exactly once.
func mutated(t *testing.T, path, from, to string) string {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(src), from) != 1 {
		t.Fatalf("%s does not hold exactly once:\n%s", path, from)
	}
	return strings.Replace(string(src), from, to, 1)
}

// runMutant runs the crash tests with the content of one file replaced, which is given from the package.
func runMutant(t *testing.T, dir, file, content string) (string, error) {
	t.Helper()
	path := filepath.Join(dir, file)
	tmp := t.TempDir()
	mutant := filepath.Join(tmp, filepath.Base(file))
	if err := os.WriteFile(mutant, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-run", "^TestCrash_(AtEveryEvent.*|Guarded|Barred|Unmet|PanickingConsumer|Break|Cancel.*)$",
		"-count=1", "-vet=off", "-timeout=20s", ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
