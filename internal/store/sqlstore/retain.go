package sqlstore

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

const (
	// retainEvery is the interval between two sweeps, and retainMemory that of a store in memory, which is also swept
	// when it has grown.
	retainEvery  = time.Minute
	retainMemory = 10 * time.Minute
	// deltasLife is how long streamed text is kept after the end of its run. The artifact of the
	// answer has the whole text.
	deltasLife = time.Hour
	// entriesOf is how many entries of conversations are kept for each ended run, if these are limited.
	entriesOf = 4
	// maxRecords is the number of audit records of an account beyond which, if they are limited, only the last
	// keptRecords are kept.
	maxRecords  = 100_000
	keptRecords = 90_000
)

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// retain calls Sweep at intervals, and when a store in memory has grown, until ctx ends. The first call is not
// immediate, so that it does not delay the start.
func (s *Store) retain(ctx context.Context) {
	every := retainEvery
	if s.db.InMemory() {
		every = retainMemory
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.db.Grown:
		case <-ctx.Done():
			return
		}
		if s.Ready() != nil {
			continue
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.db.Log.Warn("what is old cannot be deleted", zap.Error(err))
		}
	}
}

// Sweep deletes old data: runs that ended longer ago than the retention period, with everything
// that belongs to them, and those beyond Config.MaxEnded; conversations, events and ended items of boards, and audit records that
// are older than Config.Keep says; streamed text of runs that ended an hour ago; requests whose
// window has passed; rights that have ended; definitions without runs; and sums of accounts and costs for days long
// past. It adds up the costs of ended runs; if that fails, the rest is done all the same. It
// also releases what ended runs still hold of their accounts, before these runs are deleted.
func (s *Store) Sweep(ctx context.Context) error {
	s.sweeps.Lock()
	defer s.sweeps.Unlock()
	if err := s.EndUse(ctx); err != nil {
		return err
	}
	now := s.Now()
	return errors.Join(s.deleteOld(ctx, now), s.deleteUnkept(ctx, now), s.SumCosts(ctx, now))
}

// deleteOld deletes what Sweep deletes, except costs.
func (s *Store) deleteOld(ctx context.Context, now time.Time) error {
	ended := now.Add(-s.db.Retention)
	if s.db.MaxEnded > 0 {
		last, err := s.LastKept(ctx, s.db.MaxEnded)
		if err != nil {
			return err
		}
		ended = later(ended, last)
	}
	if err := s.runs.Forget(ctx, ended, now.Add(-deltasLife)); err != nil {
		return err
	}
	for _, forget := range []func(context.Context, time.Time) error{s.ledger.Forget, s.keys.Forget, s.intake.Forget, s.definitions.Forget} {
		if err := forget(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

// deleteUnkept deletes conversations, parts of boards and audit records as Config.Keep says.
func (s *Store) deleteUnkept(ctx context.Context, now time.Time) error {
	var errs []error
	unused := now.Add(-s.db.Keep.Conversations)
	if s.db.MaxEnded > 0 {
		surplus, err := s.Surplus(ctx, entriesOf*s.db.MaxEnded)
		unused = later(unused, surplus)
		errs = append(errs, err, s.Drop(ctx, maxRecords, keptRecords))
	}
	errs = append(errs, s.conversations.Forget(ctx, unused))
	if keep := s.db.Keep.Boards; keep > 0 {
		errs = append(errs, s.boards.Trim(ctx, now.Add(-keep)))
	}
	if keep := s.db.Keep.Audit; keep > 0 {
		errs = append(errs, s.audits.Trim(ctx, now, keep))
	}
	return errors.Join(errs...)
}
