package team

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// silent decides nothing.
type silent struct{ Base }

func (silent) Next(*State) (Decision, error) { return Decision{}, nil }

// S-44, S-52: a run that is resumed while the loop is between two looks at the pause starts
// nothing yet: middlewares have not seen what arrived meanwhile.
func TestS_44_S_52_OnePhaseActsOnOneReadingOfThePause(t *testing.T) {
	l, err := NewLoop("agent", Config{ID: "a", Scheduler: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	run := agent.From(t.Context())
	p := newProcess(t.Context(), l, &teamv1.ProcessRequest{AgentId: "a"}, run)
	p.inbox.listener = run.Listen("")
	defer p.inbox.listener.Close()
	var events []*teamv1.Event
	p.yield = func(ev *teamv1.Event, _ error) bool { events = append(events, ev); return true }
	p.apply(p.event("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{
		Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_HUMAN, Ask: &teamv1.Ask{Question: "Go on?"}}},
	}}}))

	run.Pause()
	if got := p.next(t.Context()); got != dispatch {
		t.Fatalf("phase %d of a paused run, want dispatch", got)
	}
	run.Resume(run.Now())
	if err := p.dispatch(t.Context()); err != nil || len(events) > 0 {
		t.Errorf("the phase of the paused run has recorded %v, %v", events, err)
	}
	if p.mustWait = false; p.next(t.Context()) != dispatch {
		t.Fatal("the resumed run does not dispatch")
	}
	if err := p.dispatch(t.Context()); err != nil || len(events) == 0 {
		t.Errorf("the phase of the resumed run has recorded %v, %v", events, err)
	}
}
