package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/store"
)

const (
	// retainEvery is the interval between two sweeps.
	retainEvery = time.Minute
	// retainBatch is how many runs are deleted in one transaction, and retainEvents roughly how
	// many events, so that others can write in between.
	retainBatch  = 64
	retainEvents = 10_000
	// deltasLife is how long streamed text is kept after the end of its run. The artifact of the
	// answer has the whole text.
	deltasLife = time.Hour
	// definitionLife is how long a definition without runs is kept. A run is pinned to it shortly
	// after it was put.
	definitionLife = time.Hour
)

// retain calls Sweep at intervals until ctx ends. The first call is not immediate, so that it does
// not delay the start.
func (s *Store) retain(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.Ready() != nil {
			continue
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("what is old cannot be deleted", zap.Error(err))
		}
	}
}

// Sweep deletes old data: runs that ended longer ago than the retention period, with everything
// that belongs to them; conversations, events and ended items of boards, and audit records that
// are older than Config.Keep says; streamed text of runs that ended an hour ago; requests whose
// window has passed; rights that have ended; definitions without runs; and sums of accounts and costs for days long
// past. It adds up the costs of ended runs; if that fails, the rest is done all the same. It
// also releases what ended runs still hold of their accounts, before these runs are deleted.
func (s *Store) Sweep(ctx context.Context) error {
	s.sweeps.Lock()
	defer s.sweeps.Unlock()
	if err := s.endUse(ctx); err != nil {
		return err
	}
	now := s.Now()
	return errors.Join(s.deleteOld(ctx, now), s.deleteUnkept(ctx, now), s.sumCosts(ctx, now))
}

// deleteOld deletes what Sweep deletes, except costs.
func (s *Store) deleteOld(ctx context.Context, now time.Time) error {
	for _, sweep := range []struct {
		old    string
		before time.Time
		delete []string
	}{
		{`ended < $1`, now.Add(-s.cfg.Retention), []string{
			`DELETE FROM event WHERE id = $1`, `DELETE FROM blob WHERE id = $1`, `DELETE FROM inbox WHERE id = $1`, `DELETE FROM request WHERE id = $1`,
			`DELETE FROM account_use WHERE root = $1`, `DELETE FROM shared_use WHERE task = $1`,
			`DELETE FROM push_dead WHERE id = $1`, `DELETE FROM push_config WHERE id = $1`,
			`DELETE FROM task WHERE id = $1`, `DELETE FROM run WHERE id = $1`,
		}},
		{`ended < $1 AND deltas > 0`, now.Add(-deltasLife), []string{
			`DELETE FROM event WHERE id = $1 AND delta = 1`, `UPDATE run SET deltas = 0 WHERE id = $1`,
		}},
	} {
		for more := true; more; {
			var err error
			if more, err = s.sweep(ctx, sweep.old, sweep.before.UnixMilli(), sweep.delete); err != nil {
				return err
			}
		}
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		if _, err := q.exec(ctx, `DELETE FROM account_day WHERE day <> '' AND day < $1`, now.Add(-daysKept).UTC().Format(time.DateOnly)); err != nil {
			return err
		}
		if _, err := q.exec(ctx, `DELETE FROM request_rate WHERE full_at <= $1`, now.UnixMicro()); err != nil {
			return err
		}
		if _, err := q.exec(ctx, `DELETE FROM owner_right WHERE expires_at < $1 AND NOT `+isBusy, now.Add(-auth.RightsKept).Unix()); err != nil {
			return err
		}
		if _, err := q.exec(ctx, `DELETE FROM request WHERE at <= $1`, now.Add(-max(store.RequestWindow, s.cfg.Deduplicate)).UnixMilli()); err != nil {
			return err
		}
		_, err := q.exec(ctx, `DELETE FROM definition WHERE at < $1 AND NOT EXISTS (SELECT 1 FROM run WHERE run.definition = revision)`,
			now.Add(-definitionLife).UnixMilli())
		return err
	})
}

// deleteUnkept deletes conversations, parts of boards and audit records as Config.Keep says.
func (s *Store) deleteUnkept(ctx context.Context, now time.Time) error {
	var errs []error
	for more := true; more; {
		var err error
		if more, err = s.forgetThreads(ctx, now.Add(-s.cfg.Keep.Conversations).UnixMilli()); err != nil {
			errs, more = append(errs, err), false
		}
	}
	if keep := s.cfg.Keep.Boards; keep > 0 {
		errs = append(errs, s.trimBoards(ctx, now.Add(-keep)))
	}
	if keep := s.cfg.Keep.Audit; keep > 0 {
		errs = append(errs, s.trimAudit(ctx, now, keep))
	}
	return errors.Join(errs...)
}

// sweep deletes a batch of runs, or a part of their data. more reports whether there may be further
// ones.
func (s *Store) sweep(ctx context.Context, old string, before int64, texts []string) (more bool, err error) {
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		var ids []string
		var rows, events int64
		err := each(ctx, q, func() { ids, rows, events = nil, 0, 0 }, func(r *sql.Rows) error {
			var id string
			var seq int64
			err := r.Scan(&id, &seq)
			if rows++; events < retainEvents {
				ids = append(ids, id)
			}
			events += seq
			return err
		}, `SELECT id, seq FROM run WHERE ended IS NOT NULL AND `+old+` LIMIT $2`+s.db.skip(), before, int64(retainBatch))
		more = rows == retainBatch || int64(len(ids)) < rows
		for _, id := range ids {
			for _, text := range texts {
				if err != nil {
					return err
				}
				_, err = q.exec(ctx, text, id)
			}
		}
		return err
	})
	return more, err
}

// secret returns the named key for encryption, which all replicas share. It creates the key if
// needed.
func (s *Store) secret(ctx context.Context, name string) (key []byte, err error) {
	read := func() error {
		return s.db.reader().scan(ctx, []any{&key}, `SELECT value FROM setting WHERE name = $1`, name)
	}
	if err = read(); !errors.Is(err, sql.ErrNoRows) {
		return key, err
	}
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails
	if name != pushKey && len(s.keys.ids) > 0 {
		fresh = s.keys.seal([]byte(name), fresh)
	}
	err = s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, fresh)
		return err
	})
	if err == nil {
		err = read()
	}
	return key, err
}
