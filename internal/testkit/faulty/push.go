package faulty

import (
	"context"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
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

// PutPush implements a2a.Pushes.
func (s *Store) PutPush(ctx context.Context, p a2a.Push) error {
	return s.do(ctx, PutPush, func() error { return s.Store.PutPush(ctx, p) })
}

// Push implements a2a.Pushes.
func (s *Store) Push(ctx context.Context, k a2a.Key, id string) (a2a.Push, error) {
	if after, err := s.meet(ctx, GetPush); err != nil || after != nil {
		return a2a.Push{}, first(err, after)
	}
	return s.Store.Push(ctx, k, id)
}

// ListPushes implements a2a.Pushes.
func (s *Store) ListPushes(ctx context.Context, k a2a.Key, after string, limit int) ([]a2a.Push, error) {
	if then, err := s.meet(ctx, GetPush); err != nil || then != nil {
		return nil, first(err, then)
	}
	return s.Store.ListPushes(ctx, k, after, limit)
}

// DeletePush implements a2a.Pushes.
func (s *Store) DeletePush(ctx context.Context, k a2a.Key, id string) error {
	return s.do(ctx, DeletePush, func() error { return s.Store.DeletePush(ctx, k, id) })
}

// DeadPushes implements a2a.Pushes.
func (s *Store) DeadPushes(ctx context.Context, k a2a.Key, limit int) ([]a2a.DeadPush, int, error) {
	if after, err := s.meet(ctx, GetPush); err != nil || after != nil {
		return nil, 0, first(err, after)
	}
	return s.Store.DeadPushes(ctx, k, limit)
}

// ClaimPushes implements a2a.Pushes.
func (s *Store) ClaimPushes(ctx context.Context, limit int, lease time.Duration) ([]a2a.PushClaim, time.Time, error) {
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

// HoldsPush implements a2a.Pushes.
func (s *Store) HoldsPush(ctx context.Context, c a2a.PushClaim) (bool, error) {
	if after, err := s.meet(ctx, HoldsPush); err != nil || after != nil {
		return false, first(err, after)
	}
	return s.Store.HoldsPush(ctx, c)
}

// SettlePush implements a2a.Pushes.
func (s *Store) SettlePush(ctx context.Context, c a2a.PushClaim, p a2a.PushStep) error {
	return s.do(ctx, SettlePush, func() error { return s.Store.SettlePush(ctx, c, p) })
}
