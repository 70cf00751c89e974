package sqlstore

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TestA_18_ARunWithoutReceiversPaysNothing: no statement more than there was, and one
// more for all receivers of a run that has some.
func TestA_18_ARunWithoutReceiversPaysNothing(t *testing.T) {
	ev := &teamv1.Event{Seq: 2, Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "PHASE"}}}
	b := &batch{j: &journal{s: &Store{}, root: "one"}, entries: []entry{{ev: ev}}, lo: 1, hi: 2}
	without := b.statements(0)
	b.pushed = 1
	with := b.statements(0)
	if len(without) != 2 || len(with) != 3 || with[2].text != wakeIdle {
		t.Errorf("%d statements without receivers, %d with some", len(without), len(with))
	}
}
