package team

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// decideNext asks the scheduler, unless its reply, transfer or question is on record already, and
// acts on the decision.
func (p *process) decideNext(ctx context.Context) (*teamv1.Reply, error) {
	p.mail.acknowledge(ctx, p.Loop, &p.State)
	decided := p.decidedReply != nil || p.decidedTransfer != nil
	if p.failed != nil && !decided {
		return nil, p.failed
	}
	if !decided && p.pendingAsk == nil {
		if err := p.askScheduler(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case p.decidedReply != nil:
		return p.conclude(ctx, p.reply(p.decidedReply))
	case p.decidedTransfer != nil:
		return p.conclude(ctx, &teamv1.Reply{Result: &teamv1.Reply_Transfer{Transfer: p.decidedTransfer}, Spent: p.spent()})
	case p.pendingAsk != nil:
		return nil, p.askUser(p.pendingAsk)
	}
	return nil, nil
}

// askScheduler asks the scheduler and records its decision.
func (p *process) askScheduler(ctx context.Context) error {
	if err := p.recordBreakers(); err != nil {
		return err
	}
	d, err := p.choose()
	if err != nil {
		return schedulerError(p.cfg.ID, err)
	}
	d.Cancel = p.newlyDropped(d.Cancel)
	if len(d.Steps)+len(d.Cancel) == 0 && d.Reply == nil && d.Ask == nil && d.Transfer == nil && d.round == 0 {
		if len(p.Open()) > 0 {
			p.schedulerWaits = true
			return nil
		}
		return agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q ended without a response: no member has answered; its scheduler must choose a member first", p.cfg.ID)
	}
	if err := p.readPosted(ctx, &d); err != nil {
		return err
	}
	return p.recordDecision(&d)
}

// choose returns the next decision: the scheduler's, or that of the gate if results are judged. A
// panic is returned as an error, so that running steps still get their ends.
func (p *process) choose() (c choice, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "the scheduler of team %q crashed; the log says where", p.cfg.ID).
				Because(agent.Panicked(p.cfg.Log, p.cfg.ID, r))
		}
	}()
	if p.gate != nil {
		return p.gate.next(&p.State, p.cfg.Scheduler)
	}
	d, err := p.cfg.Scheduler.Next(&p.State)
	return p.chosen(d), err
}

// schedulerError wraps an error of the scheduler as SCHEDULER_ERROR, unless it is an *agent.Error.
func schedulerError(team string, err error) error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "the scheduler of team %q failed: %s", team, err).Because(err)
}

