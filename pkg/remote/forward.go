package remote

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// take converts an event of the peer and yields it, if it is for our record. Output becomes output
// in our scope, and questions become our questions. Decisions, starts and ends become progress
// messages, and the result becomes our reply. It reports whether the call is done.
func (p *process) take(resp *teamv1.ProcessStreamResponse) (done bool, err error) {
	if ours, err := p.meet(resp.GetTaskId()); err != nil || !ours {
		return false, err
	}
	e := resp.GetEvent()
	switch {
	case e.GetSeq() != 0:
		if e.GetSeq() <= p.cursor {
			return false, nil
		}
		p.cursor = e.GetSeq()
		p.heard()
	case e != nil && p.silence.timer != nil && p.replays.news(e):
		p.heard()
	}
	switch k := e.GetKind().(type) {
	case *teamv1.Event_Delta:
		if !p.speaks(e) {
			return false, nil
		}
		return false, p.delta(e, k.Delta)
	case *teamv1.Event_Artifact:
		if e.GetScope() != "" {
			return false, nil
		}
		return false, p.artifact(e)
	case *teamv1.Event_Progress:
		return false, p.forward(e, e)
	case *teamv1.Event_Asked:
		p.asked[k.Asked.GetQuestion()] = k.Asked
	case *teamv1.Event_Answered:
		p.replies[e.GetSeq()] = k.Answered.GetMessage()
	case *teamv1.Event_Received:
		p.replies[e.GetSeq()] = k.Received.GetMessage()
	case *teamv1.Event_Waiting:
		if e.GetScope() == "" && !k.Waiting.GetPaused() {
			return p.park(k.Waiting)
		}
	case *teamv1.Event_Decided:
		p.hear(e.GetScope(), k.Decided)
		return false, p.narrate(e)
	case *teamv1.Event_Started:
		return false, p.narrate(e)
	case *teamv1.Event_Ended:
		if e.GetScope() == "" {
			return true, p.result(k.Ended)
		}
		p.replies[e.GetSeq()] = k.Ended.GetReply()
		return false, p.narrate(e)
	case *teamv1.Event_Reply: // sent by peers without a journal
		if e.GetScope() == "" {
			return true, p.replied(k.Reply)
		}
	}
	return false, nil
}

// hear remembers which steps of the peer's agent are model turns whose text may be its answer.
// Those of a router are not.
func (p *process) hear(scope string, d *teamv1.Decided) {
	if scope != "" {
		return
	}
	for _, s := range d.GetSteps() {
		if p.turns == nil {
			p.turns = map[string]bool{}
		}
		p.turns[s.GetId()] = s.GetKind() == teamv1.Step_KIND_MODEL && s.GetName() != "route"
	}
}

// speaks reports whether streamed text is that of the peer's own agent, not of one of its members.
// For a step whose decision was not received, that is inferred from its scope and path.
func (p *process) speaks(e *teamv1.Event) bool {
	if e.GetScope() == "" {
		return true
	}
	own, known := p.turns[e.GetScope()]
	return own || !known && !strings.Contains(e.GetScope(), ".") && !strings.Contains(e.GetAgent(), "/")
}

// forward yields e in our scope, with the path of theirs. It records the cursor every markEvery
// events.
func (p *process) forward(theirs, e *teamv1.Event) error {
	out := proto.CloneOf(e)
	out.Seq, out.Time, out.Agent = 0, nil, p.pathOf(theirs)
	if err := p.emit(out); err != nil {
		return err
	}
	if p.since++; p.since >= markEvery {
		return p.mark()
	}
	return nil
}

// artifact yields a piece of an artifact, unless it was recorded before a reattachment. Pieces must
// not be appended twice.
func (p *process) artifact(e *teamv1.Event) error {
	if p.skip > 0 {
		p.skip--
		return nil
	}
	if err := p.forward(e, e); err != nil {
		return err
	}
	return p.mark()
}

// delta yields streamed text. The first text of an artifact after a reattachment restarts it.
func (p *process) delta(theirs *teamv1.Event, d *teamv1.Delta) error {
	d = proto.CloneOf(d)
	if p.texts != nil && !p.texts[d.GetArtifactId()] {
		p.texts[d.GetArtifactId()] = true
		d.Restart = true
	}
	return p.emit(&teamv1.Event{Agent: p.pathOf(theirs), Kind: &teamv1.Event_Delta{Delta: d}})
}

// pathOf returns our path followed by the peer's path of an event.
func (p *process) pathOf(e *teamv1.Event) string {
	if e.GetAgent() == "" {
		return agent.Path(p.req)
	}
	return agent.Path(p.req) + "/" + e.GetAgent()
}

// narrate yields a progress message about a step of the peer.
func (p *process) narrate(e *teamv1.Event) error {
	m := agent.NewMessage(narration(e))
	m.MessageId = p.run.ID(p.req.GetScope(), "narration/"+p.bound.GetTaskId(), e.GetSeq())
	return p.forward(e, &teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: m}}})
}

// narration describes an event for people.
func narration(e *teamv1.Event) string {
	switch k := e.GetKind().(type) {
	case *teamv1.Event_Decided:
		text := "decided: " + plan(k.Decided)
		if k.Decided.GetReason() != "" {
			text += " (" + clip(k.Decided.GetReason()) + ")"
		}
		return text
	case *teamv1.Event_Started:
		return fmt.Sprintf("started, attempt %d", max(1, k.Started.GetAttempt()))
	case *teamv1.Event_Ended:
		return "ended: " + outcomeWord(k.Ended.GetOutcome())
	}
	return ""
}

