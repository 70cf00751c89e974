package run

import (
	"cmp"
	"context"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/pkg/agent"
)

// live returns the journal in this process that has everything that is recorded of a root: that of an open
// claim, or of a run that has ended while it was read. Without one it returns nil, and also after a failure of
// the journal, because another replica may own the run.
func (s *Runs) live(root string) *journal {
	if j := s.journal(root); j != nil && j.usable() == nil {
		return j
	}
	s.mu.Lock() // again, because a run that ends is kept before its journal is closed
	defer s.mu.Unlock()
	return s.ended[root]
}

// Owned splits a key into root and scope. The error is runs.ErrNotFound if the root does not belong
// to the owner.
func (s *Runs) Owned(ctx context.Context, k runs.Key) (root, scope string, err error) {
	root, scope = agent.SplitTask(k.ID)
	s.mu.Lock()
	j := cmp.Or(s.journals[root], s.ended[root])
	s.mu.Unlock()
	switch {
	case j == nil:
		return record.Owned(ctx, s.db.Reader(), k)
	case j.owner != k.Owner:
		return "", "", runs.ErrNotFound
	}
	return root, scope, nil
}

// Claimed reports whether this process drives a root.
func (s *Runs) Claimed(root string) bool { return s.journal(root) != nil }

// Shown returns the sequence number up to which readers see a root.
func (s *Runs) Shown(root string) int64 {
	if j := s.live(root); j != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.durable
	}
	return record.Everything
}

// LiveStanding returns the standing of a visible root that this process drives, as recorded; ok is false if it does not
// drive it.
func (s *Runs) LiveStanding(k runs.Key) (st runs.Standing, ok bool) {
	j := s.live(k.ID)
	if j == nil || j.owner != k.Owner {
		return st, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fold == nil || !j.listed.visible {
		return st, false
	}
	return runs.Standing{Agent: j.fold.Agent(), Account: j.fold.Account(), ContextID: j.fold.ContextID(), State: j.listed.state}, true
}

// Page returns committed events of a root after a sequence number, of a scope and below.
func (s *Runs) Page(ctx context.Context, root, scope string, after int64, limit int) ([]runs.Record, error) {
	upTo := record.Everything
	if j := s.live(root); j != nil {
		records, durable, ok := j.since(after, scope, limit)
		if ok {
			return records, nil
		}
		upTo = durable
	}
	records, err := record.Events(ctx, s.db.Reader(), root, scope, after, upTo, limit)
	// The process may have claimed the root meanwhile. Then its task may be behind what was read.
	upTo = s.Shown(root)
	return slices.DeleteFunc(records, func(r runs.Record) bool { return r.Seq > upTo }), err
}

// Fold computes the fold of a scope as readers see it.
func (s *Runs) Fold(ctx context.Context, root, scope string) (*project.Fold, int64, error) {
	return record.Fold(ctx, s.db.Reader(), root, scope, s.Shown(root))
}

// LiveTask returns the task of a root that this process drives, as recorded; ok is false if it does not drive it.
func (s *Runs) LiveTask(ctx context.Context, root string) (t *a2av1.Task, seq int64, ok bool, err error) {
	j := s.live(root)
	if j == nil {
		return nil, 0, false, nil
	}
	t, seq, err = j.task(ctx)
	return t, seq, true, err
}

// since returns the events that the ring has after a sequence number; ok is false if the ring does
// not reach back that far. durable is the last sequence number that the journal knows to be
// recorded. The database may hold more for a moment, which a reader must not see before others do.
func (j *journal) since(after int64, scope string, limit int) (records []runs.Record, durable int64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	records, ok = j.recent(after, scope, limit)
	return records, j.durable, ok
}

// view is the task of an open run as recorded, which may be behind what was appended.
type view struct {
	turn chan struct{} // semaphore: its holder may update the view
	fold *project.Fold // used by the holder of turn, like seq
	seq  int64
}

// viewPage is the number of events that are read at once to update a view.
const viewPage = 512

// task returns the task as recorded.
func (j *journal) task(ctx context.Context) (*a2av1.Task, int64, error) {
	if t, seq := j.kept(); t != nil {
		return t, seq, nil
	}
	v := &j.view
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	if err := j.s.db.Ready(); err != nil && !j.s.db.Single && !j.fresh(v.seq) {
		return nil, 0, err // do not make further callers wait for their turn
	}
	for {
		page, err := j.s.Page(ctx, j.root, "", v.seq, viewPage)
		if err != nil {
			return nil, 0, err
		}
		for _, rec := range page {
			v.fold.Apply(rec.Event)
			v.seq = rec.Seq
		}
		if len(page) < viewPage {
			break
		}
	}
	if !v.fold.Visible() {
		return nil, 0, runs.ErrNotFound
	}
	return v.fold.Task(), v.seq, nil
}

// kept returns the task of a run that has ended, with lists of its own, and the sequence number of its end. It returns
// nil if the task is not kept.
func (j *journal) kept() (*a2av1.Task, int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.done == nil {
		return nil, 0
	}
	return project.Copy(j.done), j.durable
}

// fresh reports whether the ring has the events after a sequence number, so that the database is
// not needed.
func (j *journal) fresh(seq int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.recent(seq, "", 1)
	return ok
}
