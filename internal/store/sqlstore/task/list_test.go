package task

import (
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/run"
	"github.com/agentteams/team-server/internal/testkit/dbtest"
)

// Pages of any size are one statement.
func TestList_SizesShareAStatement(t *testing.T) {
	d := dbtest.Open(t, dbtest.File(t))
	counts := dbtest.Count(d)
	s := &Tasks{DB: d, Claims: run.New(d, push.New(d))}
	for size := range 50 {
		if _, err := s.List(t.Context(), "o", runs.Filter{PageSize: size + 1, State: a2av1.TaskState_TASK_STATE_WORKING}); err != nil {
			t.Fatal(err)
		}
	}
	if n := counts.Texts(); n != 2 {
		t.Errorf("%d statements are used, want one that counts and one that reads", n)
	}
}
