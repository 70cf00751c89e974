package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// claimPushes returns the statement that claims the configurations that have been due longest.
func (s *Store) claimPushes() string {
	return `WITH c AS MATERIALIZED (SELECT id, scope, config FROM push_config WHERE due <= $1 ORDER BY due LIMIT $2` + s.db.skip() + `)
UPDATE push_config SET due = $3, held = 1, epoch = epoch + 1 WHERE (id, scope, config) IN (SELECT id, scope, config FROM c) RETURNING` + pushColumns + `, epoch`
}

// nextPush reads when the next configuration is due.
const nextPush = `SELECT min(due) FROM push_config WHERE due IS NOT NULL`

// ClaimPushes claims at most limit due configurations for the duration lease. With several
// replicas, next is at most pollEvery away.
func (s *Store) ClaimPushes(ctx context.Context, limit int, lease time.Duration) (claims []a2a.PushClaim, next time.Time, err error) {
	if err := s.Err(); err != nil {
		return nil, time.Time{}, err
	}
	var due sql.NullInt64
	if err := s.db.reader().scan(ctx, []any{&due}, nextPush); err != nil {
		return nil, time.Time{}, err
	}
	if now := s.now(); due.Valid && due.Int64 <= now {
		until := now + lease.Milliseconds()
		err := s.db.do(ctx, func(ctx context.Context, q querier) error {
			return each(ctx, q, func() { claims = nil }, func(r *sql.Rows) error {
				c := a2a.PushClaim{Until: time.UnixMilli(until)}
				p, err := s.pushRow(r, &c.Epoch)
				if c.Push = p; s.leftOut(p, err) {
					return nil
				}
				claims = append(claims, c)
				return err
			}, s.claimPushes(), now, int64(limit), until)
		})
		if err != nil {
			return nil, time.Time{}, s.unrecorded(err)
		}
		if err := s.db.reader().scan(ctx, []any{&due}, nextPush); err != nil {
			s.cfg.Log.Warn("the next due time cannot be read", zap.Error(err))
		}
	}
	return claims, s.next(due, len(claims)), nil
}

// HoldsPush reports whether a claim is still valid.
func (s *Store) HoldsPush(ctx context.Context, c a2a.PushClaim) (bool, error) {
	root, scope := agent.SplitTask(c.Task.ID)
	var n int
	err := s.db.reader().scan(ctx, []any{&n}, `SELECT count(*) FROM push_config WHERE id = $1 AND scope = $2 AND config = $3 AND epoch = $4`,
		root, scope, c.Config.GetId(), c.Epoch)
	return n == 1, err
}

// SettlePush records the result of one delivery step of a claim. The error is a2a.ErrPushLost if
// the claim is no longer valid.
func (s *Store) SettlePush(ctx context.Context, c a2a.PushClaim, p a2a.PushStep) error {
	var more bool
	err := s.db.do(ctx, func(ctx context.Context, q querier) (err error) {
		more, err = s.settlePush(ctx, q, c, p)
		return err
	})
	if more {
		s.wakePush()
	}
	return s.unrecorded(err)
}

// settlePush writes a step. more reports whether the configuration is due at once although the step
// made it idle, because new events were recorded.
func (s *Store) settlePush(ctx context.Context, q querier, c a2a.PushClaim, p a2a.PushStep) (more bool, err error) {
	root, scope := agent.SplitTask(c.Task.ID)
	due := sql.NullInt64{Int64: p.At.UnixMilli(), Valid: true}
	if p.Then == a2a.PushIdle { // a concurrent batch waits for the lock and then wakes it
		var seq int64
		if err := q.scan(ctx, []any{&seq}, `SELECT seq FROM run WHERE id = $1`+s.db.lock(), root); err != nil {
			return false, refuseNone(err)
		}
		more = seq > p.Seen && !p.Ended
		due = sql.NullInt64{Int64: s.now(), Valid: more}
	}
	var since int64
	if !p.Since.IsZero() {
		since = p.Since.UnixMilli()
	}
	n, err := q.exec(ctx, `UPDATE push_config SET seen = $5, part = $6, tries = $7, since = $8, failing = $9, ended = $10, error = $11, due = $12, held = $13
WHERE id = $1 AND scope = $2 AND config = $3 AND epoch = $4`, root, scope, c.Config.GetId(), c.Epoch,
		p.Seen, int64(p.Part), int64(p.Tries), since, flag(p.Failing), flag(p.Ended), p.Error, due, flag(p.Then == a2a.PushHold))
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, refusal{fmt.Errorf("push configuration %s of %s: %w", c.Config.GetId(), c.Task.ID, a2a.ErrPushLost)}
	}
	if d := p.Dead; d != nil {
		_, err = q.exec(ctx, `INSERT INTO push_dead (id, scope, config, seq, part, tries, error, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING`, root, scope, c.Config.GetId(), d.Seq, int64(d.Part), int64(d.Tries), d.Error, d.At.UnixMilli())
	}
	return more, err
}
