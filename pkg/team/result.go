package team

import (
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// ResultText returns the result of a member's step as text for a model that can call the tool
// read_result: a long text is cut. If people have changed the task of the member, the text says so,
// because the model knows only the task that it has decided on.
func (s *State) ResultText(st *StepState) string {
	text := st.Describe(prompt.Cut(prompt.Text(st.Message), s.TaskID(st)))
	if a := st.past.Approval; a != nil && a.Answer.GetArguments() != "" {
		text += "\n\nBefore the member began, a person changed its task to: " + agent.Excerpt(a.Answer.GetArguments(), maxChangedTask)
	}
	return text
}

// maxChangedTask is how much of a task that people have changed a model is shown, in bytes.
const maxChangedTask = 1 << 10

// Describe returns the result of a member's step as text: the member, the outcome, the reason of a
// failure, and text, which is the content of the result as the reader is to see it.
func (st *StepState) Describe(text string) string {
	switch {
	case !st.Done && st.Parked():
		return st.Step.GetMember() + ": waits for an answer of the user"
	case !st.Done:
		return st.Step.GetMember() + ": working"
	case st.Err != nil:
		return resultHeading(st) + "\n\n" + st.Err.Message
	case strings.TrimSpace(text) == "":
		return resultHeading(st) + "\n\n(member returned no content)"
	}
	return resultHeading(st) + "\n\n" + text
}

// resultHeading returns the heading of a result: the member, the outcome, and the reason of a
// failure.
func resultHeading(st *StepState) string {
	head := st.Step.GetMember() + ": " + expr.OutcomeWord(st.Outcome)
	if st.Err != nil && st.Err.Reason != "" {
		head += " (" + st.Err.Reason + ")"
	}
	return head
}

// resultParts returns a result as it is handed to another member: a long one in full, with its
// name.
func resultParts(s *State, st *StepState) []*a2av1.Part {
	text := prompt.Text(st.Message)
	if st.Err != nil || len(text) <= agent.MaxResult {
		return agent.TextParts(s.ResultText(st))
	}
	return agent.ResultParts(resultHeading(st), text, s.TaskID(st))
}

// Joined returns the results of steps as one message, in the order of the steps, each under a
// heading with its member's id. A single result is returned unchanged.
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

// heading names the author of a result: the member, with the step's name if the member has several
// of the results; for a human step its name.
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

// Content returns the content of the step's result, or a text that says that it failed or has no
// content.
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
// Decision.Joins; nil for a single step.
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

// joins returns the ids of the steps whose results the reply of d joins.
func (s *State) joins(d *Decision) []string {
	if len(d.Joins) == 0 && s.Last != nil && d.Reply == s.Last.Message {
		return s.Last.Joins
	}
	return d.Joins
}
