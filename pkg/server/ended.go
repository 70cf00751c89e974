package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
)

const (
	// endEvery is how often rights are compared with tasks.
	endEvery = 5 * time.Second
	// idleAfter is how long after its rights have ended an owner may still begin tasks: replicas learn
	// of it within seconds.
	idleAfter = time.Minute
	// endedBy is who gives the halts of an ender. It has no slash, so it is no owner.
	endedBy = "team-server"
)

// ender halts the tasks of owners whose rights have ended, and ends these halts when the owners have
// rights again or no unfinished tasks. A nil *ender does nothing.
type ender struct {
	auth     *auth.Server
	settings *settings.Live
	store    Store
	log      *zap.Logger
	every    time.Duration
	owners   map[string]*endedOwner // whose rights have ended, or whose tasks the server halts; only run uses it
}

// endedOwner is what is known of an owner.
type endedOwner struct {
	// ended is since when its rights have ended, and held since when it has rights again, as far as
	// this replica knows; at least one of them is zero.
	ended, held time.Time
	// Ended says how they have ended.
	auth.Ended
	// halted says that its tasks were halted since its rights have ended. If they are not any more, a
	// person or another replica has decided so.
	halted bool
	// idle says that its tasks had ended when it could begin no others any more.
	idle bool
}

// newEnder returns nil if every caller is accepted.
func newEnder(c *Config, live *settings.Live, by *auth.Server) *ender {
	if by == nil {
		return nil
	}
	return &ender{auth: by, settings: live, store: c.Store, log: c.Log.Named("auth"), every: endEvery, owners: map[string]*endedOwner{}}
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

// compare halts and resumes owners. Replicas do the same at the same time; the first one that changes a
// halt decides.
func (e *ender) compare(ctx context.Context) error {
	rights := e.settings.Load().GetAuth().GetEnded()
	if rights == teamv1.EndedRights_CONTINUE { // halts in force stay so
		clear(e.owners)
		return nil
	}
	ended, fresh, err := e.auth.Ended(ctx)
	if err != nil {
		return err
	}
	if !fresh { // other replicas may know better
		for _, o := range e.owners {
			o.ended, o.held = time.Time{}, time.Time{}
		}
		return nil
	}
	present, err := e.store.Halts(ctx)
	if err != nil {
		return err
	}
	halts := map[string]*teamv1.Halt{}
	for _, h := range present.Halts {
		if h.GetKind() == teamv1.HaltKind_HALT_KIND_OWNER {
			halts[h.GetName()] = h
		}
	}
	if err := e.note(ctx, ended, halts); err != nil {
		return err
	}
	var failed []error
	for _, owner := range slices.Sorted(maps.Keys(e.owners)) {
		failed = append(failed, e.decide(ctx, owner, halts[owner], rights != teamv1.EndedRights_CANCEL))
	}
	return errors.Join(failed...)
}

// note updates what is known of owners.
func (e *ender) note(ctx context.Context, ended map[string]auth.Ended, halts map[string]*teamv1.Halt) error {
	for owner := range ended {
		if e.owners[owner] == nil {
			e.owners[owner] = &endedOwner{}
		}
	}
	for owner, h := range halts {
		if h.GetBy() == endedBy && e.owners[owner] == nil {
			e.owners[owner] = &endedOwner{}
		}
	}
	now := e.store.Now()
	for owner, o := range e.owners {
		how, is := ended[owner]
		held := false
		if !is {
			var err error
			if held, err = e.auth.Holds(ctx, owner); err != nil {
				return err
			}
		}
		switch {
		case is && o.ended.IsZero():
			o.ended = now
		case !is:
			*o = endedOwner{held: o.held}
		}
		o.Ended = how
		switch {
		case !held:
			o.held = time.Time{}
		case o.held.IsZero():
			o.held = now
		}
		if !is && halts[owner].GetBy() != endedBy {
			delete(e.owners, owner)
		}
	}
	return nil
}

// decide halts or resumes an owner. h is the halt of the owner that is in force, nil if it is not halted. pause says
// that tasks are paused, rather than canceled.
//
// Replicas may have different configurations while they are replaced one after the other, and so disagree
// about rights. That is why a halt ends only if the owner has rights for longer than a lease, begins
// again only after the owner had rights in between, and cancels only if all replicas agree, a
// lease after the rights have ended; tasks are paused until then.
func (e *ender) decide(ctx context.Context, owner string, h *teamv1.Halt, pause bool) error {
	o, lease := e.owners[owner], e.store.Lease()
	lasts := func(since time.Time, least time.Duration) bool {
		return !since.IsZero() && e.store.Now().Sub(since) >= least
	}
	switch {
	case h != nil && h.GetBy() != endedBy:
		return nil // a person decides about it
	case h != nil && lasts(o.held, lease):
		return e.resume(ctx, h)
	case h == nil && (o.ended.IsZero() || o.halted || o.idle):
		return nil
	}
	busy, err := o.Busy, error(nil)
	if !busy {
		busy, err = e.busy(ctx, owner)
	}
	switch {
	case err != nil:
		return err
	case !busy && h != nil:
		o.halted = false
		return e.resume(ctx, h)
	case !busy:
		o.idle = lasts(o.ended, lease+idleAfter)
		return nil
	case o.ended.IsZero():
		return nil
	}
	o.halted = h != nil
	pause = pause || !o.Agreed || !lasts(o.ended, lease)
	if h != nil && (pause || !h.GetPause()) {
		return nil
	}
	return e.halt(ctx, owner, h, pause)
}

// errChanged is the error for a halt that was changed since it was read.
var errChanged = errors.New("the halt was changed")

// unchanged allows a change of halts if h is still in force; with nil, if the owner is not halted.
func unchanged(h *teamv1.Halt) halt.May {
	return func(present *teamv1.Halt) error {
		if present.GetVersion() != h.GetVersion() {
			return errChanged
		}
		return nil
	}
}

// halt halts the tasks of an owner, in place of h unless it is nil.
func (e *ender) halt(ctx context.Context, owner string, h *teamv1.Halt, pause bool) error {
	by := &teamv1.Halt{
		Kind: teamv1.HaltKind_HALT_KIND_OWNER, Name: owner, Pause: pause,
		Reason: "the rights of this owner have ended: it has no valid API key, token or certificate any more",
		By:     endedBy, At: timestamppb.New(e.store.Now()),
	}
	err := e.store.Halt(halt.Record(ctx, by), by, unchanged(h))
	if err == nil {
		e.owners[owner].halted = true
		e.log.Warn("halted the tasks of an owner whose rights have ended", zap.String("owner", owner), zap.Bool("pause", pause))
	}
	return ignoreChanged(err)
}

// resume ends a halt.
func (e *ender) resume(ctx context.Context, h *teamv1.Halt) error {
	_, err := e.store.EndHalt(audit.Record(ctx, e.store.Now(), "resume", inforce.Describe(h), nil), h.GetKind(), h.GetName(), unchanged(h))
	if err == nil {
		e.log.Info("tasks of an owner are no longer halted", zap.String("owner", h.GetName()))
	}
	return ignoreChanged(err)
}

// ignoreChanged returns err unless it is errChanged: the halt is looked at again the next time.
func ignoreChanged(err error) error {
	if errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// busy reports whether an owner has unfinished tasks.
func (e *ender) busy(ctx context.Context, owner string) (bool, error) {
	runs, err := e.store.Runs(ctx, owner, runs.RunFilter{Limit: 1})
	return len(runs) > 0, err
}
