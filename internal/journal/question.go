package journal

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Question is a question to people.
type Question struct {
	// Event is the Asked event that holds the question.
	Event *teamv1.Event
	// Answer is the event that answers the question, nil without one. Closed is the time when the
	// question was answered, or when it no longer needed an answer; nil while it is open. Both are
	// set only in a View.
	Answer *teamv1.Event
	Closed *timestamppb.Timestamp
}

// ID returns the id of the question.
func (q *Question) ID() string { return q.Event.GetAsked().GetQuestion() }

// Scope returns the scope that asked the question.
func (q *Question) Scope() string { return q.Event.GetScope() }

// Questions holds the open questions of a run or of a part of it. The zero value has none. A copy
// does not change with the original, and the two may be used concurrently.
type Questions struct {
	open []*Question // replaced, never changed in place
}

// Open returns the open questions in the order in which they were asked. The result must not be
// changed, and later events do not change it.
func (s *Questions) Open() []*Question { return s.open }

// Within returns the open questions of a scope and those below it, in the order in which they were
// asked. The result must not be changed.
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

// Find returns the open question with an id, or nil.
func (s *Questions) Find(id string) *Question {
	for _, q := range s.open {
		if q.ID() == id {
			return q
		}
	}
	return nil
}

// IDs returns the sorted ids of the open questions, without duplicates.
func (s *Questions) IDs() []string {
	if len(s.open) == 0 {
		return nil
	}
	ids := make([]string, len(s.open))
	for i, q := range s.open {
		ids[i] = q.ID()
	}
	slices.Sort(ids)
	return slices.Compact(ids) // a question may have been asked again with the same id
}

// From reports whether one of the open questions was asked by a scope for which is returns true.
func (s *Questions) From(is func(scope string) bool) bool {
	return slices.ContainsFunc(s.open, func(q *Question) bool { return is(q.Scope()) })
}

// Hold reports whether the questions with all these ids are open.
func (s *Questions) Hold(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return s.Find(id) == nil })
}

// Apply applies the next event. It returns the question that the event asks, nil without one, and
// the questions that it closes. An answer closes the questions with its id, and an expiry closes
// those of its scope. The end of a step, and a retry that starts the step anew, close those of its
// scope and below it.
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

// close removes the open questions for which is returns true, and returns them.
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

// ask updates the nodes whose questions an event has opened or closed.
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

// Questions returns the open questions of a scope and those below it, in the order in which they
// were asked. The result must not be changed.
func (v *View) Questions(scope string) []*Question { return v.Summary.Questions.Within(scope) }

// Asks reports whether the node or one below it has an open question.
func (n *Node) Asks() bool {
	return n.asks > 0 || slices.ContainsFunc(n.Steps, (*Node).Asks)
}
