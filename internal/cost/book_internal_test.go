package cost

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestS_60_Book: what a step costs is counted once, whether an attempt of it has failed, was interrupted
// or is still open at the end of the run; and it counts for the nearest team above it.
func TestS_60_Book(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	ev := func(scope, path string, kind any) *teamv1.Event {
		e := &teamv1.Event{Scope: scope, Agent: path, Time: timestamppb.New(at)}
		switch k := kind.(type) {
		case *teamv1.Accepted:
			e.Kind = &teamv1.Event_Accepted{Accepted: k}
		case *teamv1.Noted:
			e.Kind = &teamv1.Event_Noted{Noted: k}
		case *teamv1.Decided:
			e.Kind = &teamv1.Event_Decided{Decided: k}
		case *teamv1.Started:
			e.Kind = &teamv1.Event_Started{Started: k}
		case *teamv1.Retried:
			e.Kind = &teamv1.Event_Retried{Retried: k}
		case *teamv1.Ended:
			e.Kind = &teamv1.Event_Ended{Ended: k}
		}
		return e
	}
	cost := func(n int64) *teamv1.Spent { return &teamv1.Spent{InputTokens: n, CostMicros: n, ModelCalls: 1} }
	start := func(model string) *teamv1.Started {
		return &teamv1.Started{Model: model, Reserved: &teamv1.Spent{InputTokens: 100, CostMicros: 100, ModelCalls: 1}}
	}
	lost := cost(100)
	lost.Estimated = true
	team := &teamv1.Noted{Code: agent.NoteTeamPrepared}
	end := func(s *teamv1.Spent) *teamv1.Ended { return &teamv1.Ended{Spent: s} }
	want := func(path, team, model string, s *teamv1.Spent) Sum {
		return Sum{Key{HourOf(at), "acme", path, team, model}, AmountsOf(s)}
	}
	total := agent.AddSpent(agent.AddSpent(cost(5+7+9), lost), lost)
	total.ModelCalls, total.ToolCalls, total.Estimated = 5, 1, true
	final := ev("", "desk", end(total))
	b := NewBook("acme")
	for i, c := range []struct {
		ev   *teamv1.Event
		want []Sum
	}{
		{ev("", "desk", &teamv1.Accepted{}), nil},
		{ev("", "desk", team), nil},
		{ev("", "desk", &teamv1.Decided{}), nil},
		{ev("1", "desk/sub", &teamv1.Started{}), nil},
		{ev("1", "desk/sub", team), nil},
		{ev("1", "desk/sub", &teamv1.Decided{}), nil},
		{ev("1.1", "desk/sub/a", start("m")), nil},
		{ev("1.1", "desk/sub/a", &teamv1.Retried{Spent: cost(5)}), []Sum{want("desk/sub/a", "desk/sub", "m", cost(5))}},
		{ev("1.1", "desk/sub/a", start("n")), nil},
		{ev("1.1", "desk/sub/a", start("n")), []Sum{want("desk/sub/a", "desk/sub", "n", lost)}}, // the one before was interrupted
		{ev("1.1", "desk/sub/a", end(agent.AddSpent(cost(5+7), lost))), []Sum{want("desk/sub/a", "desk/sub", "n", &teamv1.Spent{InputTokens: 7, CostMicros: 7})}},
		{ev("1", "desk/sub", end(agent.AddSpent(cost(5+7), lost))), nil},
		{ev("2", "desk/b", end(nil)), nil}, // rejected
		{ev("3", "desk/b", start("m")), nil},
	} {
		if diff := cmp.Diff(c.want, b.Apply(c.ev)); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i+1, diff)
		}
	}
	left := cost(9)
	left.ModelCalls, left.ToolCalls, left.Estimated = 1, 1, true
	for range 2 {
		got := b.End(final)
		if len(got) != 2 || cmp.Diff(want("desk/b", "desk", "m", lost), got[0]) != "" || got[1].Path != "desk" || got[1].Spent().GetCostMicros() != 9 || got[1].Spent().GetToolCalls() != 1 || got[1].Estimated() != nil {
			t.Errorf("the end adds %v", got)
		}
	}
}

// TestS_60_TeamOf: a detached task works for the team that detached it.
func TestS_60_TeamOf(t *testing.T) {
	desk := &teamv1.Detached{Team: "desk"}
	for _, c := range []struct {
		from       *teamv1.Detached
		path, want string
	}{{nil, "", "writer"}, {nil, "writer/sub", "writer/sub"}, {desk, "", "desk"}, {desk, "writer", "desk/writer"}, {&teamv1.Detached{}, "", "writer"}} {
		b := NewBook("acme")
		b.Apply(&teamv1.Event{Agent: "writer", Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Detached: c.from}}})
		if c.path != "" {
			b.Apply(&teamv1.Event{Agent: c.path, Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: agent.NoteTeamPrepared}}})
		}
		got := b.Apply(&teamv1.Event{Scope: "1", Agent: "writer/x", Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Spent: &teamv1.Spent{CostMicros: 1}}}})
		if len(got) != 1 || got[0].Team != c.want {
			t.Errorf("%v, %q: %v, want team %q", c.from, c.path, got, c.want)
		}
	}
}

// TestS_60_Amounts: absurd amounts, which a faulty peer may report, do not overflow.
func TestS_60_Amounts(t *testing.T) {
	a := AmountsOf(&teamv1.Spent{InputTokens: 1 << 62, OutputTokens: -5, CostMicros: 1 << 62, Claimed: true})
	if s := a.Spent(); s.GetInputTokens() != most || s.GetOutputTokens() != 0 || !s.GetClaimed() || s.GetEstimated() || a.Claimed().GetCostMicros() != most || a.Estimated() != nil {
		t.Errorf("%v", a)
	}
	for _, c := range []struct{ hour, day int64 }{{0, 0}, {23, 0}, {24, 24}, {-1, -24}} {
		if got := DayOf(c.hour); got != c.day {
			t.Errorf("the day of hour %d begins at %d, want %d", c.hour, got, c.day)
		}
	}
}

// TestS_60_LessSpent: the rest is estimated or claimed only if what was taken from it was not.
func TestS_60_LessSpent(t *testing.T) {
	for _, c := range []struct{ a, b, want *teamv1.Spent }{
		{nil, &teamv1.Spent{CostMicros: 1}, nil},
		{&teamv1.Spent{CostMicros: 3, Estimated: true}, nil, &teamv1.Spent{CostMicros: 3, Estimated: true}},
		{&teamv1.Spent{CostMicros: 3, ToolCalls: 2, Estimated: true, Claimed: true}, &teamv1.Spent{CostMicros: 5, ToolCalls: 1, Estimated: true}, &teamv1.Spent{ToolCalls: 1, Claimed: true}},
		{&teamv1.Spent{CostMicros: 3, Claimed: true}, &teamv1.Spent{CostMicros: 1, Claimed: true}, &teamv1.Spent{CostMicros: 2}},
		{&teamv1.Spent{CostMicros: 3, Estimated: true}, &teamv1.Spent{CostMicros: 1}, &teamv1.Spent{CostMicros: 2, Estimated: true}},
	} {
		if diff := cmp.Diff(c.want, agent.LessSpent(c.a, c.b), protocmp.Transform()); diff != "" {
			t.Errorf("%v less %v (-want +got):\n%s", c.a, c.b, diff)
		}
	}
}