// newDecided returns a decision as an event. It numbers the steps, and replaces texts that are on
// record by references.
func (p *process) newDecided(d *choice) *teamv1.Event {
	e := &decidedEvent{}
	e.kind.Decided, e.event.Kind = &e.decided, &e.kind
	rec := &e.decided
	rec.Updates, rec.Ask, rec.Transfer, rec.Plan, rec.Reason, rec.Rule, rec.Values = d.Updates, d.Ask, d.Transfer, d.Plan, d.Reason, d.Rule, d.Values
	rec.Cancel, rec.Joins, rec.Round, rec.Input, rec.Failure = d.Cancel, d.Joins, int32(d.round), d.input, d.failure.Proto() //nolint:gosec // a round is small
	rec.Finalized = d.Finalized
	if d.Reply != nil {
		rec.Reply, rec.Joins = p.texts.Refer(&teamv1.Input{}, d.Reply, p.Input), p.joins(&d.Decision)
	}
	if len(d.Steps) == 0 {
		return &e.event
	}
	steps, inputs := e.step[:], e.input[:]
	if rec.Steps = e.steps[:]; len(d.Steps) > 1 {
		steps, inputs, rec.Steps = make([]teamv1.Step, len(d.Steps)), make([]teamv1.Input, len(d.Steps)), make([]*teamv1.Step, len(d.Steps))
	}
	for i, s := range d.Steps {
		step := &steps[i]
		step.Id, step.Kind, step.Member, step.Async = p.nextID(i), s.GetKind(), s.GetMember(), s.GetAsync()
		step.CallId, step.Name, step.Ask, step.Timeout, step.Refusal = s.GetCallId(), s.GetName(), s.GetAsk(), s.GetTimeout(), s.GetRefusal()
		step.Detached, step.RefusedTransfer, step.Retry = s.GetDetached(), s.GetRefusedTransfer(), s.GetRetry()
		m, byMember := p.member(s.GetMember()), agent.ByMember(s.GetKind())
		step.Inner, step.Withheld = m.inner(), p.withholdsMemberOutput() && (byMember || s.GetKind() == teamv1.Step_KIND_JUDGE || s.GetKind() == teamv1.Step_KIND_TOOL)
		step.Required, step.Output = s.GetRequired() || byMember && m != nil && m.Required, s.GetOutput()
		if step.GetOutput() == "" && byMember && m != nil {
			step.Output = m.Output
		}
		switch {
		case s.GetInput().GetMessage() != nil:
			step.Input = p.texts.Refer(&inputs[i], s.GetInput().GetMessage(), p.Input)
			step.Input.Earlier = s.GetInput().GetEarlier()
		case s.GetInput() != nil:
			step.Input = s.GetInput()
		case byMember:
			step.Input = p.texts.Refer(&inputs[i], p.Messages[len(p.Messages)-1], p.Input)
		}
		if m := step.GetInput().GetMessage(); m != nil && s.GetKind() == teamv1.Step_KIND_JUDGE {
			step.Input.Message = p.run.Completed(p.prefix+step.GetId(), m) // it may be the answer
		}
		rec.Steps[i] = step
	}
	return &e.event
}

// decidedEvent is a Decided event with one step, the most common case, in a single allocation.
type decidedEvent struct {
	event   teamv1.Event
	kind    teamv1.Event_Decided
	decided teamv1.Decided
	step    [1]teamv1.Step
	input   [1]teamv1.Input
	steps   [1]*teamv1.Step
}

// inner returns what readers are shown of a member's output while it works. A nil m is no member.
func (m *Member) inner() teamv1.Step_Inner {
	switch {
	case m == nil || !m.StreamInner:
		return teamv1.Step_INNER_UNSPECIFIED
	case m.HideText:
		return teamv1.Step_INNER_EVENTS
	}
	return teamv1.Step_INNER_TEXT
}

// askUser records the scheduler's own question. The sequence of events then ends.
func (r *recorder) askUser(m *a2av1.Message) error {
	q := &teamv1.Asked{
		Question: r.run.ID(r.Scope, "question", r.questions+1), Kind: teamv1.Asked_KIND_INPUT, Message: m,
		Expires: timestamppb.New(r.run.Now().Add(step.QuestionExpiry)),
	}
	return r.emit("", &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
}

// newlyDropped returns those of the steps that are open and were not dropped before. A decision that
// only repeats earlier cancels is empty.
func (f *fold) newlyDropped(ids []string) []string {
	var open []string
	for _, id := range ids {
		if st := f.step(id); st != nil && !st.Done && !st.Dropped && !slices.Contains(open, id) {
			open = append(open, id)
		}
	}
	return open
}

// recordDecision records a decision and cancels the steps that it drops. From the fence on no work
// below those steps can begin.
func (p *process) recordDecision(d *choice) error {
	for _, id := range d.Cancel {
		p.run.Fence(p.prefix + id)
	}
	if err := p.emit("", p.newDecided(d)); err != nil {
		return err
	}
	p.cancelDropped()
	return nil
}

// conclude ends the run with a reply that has passed the output middlewares, or with a transfer. If
// the decision has a failure, the run fails with it, and a reply is recorded as an artifact, unless the
// results of a member are judged.
func (p *process) conclude(ctx context.Context, reply *teamv1.Reply) (*teamv1.Reply, error) {
	reply, err := p.checkOutput(ctx, reply)
	switch {
	case err != nil:
		return nil, err
	case p.replyFailure == nil && reply.GetMessage() != nil && prompt.Blank(reply.GetMessage()) && p.MustAnswer():
		return nil, p.noResponse()
	case p.replyFailure == nil:
		return reply, nil
	}
	if p.isAcceptance() { // readers are not shown rejected results of members
		return nil, p.replyFailure
	}
	if m := reply.GetMessage(); m != nil && !p.artifactRecorded && reply.GetOutcome() != teamv1.Outcome_OUTCOME_EMPTY {
		a := &a2av1.Artifact{ArtifactId: p.run.ID(p.Scope, "artifact", 1), Name: "result", Parts: m.GetParts(), Metadata: m.GetMetadata()}
		if err := p.emit("", &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: a, LastChunk: true}}}); err != nil {
			return nil, err
		}
	}
	return nil, p.replyFailure
}

