package run

import (
	"context"
	"database/sql"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Counts counts what waits and what is held. It implements account.Counts and engine.Backlogs.
type Counts struct{ DB *db.DB }

// Statements of counts.
const (
	openBacklog = `SELECT state, count(*), min(status_at) FROM task
JOIN (SELECT id FROM run WHERE ended IS NULL LIMIT $1) AS open ON open.id = task.id GROUP BY state`
	countReplicas = `SELECT count(*) FROM replica WHERE expires > $1`
	bytesOfOwners = `SELECT owner, CAST(sum(bytes) AS BIGINT) FROM run GROUP BY owner`
)

// Backlog counts what waits. Each query reads at most engine.MaxBacklog entries of an index for rows that wait;
// tasks that have ended cost nothing.
func (s *Counts) Backlog(ctx context.Context) (engine.Backlog, error) {
	b := engine.Backlog{Open: map[a2av1.TaskState]engine.Waiting{}, Due: map[string]engine.Waiting{}, Claimed: map[string]int64{}}
	r := s.DB.Reader()
	err := db.Each(ctx, r, func() { clear(b.Open) }, func(rows *sql.Rows) error {
		var state int32
		var n, at int64
		err := rows.Scan(&state, &n, &at)
		b.Open[a2av1.TaskState(state)] = engine.Waiting{Count: n, Oldest: time.Unix(0, at)}
		return err
	}, openBacklog, int64(engine.MaxBacklog))
	if err != nil {
		return b, err
	}
	err = db.Each(ctx, r, func() { clear(b.Due) }, func(rows *sql.Rows) error {
		var owner string
		var n, since int64
		err := rows.Scan(&owner, &n, &since)
		b.Due[owner] = engine.Waiting{Count: n, Oldest: time.UnixMilli(since)}
		return err
	}, dueBacklog, s.DB.Millis(), int64(engine.MaxBacklog))
	if err != nil {
		return b, err
	}
	if b.Push, err = s.waiting(ctx, pushBacklog, s.DB.Millis(), int64(engine.MaxBacklog)); err != nil {
		return b, err
	}
	return b, db.Each(ctx, r, func() { clear(b.Claimed) }, func(rows *sql.Rows) error {
		var owner string
		var n int64
		err := rows.Scan(&owner, &n)
		b.Claimed[owner] = n
		return err
	}, runningOf)
}

// dueBacklog counts the runs that are due, by owner.
const dueBacklog = `SELECT owner, count(*), min(due) FROM (SELECT owner, due FROM run WHERE due <= $1 ORDER BY due LIMIT $2) AS d GROUP BY owner`

// pushBacklog selects since when notifications wait. Those that are tried again are not due while they back off.
const pushBacklog = `SELECT CASE WHEN tries > 0 THEN since ELSE due END AS since FROM push_config
WHERE due IS NOT NULL AND (due <= $1 OR tries > 0) ORDER BY due LIMIT $2`

// waiting counts what a query selects as since.
func (s *Counts) waiting(ctx context.Context, query string, args ...any) (engine.Waiting, error) {
	var w engine.Waiting
	var oldest sql.NullInt64
	err := s.DB.Reader().Scan(ctx, []any{&w.Count, &oldest}, `SELECT count(*), min(since) FROM (`+query+`) AS d`, args...)
	if oldest.Valid {
		w.Oldest = time.UnixMilli(oldest.Int64)
	}
	return w, err
}

// Queued implements account.Counts.
func (s *Counts) Queued(ctx context.Context, name string, most int) (int, error) {
	now, of := s.DB.Millis(), []any{name}
	if name == identity.AccountOf(name) {
		all, err := owners(ctx, s.DB.Reader(), dueOwners, now)
		if err != nil {
			return 0, err
		}
		of = all[name]
	}
	total := 0
	for who := range slices.Chunk(of, mostOwners) {
		who = padded(who)
		n, err := db.Value[int](ctx, s.DB.Reader(), `SELECT count(*) FROM (SELECT 1 FROM run WHERE due <= $1 AND owner IN (`+db.Numbered(3, len(who))+`) LIMIT $2) AS q`,
			append([]any{now, int64(most)}, who...)...)
		if total += n; err != nil || total >= most {
			return min(total, most), err
		}
	}
	return total, nil
}

// Servers implements account.Counts.
func (s *Counts) Servers(ctx context.Context) (int, error) {
	if s.DB.Single {
		return 1, nil
	}
	n, err := s.Replicas(ctx)
	return max(n, 1), err
}

// Replicas returns how many servers have registered with the database, and renew that.
func (s *Counts) Replicas(ctx context.Context) (int, error) {
	return db.Value[int](ctx, s.DB.Reader(), countReplicas, s.DB.Millis())
}

// StoredBytes implements account.Counts.
func (s *Counts) StoredBytes(ctx context.Context, name string) (int64, error) {
	total := int64(0)
	err := db.Each(ctx, s.DB.Reader(), func() { total = 0 }, func(r *sql.Rows) error {
		var owner string
		var n int64
		err := r.Scan(&owner, &n)
		if identity.AccountOf(owner) == name {
			total += n
		}
		return err
	}, bytesOfOwners)
	return total, err
}
