package journal_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// tape is a run that a test writes.
type tape struct {
	*journal.View
	seq int64
}

func begin(d journal.Detail) *tape {
	r := &tape{View: journal.New("r", d)}
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Agent: "team", Message: agent.UserMessage("m", "hi"), Collaboration: &teamv1.Brief{
		Context: &structpb.Struct{Fields: map[string]*structpb.Value{"audience": structpb.NewStringValue("children")}},
	}}}})
	return r
}

func (r *tape) add(scope string, evs ...*teamv1.Event) {
	for _, ev := range evs {
		r.seq++
		ev.Seq, ev.Scope, ev.Agent, ev.Time = r.seq, scope, "team", timestamppb.New(time.Unix(r.seq, 0))
		r.Apply(ev)
	}
}

// gives decides on a member's step and begins it.
func (r *tape) gives(scope, id string) {
	r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: id, Kind: teamv1.Step_KIND_DELEGATE, Member: "m" + id}}}}})
	r.add(agent.Scope(scope, id), started())
}

func started() *teamv1.Event {
	return &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}
}

func asked(id string) *teamv1.Event {
	return &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: id, Message: agent.NewMessage("?")}}}
}

func ended(o teamv1.Outcome) *teamv1.Event {
	return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: o}}}
}

func retried(fresh bool) *teamv1.Event {
	return &teamv1.Event{Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Attempt: 1, Fresh: fresh}}}
}

// asking are the ids of the open questions.
func (r *tape) asking() string {
	var ids []string
	for _, q := range r.Questions("") {
		ids = append(ids, q.ID())
	}
	return fmt.Sprint(ids)
}

// nested is a run in which a team asks, and its member.
func nested(d journal.Detail) *tape {
	r := begin(d)
	r.gives("", "1")
	r.gives("1", "1")
	r.add("1.1", asked("deep"))
	r.add("1", asked("own"))
	return r
}

// TestQuestions: what closes which questions.
func TestQuestions(t *testing.T) {
	for _, tt := range []struct {
		name string
		ev   *teamv1.Event
		want string
	}{
		{"an answer its own", &teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: "deep"}}}, "[own]"},
		{"an expiry those of its own scope", &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitQuestion}}}, "[deep]"},
		{"an expiry of another limit none", &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: "retry"}}}, "[deep own]"},
		{"a known failure those of the step and below", retried(true), "[]"},
		{"an unknown failure none", retried(false), "[deep own]"},
		{"an end those of the step and below", ended(teamv1.Outcome_OUTCOME_FAILED), "[]"},
	} {
		for _, d := range []journal.Detail{journal.Outline, journal.Whole} {
			r := nested(d)
			open := r.Questions("")
			r.add("1", tt.ev)
			if got := r.asking(); got != tt.want {
				t.Errorf("%s: %s are open, want %s", tt.name, got, tt.want)
			}
			if len(open) != 2 || (tt.want != "[deep own]") != (open[0].Closed != nil || open[1].Closed != nil) {
				t.Errorf("%s: what was open is %v", tt.name, open)
			}
			if got := r.Top.Asks(); got != (tt.want != "[]") {
				t.Errorf("%s: the root asks: %v", tt.name, got)
			}
		}
	}
}

// TestContext: changes count when the steps of their decision have ended, at the latest when
// the run has.
func TestContext(t *testing.T) {
	decides := func(id, key string) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{
			Steps: []*teamv1.Step{{Id: id, Kind: teamv1.Step_KIND_DELEGATE, Member: "m"}}, Updates: map[string]*structpb.Value{key: structpb.NewStringValue(id)},
		}}}
	}
	want := func(r *tape, when string, keys ...string) {
		t.Helper()
		got := r.Context()
		if len(got) != len(keys) {
			t.Errorf("%s the context is %v, want %v", when, got, keys)
		}
		for _, k := range keys {
			if got[k] == nil {
				t.Errorf("%s the context has no %s", when, k)
			}
		}
	}
	r := begin(journal.Whole)
	r.add("", decides("1", "first"), decides("2", "second"))
	want(r, "at first", "audience")
	r.add("2", started(), ended(teamv1.Outcome_OUTCOME_SUCCEEDED))
	want(r, "after the second step", "audience", "second")
	r.add("", ended(teamv1.Outcome_OUTCOME_CANCELED))
	want(r, "at the end", "audience", "first", "second")
}

// TestStates: how a step stands, also while the run is paused.
func TestStates(t *testing.T) {
	paused := func(paused bool) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Paused: paused}}}
	}
	command := func(c teamv1.Commanded_Command) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: c}}}
	}
	for _, d := range []journal.Detail{journal.Outline, journal.Whole} {
		r := begin(d)
		r.add("", started())
		r.gives("", "1")
		r.gives("1", "1")
		n := r.Node("1.1")
		want := func(when string, s journal.State) {
			t.Helper()
			if n.State != s {
				t.Errorf("%s it is %d, want %d", when, n.State, s)
			}
		}
		want("at first", journal.Running)
		r.add("1.1", retried(true))
		want("after a failure", journal.Retrying)
		r.add("", command(teamv1.Commanded_COMMAND_PAUSE))
		r.add("1", paused(true))
		want("while it is paused", journal.Waiting)
		if !n.Held() || r.Parked() {
			t.Error("it is not held, or all of the run")
		}
		r.add("", paused(true))
		if !r.Parked() || r.Asking {
			t.Error("the run is not parked, or asks")
		}
		r.add("", command(teamv1.Commanded_COMMAND_RESUME))
		want("after the pause", journal.Retrying)
		r.add("1.1", started(), asked("q"))
		r.add("", paused(false))
		want("while it asks", journal.Waiting)
		if !r.Asking || !r.Parked() {
			t.Error("the run does not ask")
		}
		r.add("1.1", &teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: "q"}}})
		want("with the answer", journal.Running)
		if r.Top.State != journal.Running || r.Asking {
			t.Error("the run waits")
		}
		r.add("1", ended(teamv1.Outcome_OUTCOME_SUCCEEDED))
		want("when its team has ended", journal.Ended)
		if n.Outcome != teamv1.Outcome_OUTCOME_CANCELED || n.End != nil {
			t.Error("it has an end of its own")
		}
	}
}

// TestInterruptedAttempt: a model turn that a crash has cut off and that is made again has two attempts,
// and the first one has cost what was reserved for it.
func TestInterruptedAttempt(t *testing.T) {
	for _, d := range []journal.Detail{journal.Whole, journal.Outline} {
		r := begin(d)
		r.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_MODEL}}}}})
		turn := func() *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1, Reserved: &teamv1.Spent{InputTokens: 70, OutputTokens: 30, ModelCalls: 1}}}}
		}
		r.add("1", turn(), turn())
		n := r.Node("1")
		if s := n.Spent(); agent.CostOf(s).Tokens != 100 || !s.GetEstimated() {
			t.Errorf("while the second attempt runs, %v are spent", s)
		}
		if d == journal.Whole && (len(n.Attempts) != 2 || n.Attempts[0].Ended == nil || !n.Attempts[0].Spent.GetEstimated() || n.Attempts[1].Ended != nil) {
			t.Errorf("attempts: %+v", n.Attempts)
		}
		end := ended(teamv1.Outcome_OUTCOME_SUCCEEDED)
		end.GetEnded().Spent = &teamv1.Spent{InputTokens: 80, OutputTokens: 40, ModelCalls: 2, Estimated: true}
		r.add("1", end)
		if got := agent.CostOf(n.Spent()).Tokens; got != 120 {
			t.Errorf("after the end %d tokens are spent", got)
		}
	}
}
