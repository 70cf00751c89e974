package drive

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// lent returns a context that carries what the team of a detached run shares with its member, and a
// function that releases the team. If the team no longer exists, it logs that and returns ctx as it
// is. An error means that the definition of the team could not be read; the drive then fails.
func (d *drive) lent(ctx context.Context) (_ context.Context, release func(), err error) {
	from := d.accepted.GetDetached()
	if from.GetTeam() == "" {
		return ctx, func() {}, nil
	}
	a, release, err := d.find(ctx, from.GetTeam())
	var gone *agent.Error
	switch {
	case errors.As(err, &gone):
		d.Log.Warn("a detached run works without its team, which is not served", zap.String("team", from.GetTeam()), zap.Error(err))
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

// find returns the agent with an id, at the revision to which the run is pinned. The agent must not
// be used after release is called.
func (d *drive) find(ctx context.Context, id string) (a agent.Agent, release func(), err error) {
	if d.Pinned != nil {
		return d.Pinned(ctx, id, d.accepted.GetPins())
	}
	a, err = d.Agent(id)
	return a, func() {}, err
}

// agent returns the run's agent, at the revision to which the run is pinned. The agent must not be
// used after release is called. If the agent no longer exists, the run ends with the error. If its
// definition could not be read, the drive fails and the run is tried again.
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
		err = agent.ErrCanceled // a canceled run ends as canceled, whatever the error says
	case gone.Reason == agent.ReasonAgentNotFound:
		err = agent.Errorf(agent.CodeInternal, agent.ReasonInterrupted,
			"the run cannot go on: agent %q is not served here any more", id).Because(err)
	}
	return nil, nil, err
}
