package journal

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Question is what people are asked.
type Question struct {
	// Event is what has put it on record.
	Event *teamv1.Event
	// Answer is the event that answers it, nil without one, and Closed the time when it was
	// answered, or when the answer was not wanted any more; nil: it is open. Both are set in
	// a View alone.
	Answer *teamv1.Event
	Closed *timestamppb.Timestamp
}

// ID returns the id of the question.
func (q *Question) ID() string { return q.Event.GetAsked().GetQuestion() }

// Scope returns the scope that asks.
func (q *Question) Scope() string { return q.Event.GetScope() }

// Questions are open questions: of a run, or of a part of it. The zero value has none. A
// copy does not change with the original, and both can be used at the same time.
type Questions struct {
	open []*Question // a new slice after each change
}

// Open returns the open questions in the order they were asked. Shared: read only; it stays
// as it is when others are asked or closed.
func (s *Questions) Open() []*Question { return s.open }

// Within returns the open questions of a scope and of those below it, in the order they
// were asked. Shared: read only.
func (s *Questions) Within(scope string) []*Question {
	if scope == "" {
		return s.open
	}
	var list []*Question
	for _, q := range s.open {
		if agent.Within(q.Scope(), scope) {
			list = append(list, q)
		}
	}
	return list
}

// Find returns the open question with an id, nil without one.
func (s *Questions) Find(id string) *Question {
	for _, q := range s.open {
		if q.ID() == id {
			return q
		}
	}
	return nil
}

// IDs returns the ids of the open questions, sorted, each once.
func (s *Questions) IDs() []string {
	if len(s.open) == 0 {
		return nil
	}
	ids := make([]string, len(s.open))
	for i, q := range s.open {
		ids[i] = q.ID()
	}
	slices.Sort(ids)
	return slices.Compact(ids) // one may have been asked again
}

// From reports whether a scope for which is returns true has asked one of them.
func (s *Questions) From(is func(scope string) bool) bool {
	return slices.ContainsFunc(s.open, func(q *Question) bool { return is(q.Scope()) })
}

// Hold reports whether all the questions with these ids are open.
func (s *Questions) Hold(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return s.Find(id) == nil })
}

// Apply takes the next event. It returns the question that it asks, nil without one, and
// those that it closes: the one that it answers; of an expiry those of its own scope; of an
// end, and of a failure whose outcome is known, which begins the step anew, those of its
// scope and below.
func (s *Questions) Apply(ev *teamv1.Event) (asked *Question, closed []*Question) {
	if len(s.open) == 0 && ev.GetAsked() == nil {
		return nil, nil
	}
	below := func(q *Question) bool { return agent.Within(q.Scope(), ev.GetScope()) }
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Asked:
		asked = &Question{Event: ev}
		s.open = append(slices.Clip(s.open), asked)
	case *teamv1.Event_Answered:
		closed = s.close(func(q *Question) bool { return q.ID() == k.Answered.GetQuestion() })
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			closed = s.close(func(q *Question) bool { return q.Scope() == ev.GetScope() })
		}
	case *teamv1.Event_Retried:
		if k.Retried.GetFresh() {
			closed = s.close(below)
		}
	case *teamv1.Event_Ended:
		closed = s.close(below)
	}
	return asked, closed
}

// close takes open questions out.
func (s *Questions) close(is func(*Question) bool) (closed []*Question) {
	if !slices.ContainsFunc(s.open, is) {
		return nil
	}
	var open []*Question
	for _, q := range s.open {
		if is(q) {
			closed = append(closed, q)
		} else {
			open = append(open, q)
		}
	}
	s.open = open
	return closed
}

// ask takes note of the questions that an event of a node has opened and closed.
func (v *View) ask(ev *teamv1.Event, c Change) {
	if n := c.Node; c.Asked != nil && n != nil {
		n.State = Waiting
		n.asks++
		if v.detail == Whole {
			n.Asked = append(n.Asked, c.Asked)
		}
	}
	for _, q := range c.Closed {
		q.Closed = ev.GetTime()
		if ev.GetAnswered() != nil {
			q.Answer = ev
		}
		if asker := v.Node(q.Scope()); asker != nil {
			asker.asks--
		}
	}
}

// Questions returns the open questions of a scope and of those below it, in the order they
// were asked. Shared: read only.
func (v *View) Questions(scope string) []*Question { return v.Summary.Questions.Within(scope) }

// Asks reports whether a node, or one below it, waits for an answer.
func (n *Node) Asks() bool {
	return n.asks > 0 || slices.ContainsFunc(n.Steps, (*Node).Asks)
}