// plan describes what was decided.
func plan(d *teamv1.Decided) string {
	var names []string
	for _, s := range d.GetSteps() {
		switch {
		case s.GetMember() != "":
			names = append(names, s.GetMember())
		case s.GetName() != "":
			names = append(names, s.GetName())
		default:
			names = append(names, strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "KIND_")))
		}
	}
	switch {
	case names != nil:
		return strings.Join(names, ", ")
	case d.GetAsk() != nil:
		return "to ask"
	case len(d.GetCancel()) > 0 && d.GetReply() == nil:
		return "to cancel what is not needed"
	}
	return "finished"
}

// outcomeWord returns the name of an outcome for people.
func outcomeWord(o teamv1.Outcome) string {
	return strings.ReplaceAll(taskstate.Word(o), "_", " ")
}

// park yields the questions that the peer waits for, and records the cursor. A Waiting event with a
// question that has a recorded answer is older than the answer, and is ignored. It reports whether
// the call is done.
func (p *process) park(w *teamv1.Waiting) (done bool, err error) {
	for _, q := range w.GetQuestions() {
		if p.past.answered[p.question(q)] != nil {
			return false, nil
		}
	}
	open := false
	for _, q := range w.GetQuestions() {
		known, err := p.ask(q)
		if err != nil {
			return false, err
		}
		open = open || known
	}
	p.state = a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	if !open {
		return false, senseless(p.agent.cfg.ID, "waits for an answer but sent no question", nil)
	}
	return true, p.mark()
}

// ask yields the peer's question with an id as ours. It reports whether the question is known.
func (p *process) ask(theirs string) (known bool, err error) {
	ours := p.question(theirs)
	if p.past.wasAsked(ours) {
		return true, nil
	}
	q := p.asked[theirs]
	if q == nil {
		return false, nil
	}
	q = proto.CloneOf(q)
	q.Question, q.Message, q.Budget, q.Approval = ours, own(q.GetMessage()), p.budget(q.GetBudget()), p.approval(q.GetApproval())
	q.ToolQuestion, q.ToolState = p.toolQuestion(q.GetToolQuestion()), nil
	return true, p.call.asked(q)
}

// theirs returns the peer's id of one of our questions, empty if the peer gave it none.
func (p *process) theirs(ours string) string {
	theirs := strings.TrimPrefix(ours, agent.Scope(p.req.GetScope(), ""))
	if strings.HasPrefix(theirs, unnamed) {
		return ""
	}
	return theirs
}

// unnamed is the prefix of our ids for questions to which the peer gave no id.
const unnamed = "open-"

// result yields our reply, or returns the error, for the end of the peer's task.
func (p *process) result(e *teamv1.Ended) error {
	switch e.GetOutcome() {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_UNSPECIFIED:
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED,
		teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_SKIPPED:
		return p.unsuccessful(e)
	}
	r := &teamv1.Reply{Outcome: e.GetOutcome(), Spent: claimed(e.GetSpent()), Evidence: e.GetEvidence(), Warnings: e.GetWarnings()}
	if t := e.GetTransfer(); t != nil {
		r.Result = &teamv1.Reply_Transfer{Transfer: t}
		return p.reply(r)
	}
	m, err := p.final(e)
	if err != nil {
		return err
	}
	if m != nil {
		r.Result = &teamv1.Reply_Message{Message: own(m)}
	}
	return p.reply(r)
}

// replied yields a reply of the peer as ours.
func (p *process) replied(r *teamv1.Reply) error {
	r = proto.CloneOf(r)
	r.Ref, r.Direct = 0, false
	if m := r.GetMessage(); m != nil {
		r.Result = &teamv1.Reply_Message{Message: own(m)}
	}
	return p.reply(r)
}

// final returns the message of a result. A result may refer to an earlier message; if that came
// before the cursor, final asks the peer for it.
func (p *process) final(e *teamv1.Ended) (*a2av1.Message, error) {
	ref, ok := e.GetResult().(*teamv1.Ended_ReplyRef)
	if !ok {
		return e.GetReply(), nil
	}
	if m := p.replies[ref.ReplyRef]; m != nil {
		return m, nil
	}
	ctx, stop := context.WithTimeout(p.ctx, p.agent.cfg.Idle)
	defer stop()
	resp, err := p.agent.client.Process(p.agent.outgoing(ctx, p.req.GetDepth()), p.message())
	return resp.GetMessage(), err
}

// unsuccessful returns the error of a task that did not succeed. Its outcome is known, so a retry
// begins a new task.
func (p *process) unsuccessful(e *teamv1.Ended) error {
	if p.past.silent && e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED {
		return p.afterSilence(p.agent.cfg.ID, claimed(e.GetSpent()))
	}
	err := agent.FromProto(e.GetError())
	if err == nil {
		err = agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed, "agent %q ended: %s", p.agent.cfg.ID, outcomeWord(e.GetOutcome()))
		switch e.GetOutcome() {
		case teamv1.Outcome_OUTCOME_TIMED_OUT:
			err.Code, err.Reason = agent.CodeDeadlineExceeded, agent.ReasonTimeout
		case teamv1.Outcome_OUTCOME_CANCELED:
			err.Code, err.Reason = agent.CodeAborted, agent.ReasonCanceled
		default:
		}
	}
	err.Message, err.Fresh, err.Answered, err.Spent = clip(err.Message), true, true, claimed(e.GetSpent())
	return err
}
