// Package faulty wraps a store and injects faults, for tests. An operation can fail, succeed but be
// reported as failed, or hang.
package faulty

import (
	"context"
	"fmt"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
)

// Store wraps a store and injects the faults of its plan. Operations without an Op, such as those
// of catalogs and boards, have no faults. It is safe for concurrent use.
type Store struct {
	store.Store

	mu     sync.Mutex
	plan   Plan          // guarded by mu
	calls  map[Op]int    // since Break; guarded by mu
	faults int           // since Break; guarded by mu
	fired  chan struct{} // closed with the first fault; guarded by mu
	healed chan struct{} // closed by Heal; guarded by mu
}

// New returns a store without a plan, which injects no faults.
func New(inner store.Store) *Store {
	s := &Store{Store: inner}
	s.Break(nil)
	return s
}

// Break sets the plan and resets all counts. A nil plan injects no faults.
func (s *Store) Break(plan Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan, s.calls, s.faults = plan, map[Op]int{}, 0
	s.fired, s.healed = make(chan struct{}), make(chan struct{})
}

// Heal removes the plan. Operations that hang fail at once.
func (s *Store) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan != nil {
		s.plan = nil
		close(s.healed)
	}
}

// Faults returns the number of faults since Break.
func (s *Store) Faults() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Calls returns the number of calls of an operation since Break.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Fired returns a channel that is closed at the first fault since Break.
func (s *Store) Fired() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

// meet counts a call of an operation and injects its fault. If err is not nil, the operation must
// not run. If after is not nil, it must be reported once the operation has run.
func (s *Store) meet(ctx context.Context, op Op) (after, err error) {
	mode, healed := s.draw(op)
	broken := fmt.Errorf("%s is broken on purpose: %w", op, runs.ErrStorage)
	switch mode {
	case Fail:
		return nil, broken
	case Lie:
		return broken, nil
	case Hang:
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s hangs on purpose: %w", op, context.Cause(ctx))
		case <-healed:
			return nil, broken
		}
	case None:
	}
	return nil, nil
}

// draw counts a call and returns what the plan decides for it.
func (s *Store) draw(op Op) (Mode, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	if s.plan == nil {
		return None, s.healed
	}
	mode := s.plan(op)
	if mode != None {
		if s.faults++; s.faults == 1 {
			close(s.fired)
		}
	}
	return mode, s.healed
}

// Create implements runs.Store.
func (s *Store) Create(ctx context.Context, n runs.New) (string, bool, error) {
	after, err := s.meet(ctx, Create)
	if err != nil {
		return "", false, err
	}
	root, existed, err := s.Store.Create(ctx, n)
	if err == nil && after != nil {
		return "", false, after
	}
	return root, existed, err
}

// Sent implements runs.Store.
func (s *Store) Sent(ctx context.Context, owner, agent, messageID string) (string, error) {
	if after, err := s.meet(ctx, Sent); err != nil || after != nil {
		return "", first(err, after)
	}
	return s.Store.Sent(ctx, owner, agent, messageID)
}

// Put implements runs.Store.
func (s *Store) Put(ctx context.Context, k runs.Key, in *teamv1.Inbound, digest []byte, p *runs.Push) (int64, bool, error) {
	after, err := s.meet(ctx, Put)
	if err != nil {
		return 0, false, err
	}
	n, existed, err := s.Store.Put(ctx, k, in, digest, p)
	if err == nil && after != nil {
		return 0, false, after
	}
	return n, existed, err
}

// Task implements runs.Store.
func (s *Store) Task(ctx context.Context, k runs.Key) (*a2av1.Task, int64, error) {
	if after, err := s.meet(ctx, GetTask); err != nil || after != nil {
		return nil, 0, first(err, after)
	}
	return s.Store.Task(ctx, k)
}

// Standing implements runs.Store.
func (s *Store) Standing(ctx context.Context, k runs.Key) (runs.Standing, error) {
	if after, err := s.meet(ctx, GetTask); err != nil || after != nil {
		return runs.Standing{}, first(err, after)
	}
	return s.Store.Standing(ctx, k)
}

// Events implements runs.Store.
func (s *Store) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	if then, err := s.meet(ctx, Events); err != nil || then != nil {
		return nil, first(err, then)
	}
	return s.Store.Events(ctx, k, after, limit)
}

// List implements runs.Store.
func (s *Store) List(ctx context.Context, owner string, f runs.Filter) (runs.Page, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return runs.Page{}, first(err, after)
	}
	return s.Store.List(ctx, owner, f)
}

// Beat implements engine.Leases.
func (s *Store) Beat(ctx context.Context, replica string) error {
	return s.do(ctx, Beat, func() error { return s.Store.Beat(ctx, replica) })
}

// Claim implements engine.Leases. The replica does not learn of runs that are claimed by a call
// which is reported as failed.
func (s *Store) Claim(ctx context.Context, replica string, room *engine.Room) ([]runs.Claim, time.Time, error) {
	after, err := s.meet(ctx, Claim)
	if err != nil {
		return nil, time.Time{}, err
	}
	claims, next, err := s.Store.Claim(ctx, replica, room)
	if err == nil && after != nil {
		return nil, time.Time{}, after
	}
	for i := range claims {
		claims[i].Journal = &journal{Journal: claims[i].Journal, store: s}
	}
	return claims, next, err
}

// Park implements engine.Leases.
func (s *Store) Park(ctx context.Context, c runs.Claim, p runs.Park) (next engine.Next, err error) {
	err = s.do(ctx, Park, func() (err error) {
		next, err = s.Store.Park(ctx, inner(c), p)
		return err
	})
	return next, err
}

// Release implements engine.Leases.
func (s *Store) Release(ctx context.Context, c runs.Claim, at time.Time) (next engine.Next, err error) {
	err = s.do(ctx, Release, func() (err error) {
		next, err = s.Store.Release(ctx, inner(c), at)
		return err
	})
	return next, err
}

// Suspend implements engine.Leases.
func (s *Store) Suspend(ctx context.Context, c runs.Claim, reason string) error {
	return s.do(ctx, Release, func() error { return s.Store.Suspend(ctx, inner(c), reason) })
}

// do calls run as an operation.
func (s *Store) do(ctx context.Context, op Op, run func() error) error {
	after, err := s.meet(ctx, op)
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	return after
}

// first returns the first error that is not nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
