package collab

import (
	"context"
	"errors"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Running are the collaborations of a team that have not ended, of all callers.
func (s *Service) Running(ctx context.Context, team string) ([]a2a.Key, error) {
	if s.c.Slots == nil {
		return nil, nil
	}
	keys, err := s.c.Slots.Collaborations(ctx, team)
	if err != nil {
		return nil, a2a.StoreError("", err)
	}
	return keys, nil
}

// tries is how often others may start a collaboration while those of a team are stopped.
const tries = 10

// Delete takes a team away by remove, once it has no collaborations; force stops those
// that it has. The error of remove is a2a.ErrBusy where one was started meanwhile, by
// any replica. COLLABORATION_IN_PROGRESS.
func (s *Service) Delete(ctx context.Context, team string, force bool, remove func(context.Context) error) error {
	for n := 0; ; n++ {
		running, err := s.Running(ctx, team)
		if err == nil && len(running) == 0 {
			if err = remove(ctx); !errors.Is(err, a2a.ErrBusy) {
				return err
			}
			running, err = s.Running(ctx, team) // it may have ended already
		}
		switch {
		case err != nil:
			return err
		case len(running) == 0 && n < tries:
			continue
		case !force || n == tries:
			return &agent.Error{
				Reason: agent.ReasonCollaborationInProgress, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: againAfter,
				Message: underWay(team, len(running)) + "; wait until it has none, or delete it with force, which stops them",
			}
		}
		for _, k := range running {
			if err := s.cut(ctx, k); err != nil {
				return err
			}
		}
	}
}

// cut stops a collaboration of anybody.
func (s *Service) cut(ctx context.Context, k a2a.Key) error {
	account, principal, _ := strings.Cut(k.Owner, "/")
	ctx = a2a.WithCaller(ctx, a2a.Caller{Account: account, Principal: principal})
	if _, err := s.h.Stop(ctx, k.ID, a2a.Stop{Force: true, SavePartial: true, Reason: "the team is deleted"}); err != nil {
		return err
	}
	return s.ended(ctx, k.ID)
}

// Describe adds to the status of a team what its collaborations do.
func (s *Service) Describe(ctx context.Context, team string, to *teamv1.GetTeamStatusResponse) error {
	keys, err := s.Running(ctx, team)
	if err != nil {
		return err
	}
	to.CollaborationsRunning = int32(len(keys)) //nolint:gosec // 1,000 at most
	to.LastCollaboration, err = s.last(ctx, team)
	return err
}

// last is how the caller's last collaboration of a team ended.
func (s *Service) last(ctx context.Context, team string) (string, error) {
	who, err := s.h.Caller(ctx)
	o := s.h.Overview()
	if err != nil || o == nil {
		return "", err
	}
	marks, err := o.Runs(ctx, who.Owner(), a2a.RunFilter{Agent: team, Ended: true, Limit: maxLooks})
	if err != nil {
		return "", a2a.StoreError("", err)
	}
	for _, m := range marks {
		if !taskstate.Final(m.State) {
			continue
		}
		r, err := s.fold(ctx, a2a.Key{Owner: who.Owner(), ID: m.Root})
		switch {
		case lost(err):
		case err != nil:
			return "", err
		case r.Accepted.GetCollaboration() != nil:
			return r.finalStatus(), nil
		}
	}
	return "", nil
}
