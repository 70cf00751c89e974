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
)

// decideNext asks the scheduler, unless its last word is on record already, and does what
// it says.
func (p *process) decideNext(ctx context.Context) (*teamv1.Reply, error) {
	said := p.final != nil || p.handover != nil
	if p.failed != nil && !said {
		return nil, p.failed
	}
	if !said && p.asks == nil {
		if err := p.decideAnew(); err != nil {
			return nil, err
		}
	}
	switch {
	case p.final != nil:
		return p.conclude(ctx, p.reply(p.final))
	case p.handover != nil:
		return p.conclude(ctx, &teamv1.Reply{Result: &teamv1.Reply_Transfer{Transfer: p.handover}, Spent: p.spent()})
	case p.asks != nil:
		return nil, p.ask(p.asks)
	}
	return nil, nil
}

// decideAnew asks the scheduler and records its answer.
func (p *process) decideAnew() error {
	if err := p.watch(); err != nil {
		return err
	}
	d, err := p.choose()
	if err != nil {
		return p.schedulerError(err)
	}
	d.Cancel = p.droppable(d.Cancel)
	if len(d.Steps)+len(d.Cancel) == 0 && d.Reply == nil && d.Ask == nil && d.Transfer == nil && d.round == 0 {
		if len(p.Open()) > 0 {
			p.waits = true
			return nil
		}
		return agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q ended without a response: no member has answered; let its scheduler give somebody work first", p.cfg.ID)
	}
	return p.put(&d)
}

// choose asks the scheduler, where results are judged through the gate. Its panic is
// its error: the steps that run get their ends.
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
	c.Decision, err = p.cfg.Scheduler.Next(&p.State)
	return c, err
}

// schedulerError is the error of a scheduler as the run's.
func (p *process) schedulerError(err error) error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "the scheduler of team %q failed: %s", p.cfg.ID, err).Because(err)
}

// record returns a decision as it goes on record: steps numbered, texts that
// are on record already named by their sequence.
func (p *process) record(d *choice) *teamv1.Event {
	e := &decidedEvent{}
	e.kind.Decided, e.event.Kind = &e.decided, &e.kind
	rec := &e.decided
	rec.Updates, rec.Ask, rec.Transfer, rec.Plan, rec.Reason, rec.Rule, rec.Values = d.Updates, d.Ask, d.Transfer, d.Plan, d.Reason, d.Rule, d.Values
	rec.Cancel, rec.Joins, rec.Round, rec.Input, rec.Failure = d.Cancel, d.Joins, int32(d.round), d.input, d.failure.Proto() //nolint:gosec // a round is small
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
		step.Inner, step.Withheld = p.inner(s.GetMember()), p.withholds() && (agent.IsDelegation(s.GetKind()) || s.GetKind() == teamv1.Step_KIND_JUDGE)
		switch {
		case s.GetInput().GetMessage() != nil:
			step.Input = p.texts.Refer(&inputs[i], s.GetInput().GetMessage(), p.Input)
			step.Input.Earlier = s.GetInput().GetEarlier()
		case s.GetInput() != nil:
			step.Input = s.GetInput()
		case agent.IsDelegation(s.GetKind()):
			step.Input = p.texts.Refer(&inputs[i], p.Messages[len(p.Messages)-1], p.Input)
		}
		if m := step.GetInput().GetMessage(); m != nil && s.GetKind() == teamv1.Step_KIND_JUDGE {
			step.Input.Message = p.run.Completed(p.prefix+step.GetId(), m) // it may be the answer
		}
		rec.Steps[i] = step
	}
	return &e.event
}

// decidedEvent is a Decided event, with the one step that most decide on, in one allocation.
type decidedEvent struct {
	event   teamv1.Event
	kind    teamv1.Event_Decided
	decided teamv1.Decided
	step    [1]teamv1.Step
	input   [1]teamv1.Input
	steps   [1]*teamv1.Step
}

// inner is what readers are shown of a member while it works.
func (l *Loop) inner(member string) teamv1.Step_Inner {
	switch m := l.member(member); {
	case m == nil || !m.StreamInner:
		return teamv1.Step_INNER_UNSPECIFIED
	case m.HideText:
		return teamv1.Step_INNER_EVENTS
	}
	return teamv1.Step_INNER_TEXT
}

// ask puts the scheduler's own question on record; the sequence then ends.
func (p *process) ask(m *a2av1.Message) error {
	q := &teamv1.Asked{
		Question: p.run.ID(p.Scope, "question", p.questions+1), Kind: teamv1.Asked_KIND_INPUT, Message: m,
		Expires: timestamppb.New(p.run.Now().Add(step.QuestionExpiry)),
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
}

// droppable returns the ids of open steps that were not dropped before: a
// decision that says nothing new is none.
func (f *fold) droppable(ids []string) []string {
	var open []string
	for _, id := range ids {
		if st := f.step(id); st != nil && !st.Done && !st.Dropped && !slices.Contains(open, id) {
			open = append(open, id)
		}
	}
	return open
}

// put puts a decision on record. From there on nothing begins in what it drops.
func (p *process) put(d *choice) error {
	for _, id := range d.Cancel {
		p.run.Fence(p.prefix + id)
	}
	if err := p.emit("", p.record(d)); err != nil {
		return err
	}
	p.cancelDropped()
	return nil
}

// conclude is the end of a run with a reply: once output middlewares have looked at
// it. One that is not what was asked for is shown to the readers of the failed run.
func (p *process) conclude(ctx context.Context, reply *teamv1.Reply) (*teamv1.Reply, error) {
	reply, err := p.checkOutput(ctx, reply)
	if err != nil || p.unmet == nil {
		return reply, err
	}
	if m := reply.GetMessage(); !p.kept && reply.GetOutcome() != teamv1.Outcome_OUTCOME_EMPTY {
		a := &a2av1.Artifact{ArtifactId: p.run.ID(p.Scope, "artifact", 1), Name: "result", Parts: m.GetParts(), Metadata: m.GetMetadata()}
		if err := p.emit("", &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: a, LastChunk: true}}}); err != nil {
			return nil, err
		}
	}
	return nil, p.unmet
}
