package run

import (
	"context"
	"database/sql"
	"time"

	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
)

const (
	// retainBatch is how many runs are deleted in one transaction, and retainEvents roughly how
	// many events, so that others can write in between.
	retainBatch  = 64
	retainEvents = 10_000
)

// Forget deletes runs that ended before a time, with everything that belongs to them, and the streamed text of those
// that ended before another one.
func (s *Runs) Forget(ctx context.Context, ended, deltas time.Time) error {
	err := s.sweep(ctx, `ended < $1`, ended, func(ctx context.Context, q db.Querier, id string) error {
		return deleteBy(ctx, q, id, deleteRun)
	})
	if err != nil {
		return err
	}
	return s.sweep(ctx, `ended < $1 AND deltas > 0`, deltas, func(ctx context.Context, q db.Querier, id string) error {
		return deleteBy(ctx, q, id, record.DeleteDeltas)
	})
}

// deleteBy runs statements with the id of a run.
func deleteBy(ctx context.Context, q db.Querier, id string, texts []string) error {
	for _, text := range texts {
		if _, err := q.Exec(ctx, text, id); err != nil {
			return err
		}
	}
	return nil
}

// LastKept returns the end of the last one of n ended runs that are kept, the zero time if there are fewer.
func (s *Runs) LastKept(ctx context.Context, n int) (time.Time, error) {
	var at int64
	err := s.db.Reader().Scan(ctx, []any{&at}, `SELECT COALESCE((SELECT ended FROM run WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT 1 OFFSET $1), 0)`, int64(n-1))
	return time.UnixMilli(at), err
}

// sweep deletes runs, or a part of their data, in batches.
func (s *Runs) sweep(ctx context.Context, old string, before time.Time, remove func(context.Context, db.Querier, string) error) error {
	return db.Repeat(func() (more bool, err error) { return s.sweepBatch(ctx, old, before.UnixMilli(), remove) })
}

// sweepBatch deletes a batch of runs, or a part of their data. more reports whether there may be further
// ones.
func (s *Runs) sweepBatch(ctx context.Context, old string, before int64, remove func(context.Context, db.Querier, string) error) (more bool, err error) {
	err = s.db.Do(ctx, func(ctx context.Context, q db.Querier) error {
		var ids []string
		var rows, events int64
		err := db.Each(ctx, q, func() { ids, rows, events = nil, 0, 0 }, func(r *sql.Rows) error {
			var id string
			var seq int64
			err := r.Scan(&id, &seq)
			if rows++; events < retainEvents {
				ids = append(ids, id)
			}
			events += seq
			return err
		}, `SELECT id, seq FROM run WHERE ended IS NOT NULL AND `+old+` LIMIT $2`+s.db.Skip, before, int64(retainBatch))
		more = rows == retainBatch || int64(len(ids)) < rows
		for _, id := range ids {
			if err == nil {
				err = remove(ctx, q, id)
			}
		}
		return err
	})
	return more, err
}
