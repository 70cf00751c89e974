package push

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/agent"
)

// Statements of deliveries.
const (
	countClaim = `SELECT count(*) FROM push_config WHERE id = $1 AND scope = $2 AND config = $3 AND epoch = $4`
	lockRunSeq = `SELECT seq FROM run WHERE id = $1`
	settle     = `UPDATE push_config SET seen = $5, part = $6, tries = $7, since = $8, failing = $9, ended = $10, error = $11, due = $12, held = $13
WHERE id = $1 AND scope = $2 AND config = $3 AND epoch = $4`
	insertDead = `INSERT INTO push_dead (id, scope, config, seq, part, tries, error, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING`
)

// claimPushes returns the statement that claims the configurations that have been due longest.
func (s *Pushes) claimPushes() string {
	return `WITH c AS MATERIALIZED (SELECT id, scope, config FROM push_config WHERE due <= $1 ORDER BY due LIMIT $2` + s.db.Skip + `)
UPDATE push_config SET due = $3, held = 1, epoch = epoch + 1 WHERE (id, scope, config) IN (SELECT id, scope, config FROM c) RETURNING` + pushColumns + `, epoch`
}

// nextPush reads when the next configuration is due.
const nextPush = `SELECT min(due) FROM push_config WHERE due IS NOT NULL`

// ClaimPushes claims at most limit due configurations for the duration lease. With several
// replicas, next is at most db.PollEvery away.
func (s *Pushes) ClaimPushes(ctx context.Context, limit int, lease time.Duration) (claims []runs.PushClaim, next time.Time, err error) {
	if err := s.db.Err(); err != nil {
		return nil, time.Time{}, err
	}
	due, err := db.Value[sql.NullInt64](ctx, s.db.Reader(), nextPush)
	if err != nil {
		return nil, time.Time{}, err
	}
	if now := s.db.Millis(); due.Valid && due.Int64 <= now {
		until := now + lease.Milliseconds()
		err := s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
			return db.Each(ctx, q, func() { claims = nil }, func(r *sql.Rows) error {
				c := runs.PushClaim{Until: time.UnixMilli(until)}
				p, err := s.pushRow(r, &c.Epoch)
				if c.Push = p; s.leftOut(p, err) {
					return nil
				}
				claims = append(claims, c)
				return err
			}, s.claimPushes(), now, int64(limit), until)
		})
		if err != nil {
			return nil, time.Time{}, err
		}
		if err := s.db.Reader().Scan(ctx, []any{&due}, nextPush); err != nil {
			s.db.Log.Warn("the next due time cannot be read", zap.Error(err))
		}
	}
	return claims, s.db.Next(due, len(claims)), nil
}

// HoldsPush reports whether a claim is still valid.
func (s *Pushes) HoldsPush(ctx context.Context, c runs.PushClaim) (bool, error) {
	root, scope := agent.SplitTask(c.Task.ID)
	n, err := db.Value[int](ctx, s.db.Reader(), countClaim,
		root, scope, c.Config.GetId(), c.Epoch)
	return n == 1, err
}

// SettlePush records the result of one delivery step of a claim. The error is runs.ErrPushLost if
// the claim is no longer valid.
func (s *Pushes) SettlePush(ctx context.Context, c runs.PushClaim, p runs.PushStep) error {
	var more bool
	err := s.db.Do(ctx, func(ctx context.Context, q db.Querier) (err error) {
		more, err = s.settlePush(ctx, q, c, p)
		return err
	})
	if more {
		s.Wake()
	}
	return err
}

// settlePush writes a step. more reports whether the configuration is due at once although the step
// made it idle, because new events were recorded.
func (s *Pushes) settlePush(ctx context.Context, q db.Querier, c runs.PushClaim, p runs.PushStep) (more bool, err error) {
	root, scope := agent.SplitTask(c.Task.ID)
	due := sql.NullInt64{Int64: p.At.UnixMilli(), Valid: true}
	if p.Then == runs.PushIdle { // a concurrent batch waits for the lock and then wakes it
		seq, err := db.Value[int64](ctx, q, lockRunSeq+s.db.Lock, root)
		if err != nil {
			return false, db.RefuseNone(err)
		}
		more = seq > p.Seen && !p.Ended
		due = sql.NullInt64{Int64: s.db.Millis(), Valid: more}
	}
	var since int64
	if !p.Since.IsZero() {
		since = p.Since.UnixMilli()
	}
	n, err := q.Exec(ctx, settle, root, scope, c.Config.GetId(), c.Epoch,
		p.Seen, int64(p.Part), int64(p.Tries), since, db.Flag(p.Failing), db.Flag(p.Ended), p.Error, due, db.Flag(p.Then == runs.PushHold))
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, db.Refuse(fmt.Errorf("push configuration %s of %s: %w", c.Config.GetId(), c.Task.ID, runs.ErrPushLost))
	}
	if d := p.Dead; d != nil {
		_, err = q.Exec(ctx, insertDead, root, scope, c.Config.GetId(), d.Seq, int64(d.Part), int64(d.Tries), d.Error, d.At.UnixMilli())
	}
	return more, err
}
