package faulty

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// The operations of push configurations.
const (
	PutPush    Op = "PutPush"
	GetPush    Op = "Push"
	DeletePush Op = "DeletePush"
	ClaimPush  Op = "ClaimPushes"
	HoldsPush  Op = "HoldsPush"
	SettlePush Op = "SettlePush"
)

// PutPush implements runs.Pushes.
func (s *Store) PutPush(ctx context.Context, p runs.Push) error {
	return s.do(ctx, PutPush, func() error { return s.Store.PutPush(ctx, p) })
}

// Push implements runs.Pushes.
func (s *Store) Push(ctx context.Context, k runs.Key, id string) (runs.Push, error) {
	if after, err := s.meet(ctx, GetPush); err != nil || after != nil {
		return runs.Push{}, first(err, after)
	}
	return s.Store.Push(ctx, k, id)
}

// ListPushes implements runs.Pushes.
func (s *Store) ListPushes(ctx context.Context, k runs.Key, after string, limit int) ([]runs.Push, error) {
	if then, err := s.meet(ctx, GetPush); err != nil || then != nil {
		return nil, first(err, then)
	}
	return s.Store.ListPushes(ctx, k, after, limit)
}

// DeletePush implements runs.Pushes.
func (s *Store) DeletePush(ctx context.Context, k runs.Key, id string) error {
	return s.do(ctx, DeletePush, func() error { return s.Store.DeletePush(ctx, k, id) })
}

// DeadPushes implements runs.Pushes.
func (s *Store) DeadPushes(ctx context.Context, k runs.Key, limit int) ([]runs.DeadPush, int, error) {
	if after, err := s.meet(ctx, GetPush); err != nil || after != nil {
		return nil, 0, first(err, after)
	}
	return s.Store.DeadPushes(ctx, k, limit)
}

// ClaimPushes implements runs.Pushes.
func (s *Store) ClaimPushes(ctx context.Context, limit int, lease time.Duration) ([]runs.PushClaim, time.Time, error) {
	after, err := s.meet(ctx, ClaimPush)
	if err != nil {
		return nil, time.Time{}, err
	}
	claims, next, err := s.Store.ClaimPushes(ctx, limit, lease)
	if err == nil && after != nil {
		return nil, time.Time{}, after
	}
	return claims, next, err
}

// HoldsPush implements runs.Pushes.
func (s *Store) HoldsPush(ctx context.Context, c runs.PushClaim) (bool, error) {
	if after, err := s.meet(ctx, HoldsPush); err != nil || after != nil {
		return false, first(err, after)
	}
	return s.Store.HoldsPush(ctx, c)
}

// SettlePush implements runs.Pushes.
func (s *Store) SettlePush(ctx context.Context, c runs.PushClaim, p runs.PushStep) error {
	return s.do(ctx, SettlePush, func() error { return s.Store.SettlePush(ctx, c, p) })
}
