package team

import (
	"maps"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// questions are the open ones of a step and below it: by id, the scope that asked.
type questions map[string]string

// follow takes note of an event of the step or below it.
func (q *questions) follow(ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Asked:
		if *q == nil {
			*q = questions{}
		}
		(*q)[k.Asked.GetQuestion()] = ev.GetScope()
	case *teamv1.Event_Answered:
		delete(*q, k.Answered.GetQuestion())
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			maps.DeleteFunc(*q, func(_, scope string) bool { return scope == ev.GetScope() })
		}
	case *teamv1.Event_Ended:
		maps.DeleteFunc(*q, func(_, scope string) bool { return agent.Within(scope, ev.GetScope()) })
	default:
	}
}

// ids returns the questions, sorted.
func (q questions) ids() []string { return slices.Sorted(maps.Keys(q)) }

// from reports whether a scope that is so has asked one of them.
func (q questions) from(is func(scope string) bool) bool {
	for _, scope := range q {
		if is(scope) {
			return true
		}
	}
	return false
}

// hold reports whether all of ids are among them.
func (q questions) hold(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { _, open := q[id]; return !open })
}
