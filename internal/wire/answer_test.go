package wire_test

import (
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// TestA_12_TimesOfAnswers: a time without a zone is one of UTC, wherever it stands, in
// what others answer; in a request it is a fault.
func TestA_12_TimesOfAnswers(t *testing.T) {
	body := []byte(`{"tasks":[{"id":"a","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-01-02T03:04:05.5"}},
		{"id":"b","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-01-02T03:04:05+02:00"},"metadata":{"at":"2026-01-02T03:04:05","n":12345678901}}]}`)
	list := &a2av1.ListTasksResponse{}
	if err := wire.UnmarshalAnswer(body, list); err != nil {
		t.Fatal(err)
	}
	a, b := list.GetTasks()[0].GetStatus().GetTimestamp().AsTime(), list.GetTasks()[1]
	if want := time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC); !a.Equal(want) {
		t.Errorf("time %v, want %v", a, want)
	}
	if want := time.Date(2026, 1, 2, 1, 4, 5, 0, time.UTC); !b.GetStatus().GetTimestamp().AsTime().Equal(want) {
		t.Errorf("time %v, want %v", b.GetStatus().GetTimestamp().AsTime(), want)
	}
	if f := b.GetMetadata().GetFields(); f["at"].GetStringValue() != "2026-01-02T03:04:05" || f["n"].GetNumberValue() != 12345678901 {
		t.Errorf("metadata %v was changed", f)
	}
	if err := wire.Unmarshal(body, &a2av1.ListTasksResponse{}); err == nil {
		t.Error("a request with a time without a zone was taken")
	}
}
