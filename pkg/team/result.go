package team

import (
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// ResultText returns the result of a member's step in words, for a model that can read on:
// its text is cut where it is long.
func (s *State) ResultText(st *StepState) string {
	return st.Worded(prompt.Cut(prompt.Text(st.Message), s.TaskID(st)))
}

// Worded returns the result of a member's step for its reader: the member, the outcome,
// why it failed, and text, which is the result's as that reader is shown it.
func (st *StepState) Worded(text string) string {
	switch {
	case !st.Done && st.Parked():
		return st.Step.GetMember() + ": waits for an answer of the user"
	case !st.Done:
		return st.Step.GetMember() + ": working"
	case st.Err != nil:
		return headOf(st) + "\n\n" + st.Err.Message
	case strings.TrimSpace(text) == "":
		return headOf(st) + "\n\n(member returned no content)"
	}
	return headOf(st) + "\n\n" + text
}

// headOf names the member of a result, its outcome, and the reason of a failure.
func headOf(st *StepState) string {
	head := st.Step.GetMember() + ": " + expr.OutcomeWord(st.Outcome)
	if st.Err != nil && st.Err.Reason != "" {
		head += " (" + st.Err.Reason + ")"
	}
	return head
}

// told is a result as another member is handed it: a long one whole, with its name.
func told(s *State, st *StepState) []*a2av1.Part {
	text := prompt.Text(st.Message)
	if st.Err != nil || len(text) <= agent.MaxResult {
		return agent.TextParts(s.ResultText(st))
	}
	return agent.ResultParts(headOf(st), text, s.TaskID(st))
}

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
