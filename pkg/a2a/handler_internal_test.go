package a2a

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/runs"
)

// What is damaged is named where it is one task, and not where it is a list.
func TestStoreError_P15_DataLossNamesTheTask(t *testing.T) {
	lost := fmt.Errorf("event 3: %w", runs.ErrDataLoss)
	if text := runs.StoreError("one", lost).Error(); !strings.Contains(text, `task "one" is damaged`) {
		t.Errorf("of a task: %s", text)
	}
	if text := runs.StoreError("", lost).Error(); strings.Contains(text, `""`) || !strings.Contains(text, "by their ids") || !strings.Contains(text, "backup") {
		t.Errorf("of a list: %s", text)
	}
}
