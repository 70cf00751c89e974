package interop

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// crewModel is the endpoint of a model for the agents of examples/coding-crew. It counts its calls by the first word of the
// instructions, and answers as a coder whose first change lacks a comment.
type crewModel struct {
	*httptest.Server

	mu    sync.Mutex
	calls map[string]int // guarded by mu
}

func serveCrewModel(t *testing.T) *crewModel {
	m := &crewModel{calls: map[string]int{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct{ Messages []struct{ Content string } }
		b, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(b, &req) != nil || len(req.Messages) != 2 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		role, _, _ := strings.Cut(req.Messages[0].Content, " ")
		m.mu.Lock()
		m.calls[role]++
		n := m.calls[role]
		m.mu.Unlock()
		text := map[string]string{"Say": "Test the tides.", "Write": "+ test", "Review": `{"ok": false, "why": "a comment is missing"}`}[role]
		if role == "Write" && strings.Contains(req.Messages[1].Content, "a comment is missing") {
			text = "+ test, with a comment"
		}
		if role == "Review" && n == 2 {
			text = `{"ok": true, "why": ""}`
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]string{"content": text}}}})
	}))
	t.Cleanup(m.Close)
	return m
}

// TestCrew_KilledBeforeTheMerge plays examples/coding-crew with its agents on the Python SDK, and kills the server while a
// person is asked about the merge: the change is merged once, and no agent is asked again.
func TestCrew_KilledBeforeTheMerge(t *testing.T) {
	python, program, model := interoprig.Python(t), interoprig.BuildServer(t), serveCrewModel(t)
	merged, crew := filepath.Join(t.TempDir(), "merged"), interoprig.Repository(t, "examples", "coding-crew")
	t.Setenv("MERGED", merged)
	t.Setenv("OPENAI_BASE_URL", model.URL)
	t.Setenv("CREW", interoprig.Agent(t, python, filepath.Join(crew, "crew.py"), "0"))
	args := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "team.db"), "-c", filepath.Join(crew, "team.yaml")}
	s := interoprig.Start(t, program, "serve", args...)
	call := func(args ...string) (id, state, text string) {
		out, err := exec.CommandContext(t.Context(), program, append([]string{"call", "--binding", "jsonrpc", "-o", "json"}, args...)...).Output() //nolint:gosec // the program under test; it fails if the task waits
		var said struct {
			Task struct {
				ID        string
				Status    struct{ State string }
				Artifacts []struct {
					Name  string
					Parts []struct{ Text string }
				}
			}
		}
		if uerr := json.Unmarshal(out, &said); uerr != nil {
			t.Fatalf("%v %v: %s", err, uerr, out)
		}
		for _, a := range said.Task.Artifacts {
			if a.Name == "result" {
				text = a.Parts[0].Text
			}
		}
		return said.Task.ID, said.Task.Status.State, text
	}
	id, state, _ := call("--data", `{"branch": "release/2"}`, s.URL+"/crew", "Test the tides")
	if state != "TASK_STATE_INPUT_REQUIRED" {
		t.Fatal(id, state)
	}
	before := maps.Clone(model.calls)
	s.Kill()
	s = interoprig.Start(t, program, "serve", args...)
	if _, state, text := call("--task", id, s.URL+"/crew", "merge"); state != "TASK_STATE_COMPLETED" || text != "Merged." {
		t.Errorf("%s %q", state, text)
	}
	if want := map[string]int{"Say": 1, "Write": 2, "Review": 2}; !maps.Equal(before, want) || !maps.Equal(model.calls, want) {
		t.Errorf("calls of the model: %v before the kill, %v at the end, want %v", before, model.calls, want)
	}
	lines, err := os.ReadFile(merged) //nolint:gosec // of the test
	if err != nil || strings.Count(string(lines), "\n") != 1 || !strings.Contains(string(lines), `Merge into release/2:\n\n+ test, with a comment`) {
		t.Errorf("merged %s %v", lines, err)
	}
}
