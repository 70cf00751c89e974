package team

import (
	"cmp"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// historyScope returns the history scope of the member of a step, or the scheduler's default. A member
// that takes over is shown the conversation by default.
func (l *Loop) historyScope(step *teamv1.Step) HistoryScope {
	if m := l.member(step.GetMember()); m != nil && m.History != "" {
		return m.History
	}
	if step.GetKind() == teamv1.Step_KIND_TRANSFER {
		return HistoryConversation
	}
	return cmp.Or(l.traits.History, HistoryLastResult)
}

// historyFor returns the history that the member of a step is shown. It contains only steps that
// had ended when the step was decided, so that it is the same after a crash, and not the result that is
// the member's message.
func (f *fold) historyFor(st *StepState) []*a2av1.Message {
	if !st.ByMember() {
		return nil
	}
	if st.past.Checks.History != nil {
		return st.past.Checks.History.GetMessages()
	}
	var shown []*a2av1.Message
	switch f.loop.historyScope(st.Step) {
	case HistoryConversation:
		shown = append(shown, f.History...)
	case HistoryParent:
	case HistoryLastResult, HistoryIsolated:
		return nil
	}
	if st.Given != f.Input && (!prompt.OnlyText(f.Input) || !continues(st.Given, agent.Text(f.Input))) {
		shown = append(shown, f.Input)
	}
	for _, before := range f.Steps[:f.visibleSteps(st)] {
		if m := f.outputFor(before, st); m != nil && before.Message != st.Given {
			shown = append(shown, m)
		}
	}
	return shown
}

// continues reports whether a message begins with a text.
func continues(m *a2av1.Message, text string) bool {
	rest, ok := strings.CutPrefix(agent.Text(m), text)
	return ok && (rest == "" || strings.HasPrefix(rest, "\n\n"))
}

// visibleSteps returns how many leading steps a step can see: those up to the model turn that
// called it, or all before it if there is none.
func (f *fold) visibleSteps(st *StepState) int {
	index := f.indexOf(st)
	for i := index - 1; i >= 0; i-- {
		if f.Steps[i].Step.GetKind() == teamv1.Step_KIND_MODEL {
			return i + 1
		}
	}
	return max(index, 0)
}

// outputFor returns the output of an earlier step as the member of st reads it: its own words
// unchanged, those of others with their author. nil if there is no output.
func (f *fold) outputFor(before, st *StepState) *a2av1.Message {
	if !before.Done || before.EndIndex >= st.EndedBefore || before.Step.GetKind() == teamv1.Step_KIND_JUDGE {
		return nil
	}
	switch {
	case before.ByMember() && before.Transfer != nil:
		text := before.Step.GetMember() + " hands over to " + before.Transfer.GetTo()
		if m := before.Transfer.GetMessage(); m != "" && !continues(st.Given, m) {
			text += ": " + m
		}
		return agent.UserMessage("", text)
	case before.ByMember() && before.Step.GetMember() == st.Step.GetMember() && before.Message != nil:
		return before.Message
	case before.ByMember(): // EndedAs(nil): a detached task has no result here
		return &a2av1.Message{Role: a2av1.Role_ROLE_USER, Parts: resultParts(&f.State, before.EndedAs(nil))}
	case before.Turn.GetText() != "":
		return agent.UserMessage("", f.Team.ID+": "+before.Turn.GetText())
	case before.Tool != nil:
		return agent.UserMessage("", before.Step.GetName()+": "+prompt.ToolText(before.Tool, agent.MaxResult))
	}
	return nil
}

// inputOf returns the message that a step is given: the decided one, followed by the results of
// earlier steps of the same turn.
func (f *fold) inputOf(st *StepState) *a2av1.Message {
	if st.past.Checks.Message != nil {
		return st.past.Checks.Message
	}
	if len(st.earlier) == 0 {
		return st.Given
	}
	var j prompt.Joiner
	j.Write("Results so far:")
	for _, before := range f.Steps {
		if before.Done && slices.Contains(st.earlier, before.EndSeq) {
			j.Add(resultParts(&f.State, before))
		}
	}
	parts := append(slices.Clip(st.Given.GetParts()), j.Message().GetParts()...)
	return &a2av1.Message{ContextId: st.Given.GetContextId(), Role: st.Given.GetRole(), Parts: parts, Metadata: st.Given.GetMetadata()}
}
