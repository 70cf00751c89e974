package team

import (
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Joined returns the results of steps as one message, in the order of the steps, each
// under a heading with its member's id. A single result is returned as it is.
func Joined(steps []*StepState) *a2av1.Message {
	if len(steps) == 1 && steps[0].Message != nil {
		return steps[0].Message
	}
	var j prompt.Joiner
	for _, st := range steps {
		j.Section(heading(st, steps), st.Content())
	}
	return j.Message()
}

// heading names the author of a result: the member; where it has several of
// the results also the step; a step of people by its own name.
func heading(st *StepState, among []*StepState) string {
	member, name := st.Step.GetMember(), st.Step.GetName()
	if member == "" {
		return name
	}
	for _, other := range among {
		if other != st && other.Step.GetMember() == member && name != "" {
			return member + " (" + name + ")"
		}
	}
	return member
}

// Content returns the content of the step's result; what is not there is said in words.
func (st *StepState) Content() []*a2av1.Part {
	switch {
	case len(st.Message.GetParts()) > 0:
		return st.Message.GetParts()
	case st.Err != nil:
		return agent.TextParts("(failed: " + st.Err.Message + ")")
	}
	return agent.TextParts("(no content)")
}

// JoinedIDs returns the ids of the steps whose results a message of [Joined] joins, as in
// Decision.Joins: none of a single one.
func JoinedIDs(steps []*StepState) []string {
	if len(steps) < 2 {
		return nil
	}
	ids := make([]string, len(steps))
	for i, st := range steps {
		ids[i] = st.Step.GetId()
	}
	return ids
}

// joins are the ids of the steps whose results a reply joins.
func (s *State) joins(d *Decision) []string {
	if len(d.Joins) == 0 && s.Last != nil && d.Reply == s.Last.Message {
		return s.Last.Joins
	}
	return d.Joins
}
