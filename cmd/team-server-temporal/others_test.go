//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	library "github.com/agentteams/team-server/pkg/server"
)

// TestTemporal_Scenarios plays the tests of the examples, which the examples' own tests play with the store's engine.
func TestTemporal_Scenarios(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	files, err := filepath.Glob("../../examples/*/team_test.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		example := filepath.Base(filepath.Dir(file))
		if example == "mcp" || example == "approval" { // compile a server
			continue
		}
		f, err := scenario.Load(scenario.Loader{Env: func(string) (string, bool) { return "", false }}, file)
		if err != nil {
			t.Errorf("%s: %v", example, err)
			continue
		}
		for _, one := range f.Scenarios {
			t.Run(example+"/"+one.Name, func(t *testing.T) {
				t.Parallel()
				at := scenario.Place{
					Open: func() (library.Store, error) {
						return library.OpenStore(t.Context(), pgtest.URL(t), library.StoreConfig{Lease: lease})
					},
					Engine: func(c library.EngineConfig) (library.Engine, error) { return s.engine(t, c), nil },
				}
				r, err := one.PlayAt(t.Context(), at, zap.NewNop())
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

// TestTemporal_Replicas plays tests that kill, stop and replace servers of one store, with servers of this program.
func TestTemporal_Replicas(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	program := filepath.Join(t.TempDir(), "team-server")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags=failpoints", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tests := "TestReplicas_P1_A_14_Takeover|TestReplicas_P12_Rolling"
	if many(0, 1) > 0 {
		tests = "TestReplicas_(P1|P2|P12|A_14)|TestC_07_ThreeReplicasOneCap|TestCrash_P1_P2$/postgres|TestHalt_FrozenReplica"
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=50m", "-v", "-run="+tests, "./tests/durable")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "TEAM_CRASH_SERVER="+program, "TEAM_CRASH_TEMPORAL="+s.door.address()+" "+s.namespace)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d tests passed in %v", strings.Count(string(out), "\n--- PASS"), time.Since(began))
}
