// Package metered measures the operations of a store.
package metered

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Store measures those operations of another store that requests and runs wait for.
type Store struct {
	store.Store
	metrics *metrics.Store
}

// New returns s with measurements. It returns s itself if m is nil.
func New(s store.Store, m *metrics.Store) store.Store {
	if m == nil {
		return s
	}
	return &Store{Store: s, metrics: m}
}

// Create implements a2a.Store.
func (s *Store) Create(ctx context.Context, n a2a.New) (root string, existed bool, err error) {
	defer s.metrics.Time(ctx, "create")()
	return s.Store.Create(ctx, n)
}

// Put implements a2a.Store.
func (s *Store) Put(ctx context.Context, k a2a.Key, in *teamv1.Inbound, digest []byte, p *a2a.Push) (n int64, existed bool, err error) {
	defer s.metrics.Time(ctx, "put")()
	return s.Store.Put(ctx, k, in, digest, p)
}

// Task implements a2a.Store.
func (s *Store) Task(ctx context.Context, k a2a.Key) (t *a2av1.Task, seq int64, err error) {
	defer s.metrics.Time(ctx, "task")()
	return s.Store.Task(ctx, k)
}

// Standing implements a2a.Store.
func (s *Store) Standing(ctx context.Context, k a2a.Key) (a2a.Standing, error) {
	defer s.metrics.Time(ctx, "standing")()
	return s.Store.Standing(ctx, k)
}

// Events implements a2a.Store.
func (s *Store) Events(ctx context.Context, k a2a.Key, after int64, limit int) ([]a2a.Record, error) {
	defer s.metrics.Time(ctx, "events")()
	return s.Store.Events(ctx, k, after, limit)
}

// List implements a2a.Store.
func (s *Store) List(ctx context.Context, owner string, f a2a.Filter) (a2a.Page, error) {
	defer s.metrics.Time(ctx, "list")()
	return s.Store.List(ctx, owner, f)
}

// Claim implements engine.Leases.
func (s *Store) Claim(ctx context.Context, replica string, room *engine.Room) ([]a2a.Claim, time.Time, error) {
	defer s.metrics.Time(ctx, "claim")()
	return s.Store.Claim(ctx, replica, room)
}

// ClaimRun implements engine.Runs.
func (s *Store) ClaimRun(ctx context.Context, replica, root string, room *engine.Room) (a2a.Claim, engine.Next, error) {
	defer s.metrics.Time(ctx, "claim")()
	return s.Store.ClaimRun(ctx, replica, root, room)
}

// Park implements engine.Leases.
func (s *Store) Park(ctx context.Context, c a2a.Claim, p a2a.Park) (engine.Next, error) {
	defer s.metrics.Time(ctx, "park")()
	return s.Store.Park(ctx, c, p)
}
