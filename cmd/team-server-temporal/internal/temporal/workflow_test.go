package temporal

import (
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"
)

// TestReplay: workflows with the histories that every release has recorded still decide the same. A change of the workflow
// that does not needs another name. The test of the program records histories with -update.
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: workflowName})
	for _, file := range files {
		if err := r.ReplayWorkflowHistoryFromJSONFile(logger{zap.NewNop().Sugar()}, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
