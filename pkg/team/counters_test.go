package team_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/allowance"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// threeLevels is a leader above a leader above a leader, whose member gets work three times.
func threeLevels(t *testing.T, d *diary, top, mid, low *teamv1.Limits, onLimit leader.OnLimit) *team.Team {
	t.Helper()
	reg := d.crew("a")
	set := func(id, of string, l *teamv1.Limits) func(*leader.CoordinatorConfig, *team.Config) {
		return func(c *leader.CoordinatorConfig, cfg *team.Config) {
			cfg.ID, c.Members = id, members(of)
			proto.Merge(cfg.Limits, l)
		}
	}
	lowLead := leads(t, calls(give("a", "1")), calls(give("a", "2")), calls(give("a", "3")), says("low"))
	reg["low"] = ledBy(t, lowLead, reg, set("low", "a", low))
	midLead := leads(t, calls(give("low", "go")), says("mid"))
	reg["mid"] = ledBy(t, midLead, reg, set("mid", "low", mid))
	topLead := leads(t, calls(give("mid", "go")), says("top"))
	return ledBy(t, topLead, reg, set("t1", "mid", top), func(c *leader.CoordinatorConfig, _ *team.Config) { c.OnLimit = onLimit })
}

func TestC_07_ExplicitCountersBindTheSubtree(t *testing.T) {
	steps := func(n int32) *teamv1.Limits { return &teamv1.Limits{MaxSteps: &n} }
	delegations := func(n int32) *teamv1.Limits { return &teamv1.Limits{MaxDelegations: &n} }
	turns := func(n int32) *teamv1.Limits { return &teamv1.Limits{MaxTurns: &n} }
	cases := []struct {
		name          string
		top, mid, low *teamv1.Limits
		onLimit       leader.OnLimit
		ran           int
		reason, setBy string // empty: it completes
	}{
		{"without a limit all of it runs", nil, nil, nil, leader.FailRun, 3, "", ""},
		{"what covers it all lets it run", &teamv1.Limits{MaxSteps: proto.Int32(5), MaxDelegations: proto.Int32(5), MaxTurns: proto.Int32(8)}, nil, nil, leader.FailRun, 3, "", ""},
		{"max_steps of the top counts those below", steps(4), nil, nil, leader.FailRun, 2, agent.ReasonMaxIterations, "t1"},
		{"max_delegations of the top counts those below", delegations(3), nil, nil, leader.FailRun, 1, agent.ReasonMaxDelegations, "t1"},
		{"max_turns of the top counts those below", turns(4), nil, nil, leader.FailRun, 2, agent.ReasonMaxIterations, "t1"},
		{"the smallest on the way down holds", steps(5), steps(2), nil, leader.FailRun, 1, "", ""},
		{"a limit's last turn at the top", delegations(3), nil, nil, leader.Finalize, 1, "", ""},
	}
	for _, c := range cases {
		t.Run("C-07 "+c.name, func(t *testing.T) {
			var d diary
			r := watch(t.Context(), threeLevels(t, &d, c.top, c.mid, c.low, c.onLimit), "x")
			if c.reason == "" {
				if r.err != nil || r.text() != "top" {
					t.Error(r.err, r.text())
				}
			} else if e := wantReason(t, r.err, c.reason); e.Details[agent.DetailSetBy] != c.setBy {
				t.Error(e, e.Details)
			}
			if len(d.all()) != c.ran {
				t.Error(d.all(), "want", c.ran)
			}
		})
	}
}

func TestC_07_CountsOnRecordAreThoseThatWereTaken(t *testing.T) {
	for _, m := range crashModes {
		t.Run("C-07 "+m.name, func(t *testing.T) {
			w := newWorld(t)
			root := (*allowance.Allowance)(nil).Child("above", allowance.Counts{1 << 40, 1 << 40, 1 << 40, 1 << 40}, allowance.Counts{})
			ctx := allowance.With(t.Context(), root)
			events := countedRun(ctx, t, m.build(t, w))
			if got, want := allowance.CountsOn(events), root.Used(); got != want || want == (allowance.Counts{}) {
				t.Error("on record", got, "taken", want)
			}
		})
	}
}

// TestC_07_CountsAfterACrash kills a run with a batch at every event: the batch is
// one step all the same, whichever of its members had begun.
func TestC_07_CountsAfterACrash(t *testing.T) {
	for at := 1; ; at++ {
		var d diary
		tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("a"), to("b")}), Members: members("a", "b"), Registry: d.crew("a", "b"),
			Limits: &teamv1.Limits{MaxParallel: proto.Int32(1)}})
		r, n := newRecord(), 0
		life := func(see func(*teamv1.Event) bool) allowance.Counts {
			root := (*allowance.Allowance)(nil).Child("above", allowance.Counts{9, 9, 9, 9}, allowance.CountsOn(r.events))
			r.process(allowance.With(t.Context(), root), tm, see)
			return root.Used()
		}
		used := life(func(*teamv1.Event) bool { n++; return n < at })
		whole := r.reply != nil
		if !whole {
			used = life(nil)
		}
		if r.err != nil || used != allowance.CountsOn(r.events) || used[allowance.Steps] != 1 {
			t.Errorf("C-07 after event %d: %v taken, %v on record, %v", at, used, allowance.CountsOn(r.events), r.err)
		}
		if whole {
			return
		}
	}
}

// countedRun plays a run until it ends or waits, and returns what it has recorded.
func countedRun(ctx context.Context, t *testing.T, a agent.Agent) []*teamv1.Event {
	t.Helper()
	var events []*teamv1.Event
	for ev, err := range a.Process(ctx, &teamv1.ProcessRequest{AgentId: "root", Message: agent.UserMessage("m", "tides")}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	return events
}
