package journal

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Question is what people are asked.
type Question struct {
	// Event is what has put it on record.
	Event *teamv1.Event
	// Answer is what was said to it and By who did; nil is that nobody has.
	Answer *a2av1.Message
	By     string
	// Closed is when it was answered, or when the answer was not wanted any more; nil is that
	// it is open.
	Closed *timestamppb.Timestamp
}

// ID returns the id of the question.
func (q *Question) ID() string { return q.Event.GetAsked().GetQuestion() }

// Scope returns the scope that asks.
func (q *Question) Scope() string { return q.Event.GetScope() }

// Questions are the open questions of a run. The zero value has none.
type Questions struct {
	open []*Question // a new slice after each change
}

// Open returns the open questions in the order they were asked. Shared: read only; it stays
// as it is when others are asked or closed.
func (s *Questions) Open() []*Question { return s.open }

// Apply takes the run's next event. It returns the question that it asks, nil without one,
// and those that it closes: the one that it answers; of an expiry those of its own scope;
// of an end, and of a failure whose outcome is known, which begins the step anew, those of
// its scope and below.
func (s *Questions) Apply(ev *teamv1.Event) (asked *Question, closed []*Question) {
	below := func(q *Question) bool { return agent.Within(q.Scope(), ev.GetScope()) }
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Asked:
		asked = &Question{Event: ev}
		s.open = append(slices.Clip(s.open), asked)
	case *teamv1.Event_Answered:
		closed = s.close(ev, func(q *Question) bool { return q.ID() == k.Answered.GetQuestion() })
		for _, q := range closed {
			q.Answer, q.By = k.Answered.GetMessage(), k.Answered.GetBy()
		}
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			closed = s.close(ev, func(q *Question) bool { return q.Scope() == ev.GetScope() })
		}
	case *teamv1.Event_Retried:
		if k.Retried.GetFresh() {
			closed = s.close(ev, below)
		}
	case *teamv1.Event_Ended:
		closed = s.close(ev, below)
	}
	return asked, closed
}

// close takes open questions out.
func (s *Questions) close(ev *teamv1.Event, is func(*Question) bool) (closed []*Question) {
	if !slices.ContainsFunc(s.open, is) {
		return nil
	}
	var open []*Question
	for _, q := range s.open {
		if is(q) {
			q.Closed = ev.GetTime()
			closed = append(closed, q)
		} else {
			open = append(open, q)
		}
	}
	s.open = open
	return closed
}

// ask takes note of the questions that an event of a node opens and closes.
func (v *View) ask(n *Node, ev *teamv1.Event) {
	asked, closed := v.questions.Apply(ev)
	if asked != nil && n != nil {
		n.State = Waiting
		n.asks++
		if v.detail == Whole {
			n.Asked = append(n.Asked, asked)
		}
	}
	for _, q := range closed {
		if asker := v.nodes[q.Scope()]; asker != nil {
			asker.asks--
		}
	}
}

// Questions returns the open questions of a scope and of those below it, in the order they
// were asked.
func (v *View) Questions(scope string) []*Question {
	var list []*Question
	for _, q := range v.questions.Open() {
		if agent.Within(q.Scope(), scope) {
			list = append(list, q)
		}
	}
	return list
}

// Asks reports whether a node, or one below it, waits for an answer.
func (n *Node) Asks() bool {
	return n.asks > 0 || slices.ContainsFunc(n.Steps, (*Node).Asks)
}
