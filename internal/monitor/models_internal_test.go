package monitor

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
)

// TestS_60_CostByModel: each attempt of a turn counts for its own model, also one that failed and
// one that was interrupted, and what no model of this server cost has no name.
func TestS_60_CostByModel(t *testing.T) {
	v := journal.New("t", journal.Whole)
	spent := func(n int64) *teamv1.Spent { return &teamv1.Spent{OutputTokens: n, CostMicros: 2 * n, ModelCalls: 1} }
	seq := int64(0)
	add := func(scope string, ev *teamv1.Event) {
		seq++
		ev.Seq, ev.Scope, ev.Agent = seq, scope, "desk"
		v.Apply(ev)
	}
	started := func(scope, model string, attempt int32, reserved int64) {
		add(scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: attempt, Model: model, Reserved: spent(reserved)}}})
	}
	ended := func(scope string, s *teamv1.Spent) {
		add(scope, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Spent: s}}})
	}
	add("", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: "t", Agent: "desk"}}})
	add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{
		{Id: "1", Kind: teamv1.Step_KIND_MODEL}, {Id: "2", Kind: teamv1.Step_KIND_STEP, Member: "far"},
	}}}})
	started("1", "big/one", 1, 100)
	add("1", &teamv1.Event{Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Attempt: 1, Error: &teamv1.Error{Reason: "UNAVAILABLE"}, Spent: spent(7)}}})
	started("1", "big", 2, 50) // its process stops
	started("1", "small", 3, 30)
	ended("1", &teamv1.Spent{OutputTokens: 7 + 50 + 3, CostMicros: 2 * (7 + 50 + 3), ModelCalls: 3, Estimated: true})
	add("2", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	ended("2", &teamv1.Spent{CostMicros: 500})
	models := map[string]*teamv1.Spent{}
	for _, n := range v.Top.Steps {
		addByModel(models, n)
	}
	for model, want := range map[string][2]int64{"big/one": {7, 14}, "big": {50, 100}, "small": {3, 6}, "": {0, 500}} {
		if got := models[model]; got.GetOutputTokens() != want[0] || got.GetCostMicros() != want[1] {
			t.Errorf("%q: %v, want %v", model, got, want)
		}
		delete(models, model)
	}
	if len(models) > 0 {
		t.Errorf("and %v", models)
	}
}
