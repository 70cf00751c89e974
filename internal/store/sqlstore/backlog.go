package sqlstore

import (
	"context"
	"database/sql"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Backlog counts what waits. Each query reads at most a2a.MaxBacklog entries of an index for rows that wait;
// tasks that have ended cost nothing.
func (s *Store) Backlog(ctx context.Context) (a2a.Backlog, error) {
	b := a2a.Backlog{Open: map[a2av1.TaskState]a2a.Waiting{}, Due: map[string]a2a.Waiting{}, Claimed: map[string]int64{}}
	r := s.db.reader()
	err := each(ctx, r, func() { clear(b.Open) }, func(rows *sql.Rows) error {
		var state int32
		var n, at int64
		err := rows.Scan(&state, &n, &at)
		b.Open[a2av1.TaskState(state)] = a2a.Waiting{Count: n, Oldest: time.Unix(0, at)}
		return err
	}, `SELECT state, count(*), min(status_at) FROM task
JOIN (SELECT id FROM run WHERE ended IS NULL LIMIT $1) AS open ON open.id = task.id GROUP BY state`, int64(a2a.MaxBacklog))
	if err != nil {
		return b, err
	}
	err = each(ctx, r, func() { clear(b.Due) }, func(rows *sql.Rows) error {
		var owner string
		var n, since int64
		err := rows.Scan(&owner, &n, &since)
		b.Due[owner] = a2a.Waiting{Count: n, Oldest: time.UnixMilli(since)}
		return err
	}, dueBacklog, s.now(), int64(a2a.MaxBacklog))
	if err != nil {
		return b, err
	}
	if b.Push, err = s.waiting(ctx, pushBacklog, s.now(), int64(a2a.MaxBacklog)); err != nil {
		return b, err
	}
	return b, each(ctx, r, func() { clear(b.Claimed) }, func(rows *sql.Rows) error {
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
func (s *Store) waiting(ctx context.Context, query string, args ...any) (a2a.Waiting, error) {
	var w a2a.Waiting
	var oldest sql.NullInt64
	err := s.db.reader().scan(ctx, []any{&w.Count, &oldest}, `SELECT count(*), min(since) FROM (`+query+`) AS d`, args...)
	if oldest.Valid {
		w.Oldest = time.UnixMilli(oldest.Int64)
	}
	return w, err
}
