package a2a

import (
	"context"
	"errors"
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// pins are what a new run of an agent is tied to.
func (h *Handler) pins(ctx context.Context, id string) (*teamv1.Pins, error) {
	pins := &teamv1.Pins{Code: h.c.Version}
	p, ok := h.c.Agents.(Pinner)
	if !ok {
		return pins, nil
	}
	known, err := p.Pins(ctx, id)
	if err != nil {
		return nil, err
	}
	pins.Revisions = known.GetRevisions()
	return pins, nil
}

// agent returns the run's agent as the run began with it, until release is
// called. An error is how the run ends; where it is the journal's, as when the
// definition could not be read, the drive is broken off.
func (d *drive) agent(ctx context.Context) (a agent.Agent, release func(), err error) {
	id := d.accepted.GetAgent()
	if d.Pinned != nil {
		a, release, err = d.Pinned(ctx, id, d.accepted.GetPins())
	} else {
		a, err = d.Agent(id)
		release = func() {}
	}
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
