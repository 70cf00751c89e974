package collab

import (
	"context"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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

// Release returns nil where a team may be deleted: it has no collaborations, or force
// says that they are to be stopped, which is done. COLLABORATION_IN_PROGRESS.
func (s *Service) Release(ctx context.Context, team string, force bool) error {
	keys, err := s.Running(ctx, team)
	if err != nil || len(keys) == 0 {
		return err
	}
	if !force {
		return &agent.Error{
			Reason: agent.ReasonCollaborationInProgress, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: againAfter,
			Message: underWay(team, len(keys)) + "; wait for their end, stop them, or delete it with force",
		}
	}
	for _, k := range keys {
		account, principal, _ := strings.Cut(k.Owner, "/")
		as := a2a.WithCaller(ctx, a2a.Caller{Account: account, Principal: principal})
		_, err := s.h.Stop(as, k.ID, a2a.Stop{Force: true, SavePartial: true, Reason: "the team is deleted"})
		if err == nil {
			err = s.ended(as, k.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
		if !a2a.Ended(m.State) {
			continue
		}
		r, err := s.fold(ctx, a2a.Key{Owner: who.Owner(), ID: m.Root})
		switch {
		case lost(err):
		case err != nil:
			return "", err
		case r.accepted.GetCollaboration() != nil:
			return r.finalStatus(), nil
		}
	}
	return "", nil
}
