package team

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team/internal/guards"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// unchecked reports whether input middlewares have to look at something, or have stopped it.
func (p *process) unchecked() bool { return len(p.arrivals) > 0 || p.barred != nil }

// checkInput has the input middlewares look at all that has come in and that
// they have not seen.
func (p *process) checkInput(ctx context.Context) error {
	for _, a := range p.arrivals {
		if p.barred != nil {
			break
		}
		g := &guards.Passage{
			Owner: p.runner.Owner, Stage: teamv1.Checked_STAGE_INPUT, Scope: p.Scope, Ref: a.ref, Guards: p.cfg.Guards.Input, Looked: a.looked, Message: a.m, Emit: p.emitChecked,
		}
		if _, err := g.Screen(ctx); err != nil {
			return p.endOfCheck(ctx, err)
		}
	}
	p.arrivals = nil
	if p.barred != nil {
		return p.barred
	}
	return nil
}

// checkOutput has the output middlewares look at the answer: what is returned is
// what is on record.
func (p *process) checkOutput(ctx context.Context, reply *teamv1.Reply) (*teamv1.Reply, error) {
	if len(p.cfg.Guards.Output) == 0 || reply.GetMessage() == nil {
		return reply, nil
	}
	if p.barred == nil {
		g := &guards.Passage{
			Owner: p.runner.Owner, Stage: teamv1.Checked_STAGE_OUTPUT, Scope: p.Scope, Guards: p.cfg.Guards.Output, Looked: p.outputs, Message: p.final, Emit: p.emitChecked,
		}
		if _, err := g.Screen(ctx); err != nil {
			return nil, p.endOfCheck(ctx, err)
		}
	}
	if p.barred != nil {
		return nil, p.barred
	}
	return p.reply(p.final), nil
}

// endOfCheck is why a look at a message of the scope itself was not finished.
func (p *process) endOfCheck(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, step.ErrStopped) {
		return p.cause(ctx)
	}
	return err
}

func (p *process) emitChecked(c *teamv1.Checked) (int64, error) {
	ev := p.event("", &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: c}})
	err := p.pass(ev)
	return ev.GetSeq(), err
}
