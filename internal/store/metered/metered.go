// Package metered measures the operations of a store.
package metered

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
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

// Create implements runs.Store.
func (s *Store) Create(ctx context.Context, n runs.New) (root string, existed bool, err error) {
	defer s.metrics.Time(ctx, "create")()
	return s.Store.Create(ctx, n)
}

// Put implements runs.Store.
func (s *Store) Put(ctx context.Context, k runs.Key, in *teamv1.Inbound, digest []byte, p *runs.Push) (n int64, existed bool, err error) {
	defer s.metrics.Time(ctx, "put")()
	return s.Store.Put(ctx, k, in, digest, p)
}

// Task implements runs.Store.
func (s *Store) Task(ctx context.Context, k runs.Key) (t *a2av1.Task, seq int64, err error) {
	defer s.metrics.Time(ctx, "task")()
	return s.Store.Task(ctx, k)
}

// Standing implements runs.Store.
func (s *Store) Standing(ctx context.Context, k runs.Key) (runs.Standing, error) {
	defer s.metrics.Time(ctx, "standing")()
	return s.Store.Standing(ctx, k)
}

// Events implements runs.Store.
func (s *Store) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	defer s.metrics.Time(ctx, "events")()
	return s.Store.Events(ctx, k, after, limit)
}

// List implements runs.Store.
func (s *Store) List(ctx context.Context, owner string, f runs.Filter) (runs.Page, error) {
	defer s.metrics.Time(ctx, "list")()
	return s.Store.List(ctx, owner, f)
}

// Claim implements engine.Leases.
func (s *Store) Claim(ctx context.Context, replica string, room *engine.Room) ([]runs.Claim, time.Time, error) {
	defer s.metrics.Time(ctx, "claim")()
	return s.Store.Claim(ctx, replica, room)
}

// ClaimRun implements engine.Runs.
func (s *Store) ClaimRun(ctx context.Context, replica, root string, room *engine.Room) (runs.Claim, engine.Next, error) {
	defer s.metrics.Time(ctx, "claim")()
	return s.Store.ClaimRun(ctx, replica, root, room)
}

// Park implements engine.Leases.
func (s *Store) Park(ctx context.Context, c runs.Claim, p runs.Park) (engine.Next, error) {
	defer s.metrics.Time(ctx, "park")()
	return s.Store.Park(ctx, c, p)
}
