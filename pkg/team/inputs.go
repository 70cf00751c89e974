package team

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// hasUnread reports whether messages have arrived that are not on record.
func (p *process) hasUnread() bool {
	if len(p.inbox) == 0 {
		p.inbox = p.listener.Take()
	}
	return len(p.inbox) > 0
}

// recordInputs records the messages that have arrived: follow-ups, and answers to questions of the
// scope and below it.
func (p *process) recordInputs() error {
	list := p.inbox
	p.inbox = nil
	for _, in := range list {
		ev := &teamv1.Event{Scope: in.GetScope(), Agent: p.Path}
		switch k := in.GetKind().(type) {
		case *teamv1.Inbound_Received:
			k.Received.Inbound = in.GetN()
			ev.Kind = &teamv1.Event_Received{Received: k.Received}
		case *teamv1.Inbound_Answered:
			k.Answered.Inbound = in.GetN()
			if !p.isOpen(k.Answered.GetQuestion()) {
				ev.Kind = &teamv1.Event_Received{Received: &teamv1.Received{Message: k.Answered.GetMessage(), TooLate: true, Inbound: in.GetN()}}
				break
			}
			p.noteWait(in.GetScope(), k.Answered)
			ev.Kind = &teamv1.Event_Answered{Answered: k.Answered}
		default:
			continue
		}
		if err := p.emitEvent(ev); err != nil {
			return err
		}
		p.schedulerWaits = false
	}
	return nil
}

// isOpen reports whether a question of an open step, or below it, waits for its answer.
func (s *State) isOpen(question string) bool {
	return slices.ContainsFunc(s.Open(), func(st *StepState) bool { return st.past.Asked.Find(question) != nil })
}

// noteWait stores in an answer how long the step that asked has waited for it.
func (p *process) noteWait(scope string, a *teamv1.Answered) {
	for st := range p.pending() {
		if agent.Within(scope, st.Scope) && !st.clock.Waits().IsZero() {
			a.Waiter = st.Scope
			a.Waited = durationpb.New(p.run.Now().Sub(st.clock.Waits()))
		}
	}
}
