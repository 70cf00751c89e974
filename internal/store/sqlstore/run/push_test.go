package run

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

// TestA_18_ARunWithoutReceiversPaysNothing: no statement more than there was, and one
// more for all receivers of a run that has some.
func TestA_18_ARunWithoutReceiversPaysNothing(t *testing.T) {
	ev := &teamv1.Event{Seq: 2, Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "PHASE"}}}
	b := &batch{j: &journal{s: &Runs{db: &db.DB{}}, root: "one"}, entries: []entry{{Entry: record.Entry{Event: ev}}}, lo: 1, hi: 2}
	without := b.statements(0)
	b.pushed = 1
	with := b.statements(0)
	if len(without) != 2 || len(with) != 3 || with[2].Text != push.WakeIdle {
		t.Errorf("%d statements without receivers, %d with some", len(without), len(with))
	}
}
