package drive

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// agents finds the agents that a run calls.
type agents struct {
	rec    *record
	byID   func(id string) (agent.Agent, error)                                                               // see Runner.Agent
	pinned func(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error) // see Runner.Pinned
	log    *zap.Logger
}

// lent returns a context that carries what the team of a detached run shares with its member, and a
// function that releases the team. If the team no longer exists, it logs that and returns ctx as it
// is. An error means that the definition of the team could not be read; the drive then fails.
func (s *agents) lent(ctx context.Context) (_ context.Context, release func(), err error) {
	from := s.rec.accepted.GetDetached()
	if from.GetTeam() == "" {
		return ctx, func() {}, nil
	}
	a, release, err := s.find(ctx, from.GetTeam())
	var gone *agent.Error
	switch {
	case errors.As(err, &gone):
		s.log.Warn("a detached run works without its team, which is not served", zap.String("team", from.GetTeam()), zap.Error(err))
		return ctx, func() {}, nil
	case err != nil:
		err = fmt.Errorf("team %q of %s: %w", from.GetTeam(), s.rec.claim.Root, err)
		s.rec.broken.CompareAndSwap(nil, &err)
		return nil, nil, err
	}
	if l, ok := a.(agent.Lender); ok {
		ctx = l.Lend(ctx, from.GetMember())
	}
	return ctx, release, nil
}

// find returns the agent with an id, at the revision to which the run is pinned. The agent must not
// be used after release is called.
func (s *agents) find(ctx context.Context, id string) (a agent.Agent, release func(), err error) {
	if s.pinned != nil {
		return s.pinned(ctx, id, s.rec.accepted.GetPins())
	}
	a, err = s.byID(id)
	return a, func() {}, err
}

// agent returns the run's agent, at the revision to which the run is pinned. The agent must not be
// used after release is called. If the agent no longer exists, the run ends with the error, or as
// canceled if canceled is true. If its definition could not be read, the drive fails and the run is
// tried again.
func (s *agents) agent(ctx context.Context, canceled bool) (a agent.Agent, release func(), err error) {
	id := s.rec.accepted.GetAgent()
	a, release, err = s.find(ctx, id)
	var gone *agent.Error
	switch {
	case err == nil:
		return a, release, nil
	case !errors.As(err, &gone):
		err = fmt.Errorf("agent %q of %s: %w", id, s.rec.claim.Root, err)
		s.rec.broken.CompareAndSwap(nil, &err)
	case canceled:
		err = agent.ErrCanceled // a canceled run ends as canceled, whatever the error says
	case gone.Reason == agent.ReasonAgentNotFound:
		err = agent.Errorf(agent.CodeInternal, agent.ReasonInterrupted,
			"the run cannot go on: agent %q is not served here any more", id).Because(err)
	}
	return nil, nil, err
}
