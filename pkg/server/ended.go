package server

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/pkg/a2a"
)

// EndedRights says what becomes of tasks whose owners may no longer call.
type EndedRights int

const (
	// ParkTasks pauses the tasks until their owner may call again. It is the default.
	ParkTasks EndedRights = iota
	// CancelTasks cancels the tasks.
	CancelTasks
	// ContinueTasks lets the tasks continue.
	ContinueTasks
)

const (
	// endEvery is how often rights are compared with tasks.
	endEvery = 5 * time.Second
	// endedBy is who gives the halts of an ender. It has no slash, so it is no owner.
	endedBy = "team-server"
)

// ender halts the tasks of owners whose rights have ended, and ends these halts when the owners have
// rights again or no unfinished tasks. A nil *ender does nothing.
type ender struct {
	auth  *auth.Server
	store Store
	pause bool
	log   *zap.Logger
	every time.Duration
}

// newEnder returns nil if tasks continue.
func newEnder(c *Config, by *auth.Server) *ender {
	if by == nil || c.EndedRights == ContinueTasks {
		return nil
	}
	return &ender{auth: by, store: c.Store, pause: c.EndedRights != CancelTasks, log: c.Log.Named("auth"), every: endEvery}
}

// run compares rights with tasks until ctx ends.
func (e *ender) run(ctx context.Context) {
	if e == nil {
		return
	}
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	for {
		if err := e.compare(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("tasks of callers whose rights have ended cannot be halted; trying again", zap.Error(err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// compare halts and resumes owners. Replicas do the same at the same time, which has no further effect.
func (e *ender) compare(ctx context.Context) error {
	ended := e.auth.Ended()
	now, err := e.store.Halts(ctx)
	if err != nil {
		return err
	}
	halted := map[string]bool{}
	for _, h := range now.Halts {
		if h.GetKind() != teamv1.HaltKind_HALT_KIND_OWNER {
			continue
		}
		halted[h.GetName()] = true
		if h.GetBy() != endedBy {
			continue // a person decides about it
		}
		if busy, err := e.busy(ctx, h.GetName()); err != nil || busy && slices.Contains(ended, h.GetName()) {
			continue
		}
		if _, err := e.store.EndHalt(ctx, h.GetKind(), h.GetName()); err != nil {
			return err
		}
		e.log.Info("tasks of an owner are no longer halted", zap.String("owner", h.GetName()))
	}
	for _, owner := range ended {
		if busy, err := e.busy(ctx, owner); err != nil || !busy || halted[owner] {
			if err != nil {
				return err
			}
			continue
		}
		h := &teamv1.Halt{
			Kind: teamv1.HaltKind_HALT_KIND_OWNER, Name: owner, Reason: "all API keys of this owner have expired or were revoked",
			Pause: e.pause, By: endedBy, At: timestamppb.New(e.store.Now()),
		}
		if err := e.store.Halt(ctx, h); err != nil {
			return err
		}
		e.log.Warn("halted the tasks of an owner whose rights have ended", zap.String("owner", owner), zap.Bool("pause", e.pause))
	}
	return nil
}

// busy reports whether an owner has unfinished tasks.
func (e *ender) busy(ctx context.Context, owner string) (bool, error) {
	runs, err := e.store.Runs(ctx, owner, a2a.RunFilter{Limit: 1})
	return len(runs) > 0, err
}
