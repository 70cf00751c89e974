package store

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
)

// RolesOf returns the roles by which a question is found, none for events that ask no question.
func RolesOf(ev *teamv1.Event) []string { return identity.FindableRoles(ev.GetAsked().GetRoles()) }

// Unanswered returns nil, or an *runs.AnsweredError if an input answers a question that
// an earlier input already answers.
func Unanswered(in *teamv1.Inbound, inbox []*teamv1.Inbound) error {
	question := in.GetAnswered().GetQuestion()
	for _, other := range inbox {
		if a := other.GetAnswered(); a != nil && a.GetQuestion() == question {
			return &runs.AnsweredError{First: a}
		}
	}
	return nil
}

// Decides reports whether an event asks or answers a question. If it answers the question,
// the error is an *runs.AnsweredError. The latest event for which Decides returns true says
// whether the question is open.
func Decides(ev *teamv1.Event, question string) (bool, error) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Asked:
		return k.Asked.GetQuestion() == question, nil
	case *teamv1.Event_Answered:
		if k.Answered.GetQuestion() == question {
			return true, &runs.AnsweredError{First: k.Answered}
		}
	}
	return false, nil
}
