package collab

import (
	"context"
	"errors"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Running returns the collaborations of a team that have not ended, of all callers.
func (s *Service) Running(ctx context.Context, team string) ([]runs.Key, error) {
	if s.c.Slots == nil {
		return nil, nil
	}
	keys, err := s.c.Slots.Collaborations(ctx, agent.KeyOf(s.c.Teams.AccountOf(team), team))
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	return keys, nil
}

// tries is the maximum number of times that Delete starts over because a collaboration was
// started in the meantime.
const tries = 10

// Delete calls remove, which deletes the team, once it has no running collaborations. If it
// has some and force is true, Delete stops them, those of other callers too. Otherwise, or if
// new ones are started again and again, the error is COLLABORATION_IN_PROGRESS. remove must
// return runs.ErrBusy if a collaboration was started in the meantime, by any replica.
func (s *Service) Delete(ctx context.Context, team string, force bool, remove func(context.Context) error) error {
	for n := 0; ; n++ {
		running, err := s.Running(ctx, team)
		if err == nil && len(running) == 0 {
			if err = remove(ctx); !errors.Is(err, runs.ErrBusy) {
				return err
			}
			running, err = s.Running(ctx, team) // the collaboration that was in the way may have ended
		}
		switch {
		case err != nil:
			return err
		case len(running) == 0 && n < tries:
			continue
		case !force || n == tries:
			return &agent.Error{
				Reason: agent.ReasonCollaborationInProgress, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: retryAfter,
				Message: runningText(team, len(running)) + "; wait until they have ended, or delete the team with force, which stops them",
			}
		}
		for _, k := range running {
			if err := s.stopAs(ctx, k); err != nil {
				return err
			}
		}
	}
}

// stopAs stops a collaboration on behalf of its owner and waits until it has ended.
func (s *Service) stopAs(ctx context.Context, k runs.Key) error {
	account, principal, _ := strings.Cut(k.Owner, "/")
	ctx = identity.WithCaller(ctx, identity.Caller{Account: account, Principal: principal})
	if _, err := s.h.Stop(ctx, k.ID, a2a.Stop{Force: true, SavePartial: true, Reason: "the team is deleted"}); err != nil {
		return err
	}
	return s.waitForEnd(ctx, k.ID)
}

// Describe adds the number of running collaborations and the status of the caller's last
// one to the status of a team.
func (s *Service) Describe(ctx context.Context, team string, to *teamv1.GetTeamStatusResponse) error {
	keys, err := s.Running(ctx, team)
	if err != nil {
		return err
	}
	to.CollaborationsRunning = int32(len(keys)) //nolint:gosec // 1,000 at most
	to.LastCollaboration, err = s.last(ctx, team)
	return err
}

// last returns the final status of the caller's last ended collaboration of a team.
func (s *Service) last(ctx context.Context, team string) (string, error) {
	who, err := identity.Authenticated(ctx)
	o := s.h.Overview()
	if err != nil || o == nil {
		return "", err
	}
	marks, err := o.Runs(ctx, who.Owner(), runs.RunFilter{Agent: team, Ended: true, Limit: maxReads})
	if err != nil {
		return "", runs.StoreError("", err)
	}
	for _, m := range marks {
		if !taskstate.Final(m.State) {
			continue
		}
		r, err := s.fold(ctx, runs.Key{Owner: who.Owner(), ID: m.Root})
		switch {
		case unreadable(err):
		case err != nil:
			return "", err
		case r.Accepted.GetCollaboration() != nil:
			return r.finalStatus(), nil
		}
	}
	return "", nil
}
