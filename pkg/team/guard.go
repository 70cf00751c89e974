package team

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// hasUnchecked reports whether input middlewares have to check a message, or have blocked one.
func (p *process) hasUnchecked() bool { return len(p.arrivals) > 0 || p.blocked != nil }

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

func (p *process) emitChecked(c *teamv1.Checked) (int64, error) {
	ev := p.event("", &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: c}})
	err := p.emitEvent(ev)
	return ev.GetSeq(), err
}
