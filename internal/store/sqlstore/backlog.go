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
	b := a2a.Backlog{Open: map[a2av1.TaskState]a2a.Waiting{}}
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
	if b.Due, err = s.waiting(ctx, `SELECT due AS since FROM run WHERE due <= $1 ORDER BY due LIMIT $2`); err != nil {
		return b, err
	}
	if b.Push, err = s.waiting(ctx, pushBacklog); err != nil {
		return b, err
	}
	err = r.scan(ctx, []any{&b.Claimed}, `SELECT count(*) FROM run WHERE holder IS NOT NULL`)
	return b, err
}

// pushBacklog selects since when notifications wait. Those that are tried again are not due while they back off.
const pushBacklog = `SELECT CASE WHEN tries > 0 THEN since ELSE due END AS since FROM push_config
WHERE due IS NOT NULL AND (due <= $1 OR tries > 0) ORDER BY due LIMIT $2`

// waiting counts what a query selects as since, whose arguments are the time and a limit.
func (s *Store) waiting(ctx context.Context, query string) (a2a.Waiting, error) {
	var w a2a.Waiting
	var oldest sql.NullInt64
	err := s.db.reader().scan(ctx, []any{&w.Count, &oldest}, `SELECT count(*), min(since) FROM (`+query+`) AS d`, s.now(), int64(a2a.MaxBacklog))
	if oldest.Valid {
		w.Oldest = time.UnixMilli(oldest.Int64)
	}
	return w, err
}
