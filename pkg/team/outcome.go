package team

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// What people can say of a call whose outcome nobody knows.
const (
	outcomeDone  = "it was done"
	outcomeAgain = "call it again"
	outcomeFail  = "fail"
)

// maxShown is how many bytes of a call's arguments a question shows.
const maxShown = 500

// askOutcome asks people what became of a call of an unsafe tool that was begun
// and whose end is not known: after a crash, or when the connection broke. It is
// not made again before they say so, and each time they are asked anew.
func (r *runner) askOutcome(w *work, emit emitter, why string) result {
	id := r.run.ID(w.scope, "question", w.questions+1)
	q := &teamv1.Asked{
		Question: id, Kind: teamv1.Asked_KIND_OUTCOME, Expires: timestamppb.New(r.run.Now().Add(defaultQuestion)),
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: questionParts(&teamv1.Ask{
			Question: fmt.Sprintf("%s called %s with %s, and %s. What became of it?", r.cfg.ID, w.step.GetName(), agent.Excerpt(w.arguments, maxShown), why),
			Options:  []string{outcomeDone, outcomeAgain, outcomeFail},
		})},
	}
	ev := r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
	if err := emit(ev); err != nil {
		return result{err: errStopped}
	}
	w.asked.follow(ev)
	return result{parked: true}
}

// weigh looks at what is known of earlier attempts of a tool's call. A person's
// word to call again begins another attempt, with a start of its own: after a
// crash then they are asked again.
func (p *process) weigh(w *work, st *StepState) {
	w.unsafe, w.questions, w.ruling = p.unsafe(st.Step.GetName()), st.questions, st.ruling
	if w.ruling != nil && ruled(w) == nil {
		w.open, w.unknown, w.ruling = false, false, nil
	}
}

// ruled is what a call ends with that people have ruled on; nil: it is to be made
// (again).
func ruled(w *work) *result {
	said := strings.TrimSpace(agent.Text(w.ruling))
	switch {
	case w.ruling == nil || strings.EqualFold(said, outcomeAgain):
		return nil
	case strings.EqualFold(said, outcomeDone):
		return toolReply(&teamv1.ToolResult{Text: "The result of this call is not known. A person has looked and says that it was done. Do not call it again."})
	}
	return toolReply(&teamv1.ToolResult{Text: "It is not known what became of this call. A person has looked and says that it counts as failed.", IsError: true})
}

// givenUp is what the model is told of a call that failed and is not made again;
// nil for what is no failure of a tool.
func givenUp(w *work, err error) *teamv1.Reply {
	e := agent.AsError(err)
	if w.step.GetKind() != teamv1.Step_KIND_TOOL || e.Reason == agent.ReasonAgentPanic {
		return nil
	}
	return toolReply(&teamv1.ToolResult{Text: w.step.GetName() + " failed: " + e.Message, IsError: true}).reply
}

func toolReply(r *teamv1.ToolResult) *result {
	return &result{reply: &teamv1.Reply{Result: &teamv1.Reply_Tool{Tool: r}, Spent: &teamv1.Spent{ToolCalls: 1}}}
}

// rule folds an answer to a step's own question.
func (f *fold) rule(st *StepState, m *a2av1.Message, seq int64) {
	switch st.Step.GetKind() {
	case teamv1.Step_KIND_TOOL:
		st.ruling = m
	case teamv1.Step_KIND_HUMAN:
		st.Message, st.seq = m, seq
		f.arriveHuman(st)
	default:
	}
}
