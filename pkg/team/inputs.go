package team

import (
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// unread reports whether something has arrived that is not on record.
func (p *process) unread() bool {
	if len(p.inbox) == 0 {
		p.inbox = p.listener.Take()
	}
	return len(p.inbox) > 0
}

// takeInputs records what has arrived for the loop: follow-ups, and answers to
// questions below it, whose steps can then go on.
func (p *process) takeInputs() error {
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
			p.waitedFor(in.GetScope(), k.Answered)
			ev.Kind = &teamv1.Event_Answered{Answered: k.Answered}
		default:
			continue
		}
		if err := p.pass(ev); err != nil {
			return err
		}
		p.waits = false
	}
	return nil
}

// isOpen reports whether a question of a step waits for its answer.
func (s *State) isOpen(question string) bool {
	return slices.ContainsFunc(s.Open(), func(st *StepState) bool { return st.past.Asked.Find(question) != nil })
}

// waitedFor notes in an answer how long the step it is for has waited.
func (p *process) waitedFor(scope string, a *teamv1.Answered) {
	for st := range p.pending() {
		if agent.Within(scope, st.Scope) && !st.clock.Waits().IsZero() {
			a.Waiter = st.Scope
			a.Waited = durationpb.New(p.run.Now().Sub(st.clock.Waits()))
		}
	}
}