// limitReasons are the reasons of runs that have reached a limit.
var limitReasons = []string{
	agent.ReasonMaxIterations, agent.ReasonMaxDelegations, agent.ReasonMaxRounds, agent.ReasonMaxHandoffs, agent.ReasonRepetitive,
	agent.ReasonRepeatedCall, agent.ReasonBudgetExceeded, agent.ReasonAccountLimit, agent.ReasonTimeout,
}

// finalize ends a run that failed with err with what there is: a run whose answer was cut keeps it as an artifact,
// and one that reached a limit hands it back, if its limits say FINALIZE. If there is nothing, it returns err.
func (p *process) finalize(ctx context.Context, err error) (*teamv1.Reply, error) {
	e := agent.AsError(err)
	if p.stopped || ctx.Err() != nil || p.decidedReply != nil {
		return nil, err
	}
	d := p.handedBack(e)
	if e.Reason == agent.ReasonAnswerTruncated && p.cut != nil && len(p.req.GetPath()) == 0 {
		d = Decision{Reply: p.cut, Failure: e, Reason: "the answer was cut"}
	}
	c := p.chosen(d)
	if d.Reply == nil || d.Failure == nil && c.failure != nil { // required work is missing
		return nil, err
	}
	if err := p.recordDecision(&c); err != nil {
		return nil, err
	}
	return p.conclude(ctx, p.reply(p.decidedReply))
}

// handedBack returns the decision that ends a run which has reached a limit: its answer is what members have
// answered last, and that of an agent what it has written last. A model-backed agent and a leader have answered by
// themselves if they could; see leader.Finalize.
func (p *process) handedBack(e *agent.Error) (d Decision) {
	switch {
	case p.cfg.Limits.GetOnLimit() != teamv1.OnLimit_FINALIZE, !slices.Contains(limitReasons, e.Reason):
		return d
	case e == p.failed && p.failedBelow: // at a limit of a member
		return d
	}
	results := p.latestResults()
	if len(p.cfg.Members) == 0 && !p.traits.WithholdsText {
		results = p.written()
	}
	if len(results) > 0 {
		d = Decision{Reply: Joined(results), Joins: JoinedIDs(results), Reason: "a limit is reached: " + e.Message, Finalized: e.Message}
	}
	return d
}

// written returns the last turn of the run's model that has a text, which may not be whole, and no calls: a text beside
// them says what comes next. It returns nil if there is none.
func (f *fold) written() []*StepState {
	for _, st := range slices.Backward(f.Steps) {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL && len(st.Turn.GetToolCalls()) == 0 && !prompt.Blank(st.Message) {
			return []*StepState{st}
		}
	}
	return nil
}

// latestResults returns the steps of the last decision that dispatched members with an answer, of those
// that have answered.
func (f *fold) latestResults() []*StepState {
	var latest []*StepState
	for _, st := range f.Steps {
		if !st.Done || !st.ByMember() || st.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED || len(st.Message.GetParts()) == 0 {
			continue
		}
		if len(latest) > 0 && latest[0].Round != st.Round {
			latest = nil
		}
		latest = append(latest, st)
	}
	return latest
}
