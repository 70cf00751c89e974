package team

import (
	"cmp"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// historyScope is that of a member.
func (l *Loop) historyScope(member string) HistoryScope {
	if m := l.member(member); m != nil && m.History != "" {
		return m.History
	}
	return cmp.Or(l.traits.History, HistoryLastResult)
}

// historyFor is what the member of a step is shown of what was said before: what
// had ended when the step was decided, so that it is the same after a crash.
func (f *fold) historyFor(st *StepState) []*a2av1.Message {
	if !st.ByMember() {
		return nil
	}
	if st.past.Checks.History != nil {
		return st.past.Checks.History.GetMessages()
	}
	var said []*a2av1.Message
	switch f.loop.historyScope(st.Step.GetMember()) {
	case HistoryConversation:
		said = append(said, f.History...)
	case HistoryParent:
	case HistoryLastResult, HistoryIsolated:
		return nil
	}
	if st.Given != f.Input {
		said = append(said, f.Input)
	}
	for _, before := range f.Steps[:f.turnOf(st)] {
		if m := f.saidBy(before, st); m != nil {
			said = append(said, m)
		}
	}
	return said
}

// turnOf is the number of steps that a step can look back on: those up to the
// model's turn that called it, else all before it.
func (f *fold) turnOf(st *StepState) int {
	index := f.indexOf(st)
	for i := index - 1; i >= 0; i-- {
		if f.Steps[i].Step.GetKind() == teamv1.Step_KIND_MODEL {
			return i + 1
		}
	}
	return max(index, 0)
}

// saidBy is what a step has said, as the member of another one reads it: its own
// words as its own, those of others with their author; nil is nothing.
func (f *fold) saidBy(before, st *StepState) *a2av1.Message {
	if !before.Done || before.EndIndex >= st.EndedBefore || before.Step.GetKind() == teamv1.Step_KIND_JUDGE {
		return nil
	}
	switch {
	case before.ByMember() && before.Transfer != nil:
		text := before.Step.GetMember() + " hands over to " + before.Transfer.GetTo()
		if m := before.Transfer.GetMessage(); m != "" {
			text += ": " + m
		}
		return agent.UserMessage("", text)
	case before.ByMember() && before.Step.GetMember() == st.Step.GetMember() && before.Message != nil:
		return before.Message
	case before.ByMember(): // of a task of its own nothing has come yet
		return &a2av1.Message{Role: a2av1.Role_ROLE_USER, Parts: told(&f.State, before.EndedAs(nil))}
	case before.Turn.GetText() != "":
		return agent.UserMessage("", f.Team.ID+": "+before.Turn.GetText())
	case before.Tool != nil:
		return agent.UserMessage("", before.Step.GetName()+": "+agent.Excerpt(before.Tool.GetText(), agent.MaxResult))
	}
	return nil
}

// handed is what a step is given: its message, and the results of those that
// worked before it for the same turn.
func (f *fold) handed(st *StepState) *a2av1.Message {
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
			j.Add(told(&f.State, before))
		}
	}
	parts := append(slices.Clip(st.Given.GetParts()), j.Message().GetParts()...)
	return &a2av1.Message{ContextId: st.Given.GetContextId(), Role: st.Given.GetRole(), Parts: parts, Metadata: st.Given.GetMetadata()}
}
