package drive

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// lent adds to the context of a detached run what its team lends to its member. A
// team that is not there any more lends nothing. The error is the journal's: the
// drive is broken off.
func (d *drive) lent(ctx context.Context) (_ context.Context, release func(), err error) {
	from := d.accepted.GetDetached()
	if from.GetTeam() == "" {
		return ctx, func() {}, nil
	}
	a, release, err := d.find(ctx, from.GetTeam())
	var gone *agent.Error
	switch {
	case errors.As(err, &gone):
		d.Log.Warn("a detached run works without its team", zap.String("task", d.claim.Root), zap.String("team", from.GetTeam()), zap.Error(err))
		return ctx, func() {}, nil
	case err != nil:
		err = fmt.Errorf("team %q of %s: %w", from.GetTeam(), d.claim.Root, err)
		d.broken.CompareAndSwap(nil, &err)
		return nil, nil, err
	}
	if l, ok := a.(agent.Lender); ok {
		ctx = l.Lend(ctx, from.GetMember())
	}
	return ctx, release, nil
}

// find returns an agent as the run is tied to it, until release is called.
func (d *drive) find(ctx context.Context, id string) (a agent.Agent, release func(), err error) {
	if d.Pinned != nil {
		return d.Pinned(ctx, id, d.accepted.GetPins())
	}
	a, err = d.Agent(id)
	return a, func() {}, err
}

// agent returns the run's agent as the run began with it, until release is
// called. An error is how the run ends; where it is the journal's, as when the
// definition could not be read, the drive is broken off.
func (d *drive) agent(ctx context.Context) (a agent.Agent, release func(), err error) {
	id := d.accepted.GetAgent()
	a, release, err = d.find(ctx, id)
	var gone *agent.Error
	switch {
	case err == nil:
		return a, release, nil
	case !errors.As(err, &gone):
		err = fmt.Errorf("agent %q of %s: %w", id, d.claim.Root, err)
		d.broken.CompareAndSwap(nil, &err)
	case d.canceled:
		err = agent.ErrCanceled // there is nobody to tell
	case gone.Reason == agent.ReasonAgentNotFound:
		err = agent.Errorf(agent.CodeInternal, agent.ReasonInterrupted,
			"the run cannot go on: agent %q is not served here any more", id).Because(err)
	}
	return nil, nil, err
}
