package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/internal/testkit/sample"
)

// cannotRecord has, by folder and scenario, why its task cannot be recorded; all others can.
var cannotRecord = map[string]string{
	"workflow/waits for an answer": "it has not ended",
}

// TestRecord_AllScenarios records what every scenario of the examples has done, or a fifth of them, and plays the tests that
// this gives.
func TestRecord_AllScenarios(t *testing.T) {
	n := 0
	for _, folder := range folders(t) {
		env := func(string) (string, bool) { return "", false }
		if folder == "mcp" || folder == "approval" { // compile a server
			buildMCP(t)
			env = os.LookupEnv
		}
		l := scenario.Loader{Env: env}
		f, err := scenario.Load(l, filepath.Join(folder, "team_test.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range f.Scenarios {
			if n++; n%sample.Stride() != 0 && cannotRecord[folder+"/"+s.Name] == "" {
				continue
			}
			t.Run(folder+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				data, err := recordOf(t, l, folder, s)
				if why := cannotRecord[folder+"/"+s.Name]; why != "" || err != nil {
					if err == nil || why == "" || !strings.Contains(err.Error(), why) {
						t.Errorf("recording it: %v, want an error that contains %q", err, why)
					}
					return
				}
				playRecord(t, l, data)
			})
		}
	}
}

// recordOf plays a scenario and returns the test that is recorded from it.
func recordOf(t *testing.T, l scenario.Loader, folder string, s *scenario.Scenario) ([]byte, error) {
	t.Helper()
	result, err := s.Play(t.Context(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	var list []scenario.Recorded
	for _, run := range result.Runs {
		list = append(list, scenario.Recorded{Task: run.Task, Team: s.Team, Message: run.Events[0].GetAccepted().GetMessage(), Events: run.Events[1:]})
	}
	path, err := filepath.Abs(filepath.Join(folder, "team.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.StandIns = &config.StandIns{}
	def, err := l.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return scenario.Record(def, path, nil, list...)
}

// playRecord plays a recorded test.
func playRecord(t *testing.T, l scenario.Loader, data []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recorded_test.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := scenario.Load(l, path)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	r, err := f.Scenarios[0].Play(t.Context(), zap.NewNop())
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, f := range r.Failures {
		t.Errorf("line %d: %s\n%s", f.Line, f.Message, f.Why)
	}
	if t.Failed() {
		t.Logf("%s", data)
	}
}
