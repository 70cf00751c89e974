package team

import (
	"context"
	"errors"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// hasUnchecked reports whether input middlewares have to check a message, or have blocked one.
func (c *checks) hasUnchecked() bool { return len(c.arrivals) > 0 || c.blocked != nil }

// checkInput passes all messages that arrived and were not checked yet through the input
// middlewares. The error is that of a blocked message, or the end of ctx.
func (p *process) checkInput(ctx context.Context) error {
	for _, a := range p.arrivals {
		if p.blocked != nil {
			break
		}
		g := &guards.Passage{
			Owner: p.runner.Owner, Stage: teamv1.Checked_STAGE_INPUT, Scope: p.Scope, Ref: a.ref, Guards: p.cfg.Guards.Input, Looked: a.checked, Message: a.m, Emit: p.emitChecked,
		}
		if _, err := g.Screen(ctx); err != nil {
			return p.checkError(ctx, err)
		}
	}
	p.arrivals = nil
	if p.blocked != nil {
		return p.blocked
	}
	return nil
}

// checkOutput passes the reply through the output middlewares and returns the reply as recorded
// after them.
func (p *process) checkOutput(ctx context.Context, reply *teamv1.Reply) (*teamv1.Reply, error) {
	if len(p.cfg.Guards.Output) == 0 || reply.GetMessage() == nil {
		return reply, nil
	}
	if p.blocked == nil {
		g := &guards.Passage{
			Owner: p.runner.Owner, Stage: teamv1.Checked_STAGE_OUTPUT, Scope: p.Scope, Guards: p.cfg.Guards.Output, Looked: p.outputs, Message: p.decidedReply, Emit: p.emitChecked,
		}
		if _, err := g.Screen(ctx); err != nil {
			return nil, p.checkError(ctx, err)
		}
	}
	if p.blocked != nil {
		return nil, p.blocked
	}
	return p.reply(p.decidedReply), nil
}

// checkError returns the error of the run for a check that was not finished.
func (p *process) checkError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, step.ErrStopped) {
		return p.cause(ctx)
	}
	return err
}

// emitChecked records what a middleware did, and returns the number of the event.
func (r *recorder) emitChecked(c *teamv1.Checked) (int64, error) {
	ev := r.event("", &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: c}})
	err := r.emitEvent(ev)
	return ev.GetSeq(), err
}

// checks is the state of the middlewares that check a scope's own input and output.
type checks struct {
	arrivals []*arrival   // messages that the input middlewares have to check
	outputs  int          // number of output middlewares that have checked the reply
	blocked  *agent.Error // why a middleware blocked the scope; nil if none did
	warnings []string     // errors of middlewares that did not block, and other remarks on the result
}

// arrival is a message that arrived in a scope and that input middlewares have to check.
type arrival struct {
	ref     int64                             // sequence number of the event that brought it; 0 for the input
	m       *a2av1.Message                    // the message, with the changes of the middlewares that have checked it
	checked int                               // number of middlewares that have checked it
	set     func(m *a2av1.Message, seq int64) // stores a changed message in the state
}

// arrive queues a message for the input middlewares, which check it before the scope continues. set
// stores a changed message in the state.
func (f *fold) arrive(ref int64, m *a2av1.Message, set func(m *a2av1.Message, seq int64)) {
	if len(f.Team.Guards.Input) > 0 {
		f.arrivals = append(f.arrivals, &arrival{ref: ref, m: m, set: set})
	}
}

// arriveInput queues the scope's input.
func (f *fold) arriveInput() {
	f.arrive(0, f.Input, func(m *a2av1.Message, _ int64) {
		f.Input = m
		f.Messages = []*a2av1.Message{m}
	})
}

// arriveFollowUp queues the last follow-up message.
func (f *fold) arriveFollowUp(seq int64) {
	i := len(f.Received) - 1
	f.arrive(seq, f.Received[i], func(m *a2av1.Message, _ int64) { f.Received[i] = m })
}

// arriveAnswer queues the answer to a question of the scheduler.
func (f *fold) arriveAnswer(seq int64, m *a2av1.Message) {
	f.arrive(seq, m, func(m *a2av1.Message, _ int64) { f.Messages = []*a2av1.Message{m} })
}

// arriveHuman queues the answer to a human step.
func (f *fold) arriveHuman(st *StepState) {
	f.arrive(st.seq, st.Message, func(m *a2av1.Message, seq int64) { st.Message, st.seq = m, seq })
}

// applyChecked folds what a middleware of the scope did with a message.
func (f *fold) applyChecked(seq int64, c *teamv1.Checked) {
	f.texts.Add(seq, c.GetMessage())
	switch c.GetStage() {
	case teamv1.Checked_STAGE_INPUT:
		f.applyInputCheck(seq, c)
	case teamv1.Checked_STAGE_OUTPUT:
		f.outputs++
		if c.GetMessage() != nil {
			f.decidedReply = c.GetMessage()
		}
	case teamv1.Checked_STAGE_DELEGATION, teamv1.Checked_STAGE_RESULT, teamv1.Checked_STAGE_UNSPECIFIED:
		return // a middleware of the team above
	}
	switch {
	case c.GetBlocked():
		f.blocked = agent.FromProto(c.GetError())
	case c.GetError() != nil:
		f.warnings = append(f.warnings, c.GetError().GetMessage())
	}
}

// applyInputCheck folds what an input middleware did with a message that arrived.
func (f *fold) applyInputCheck(seq int64, c *teamv1.Checked) {
	for _, a := range f.arrivals {
		if a.ref != c.GetRef() {
			continue
		}
		a.checked++
		if m := c.GetMessage(); m != nil {
			a.m = m
			a.set(m, seq)
		}
	}
}
