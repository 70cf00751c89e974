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
	// Node asks.
	Node *Node
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

// ask opens a question.
func (v *View) ask(n *Node, ev *teamv1.Event) {
	q := &Question{Node: n, Event: ev}
	v.Questions = append(v.Questions, q)
	if v.detail == Whole {
		n.Asked = append(n.Asked, q)
	}
	n.State = Waiting
	n.asks++
}

// answer closes a question that was answered.
func (v *View) answer(ev *teamv1.Event, a *teamv1.Answered) {
	v.close(ev, func(q *Question) bool {
		if q.ID() != a.GetQuestion() {
			return false
		}
		q.Answer, q.By = a.GetMessage(), a.GetBy()
		return true
	})
}

// close closes open questions.
func (v *View) close(ev *teamv1.Event, is func(*Question) bool) {
	v.Questions = slices.DeleteFunc(v.Questions, func(q *Question) bool {
		if !is(q) {
			return false
		}
		q.Closed = ev.GetTime()
		q.Node.asks--
		return true
	})
}

// Below returns the open questions of a node and of those below it.
func (v *View) Below(scope string) []*Question {
	var list []*Question
	for _, q := range v.Questions {
		if agent.Within(q.Node.Scope, scope) {
			list = append(list, q)
		}
	}
	return list
}

// Asks reports whether a node, or one below it, waits for an answer.
func (n *Node) Asks() bool {
	return n.asks > 0 || slices.ContainsFunc(n.Steps, (*Node).Asks)
}
