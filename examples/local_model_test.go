package examples

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/agentteams/team-server/internal/scenario"
)

// TestLocalModel serves the model of examples/local-model and plays its test with it.
func TestLocalModel(t *testing.T) {
	python := os.Getenv("TEAM_LOCAL_MODEL")
	if python == "" {
		t.Skip("make night-local-model installs the model and runs this; or name, in TEAM_LOCAL_MODEL, a Python that has examples/local-model/requirements.txt")
	}
	address := serveLocalModel(t, python)
	l := scenario.Loader{Env: func(name string) (string, bool) { return address, name == "LOCAL_MODEL" }}
	files, err := scenario.LoadReal(l, []string{"local-model/team_test.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	err = scenario.PlayReal(t.Context(), scenario.Select(files, nil), 0, zaptest.NewLogger(t), func(r *scenario.Result) error {
		for _, f := range r.Failures {
			t.Errorf("%s:%d  %s\n%s", f.File, f.Line, f.Message, f.Why)
		}
		for _, run := range r.Runs {
			for _, ev := range run.Events {
				if turn := ev.GetEnded().GetTurn(); turn != nil {
					t.Logf("%s %q", turn.GetFinishReason(), turn.GetText())
				}
			}
		}
		if s := r.Spent(); s.GetInputTokens() == 0 || s.GetOutputTokens() == 0 || s.GetEstimated() {
			t.Errorf("the tokens are %v, want those that the model counted", s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLocalModel_KeepsFolders: a folder with files of another kind is not deleted for the environment.
func TestLocalModel_KeepsFolders(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("it needs python3")
	}
	file := filepath.Join(t.TempDir(), "mine.txt")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), python, "-B", "-c", "import serve; serve.install()")
	c.Dir, c.Env = "local-model", append(os.Environ(), "LOCAL_MODEL_ENV="+filepath.Dir(file))
	out, err := c.CombinedOutput()
	if _, gone := os.Stat(file); err == nil || gone != nil || !strings.Contains(string(out), "neither empty nor a virtual environment") {
		t.Errorf("%v, %v: %s", err, gone, out)
	}
}

// serveLocalModel starts the model until the end of the test and returns its base URL.
func serveLocalModel(t *testing.T, python string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), python, "local-model/serve.py", strconv.Itoa(port))
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, address, ok := strings.Cut(lines.Text(), "serving smollm2 at "); ok {
			return address
		}
	}
	t.Fatal("the model is not served")
	return ""
}
