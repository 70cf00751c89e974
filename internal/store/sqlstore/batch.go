package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// batch is a group of events of one journal that are written together.
type batch struct {
	j             *journal
	entries       []entry
	ending        *teamv1.Event // the end of the root, if the batch has it
	lo, hi        int64         // the journal's last sequence number before and after the batch
	bytes         int64
	room          int64 // queued bytes that the batch releases
	appends       int64
	before, after listing
	tail          []entry // for an end: inputs that came too late, and the end itself
	pushed        int64   // 1 if the run has push configurations, which the batch wakes if they are idle; else 0
	asking        bool    // there may be open questions for roles
}

// ended reports whether the batch ends the run.
func (b *batch) ended() bool { return b.ending != nil }

// op returns the change that writes the batch. If the batch ends the run, the change has a plan
// instead of statements, because it has to read the inbox first.
func (b *batch) op() *op {
	o := &op{root: b.j.root}
	for _, e := range b.entries {
		o.size += e.size
	}
	if b.ended() {
		o.plan = b.end
		o.done = func(_ context.Context, _ querier, err error) error {
			if b.pushed == 1 {
				b.j.s.wakePush()
			}
			return b.j.settle(b, b.why(answer(err)))
		}
		return o
	}
	o.stmts = b.statements(nil)
	o.done = func(ctx context.Context, q querier, err error) error {
		if err == nil && o.affected[0] == 0 {
			err = b.j.s.fenced(ctx, q, b, o.again)
		}
		if errors.Is(err, errUnknownPush) {
			b.pushed = 1
			if err = b.j.s.db.add(retry{b, o.again}); err == nil {
				return nil
			}
		}
		if b.pushed == 1 && err == nil && len(o.affected) > 1 && o.affected[len(o.affected)-1] > 0 {
			b.j.s.wakePush()
		}
		return b.j.settle(b, b.why(err))
	}
	return o
}

// why wraps an error of the store for the owner of the journal.
func (b *batch) why(err error) error {
	if err == nil || errors.Is(err, agent.ErrFenced) || errors.Is(err, a2a.ErrStorage) || errors.Is(err, a2a.ErrDataLoss) {
		return err
	}
	return fmt.Errorf("write %s: %w: %w", b.j.root, a2a.ErrStorage, err)
}

// fenced returns why a batch changed no row. The result is nil if an earlier attempt has recorded
// the batch and only its reply was lost, errUnknownPush if push has changed in the meantime, and
// agent.ErrFenced if another replica has claimed the run.
func (s *Store) fenced(ctx context.Context, q querier, b *batch, again bool) error {
	var epoch, seq, push int64
	j := b.j
	err := q.scan(ctx, []any{&epoch, &seq, &push}, `SELECT epoch, seq, push FROM run WHERE id = $1`, j.root)
	switch {
	case err == nil && again && epoch == j.epoch && seq == b.hi:
		return nil
	case err == nil && epoch == j.epoch && seq == b.lo && push != b.pushed:
		return errUnknownPush
	case err == nil || errors.Is(notFound(err), a2a.ErrNotFound):
		return fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced)
	}
	return err
}

// statements returns the statements that record the batch and tail, which only an end has.
func (b *batch) statements(tail []entry) []stmt {
	var deltas int64
	for _, e := range b.entries {
		deltas += isDelta(e.ev)
	}
	hi := b.lo + int64(len(b.entries)+len(tail))
	stmts := make([]stmt, 0, 4+len(b.entries)+len(tail))
	stmts = append(stmts, stmt{fence, []any{b.j.root, b.j.epoch, b.lo, hi, b.bytes, deltas, b.pushed}})
	at := []any{b.j.root, b.j.epoch, hi}
	add := func(text string, args ...any) {
		stmts = append(stmts, stmt{text, append(at[:3:3], args...)})
	}
	var costs []cost.Sum
	known := map[string]bool{}
	for _, list := range [][]entry{b.entries, tail} {
		for _, e := range list {
			costs = append(costs, e.costs...)
			for _, v := range e.blobs {
				if !known[string(v.hash)] {
					known[string(v.hash)] = true
					add(insertBlob, v.hash, v.value)
				}
			}
			add(insertEvent, e.ev.GetSeq(), e.ev.GetScope(), isDelta(e.ev), e.sum, e.body)
			if n := store.Consumes(e.ev); n > 0 {
				add(deleteInput, n)
			}
			b.ask(e, add)
		}
	}
	for _, sum := range cost.Merge(costs, nil) {
		add(addCost, costArgs(sum)...)
	}
	if b.after != b.before {
		add(updateTask, int64(b.after.state), b.after.at, flag(b.after.visible))
	}
	if b.pushed == 1 {
		add(wakeIdle, b.j.s.now())
	}
	return stmts
}

// isDelta returns 1 if an event is a text delta, 0 otherwise.
func isDelta(ev *teamv1.Event) int64 { return flag(ev.GetDelta() != nil) }

// flag returns a boolean as it is stored: 1 or 0.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// end records the batch and the end of the root. Inputs that were acknowledged but not recorded
// precede the end. The row of the run is locked, so that no further input arrives.
func (b *batch) end(ctx context.Context, q querier) error {
	j := b.j
	var epoch, seq int64
	err := q.scan(ctx, []any{&epoch, &seq, &b.pushed}, `SELECT epoch, seq, push FROM run WHERE id = $1`+j.s.db.lock(), j.root)
	switch {
	case err != nil && !errors.Is(notFound(err), a2a.ErrNotFound):
		return err
	case err == nil && epoch == j.epoch && b.tail != nil && seq == b.hi:
		return nil // an earlier attempt whose reply was lost
	case err != nil || epoch != j.epoch || seq != b.lo:
		return refusal{fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced)}
	}
	task, err := b.close(ctx, q)
	if err != nil {
		return err
	}
	for _, s := range b.statements(b.tail) {
		if _, err := q.exec(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	if _, err := q.exec(ctx, `DELETE FROM inbox WHERE id = $1`, j.root); err != nil {
		return err
	}
	if _, err := q.exec(ctx, freeSlot, j.root); err != nil {
		return err
	}
	if b.asking {
		if _, err := q.exec(ctx, `DELETE FROM question WHERE id = $1`, j.root); err != nil {
			return err
		}
	}
	if err := j.s.snapshot(ctx, q, j.root, b.hi, task); err != nil {
		return err
	}
	_, err = q.exec(ctx, `UPDATE run SET holder = NULL, due = NULL, ended = $2 WHERE id = $1`, j.root, j.s.now())
	return err
}

// close creates the tail of an end and returns the task as it is after that. The task is nil if the
// earlier events cannot be read.
func (b *batch) close(ctx context.Context, q querier) (*a2av1.Task, error) {
	j := b.j
	rows, err := j.s.inbox(ctx, q, j.root)
	if err != nil && !errors.Is(err, a2a.ErrDataLoss) {
		return nil, err
	}
	named := map[int64]bool{}
	for _, e := range b.entries {
		named[store.Consumes(e.ev)] = true
	}
	events := make([]*teamv1.Event, 0, len(rows)+1)
	for _, in := range rows {
		if late := store.TooLate(in, b.ending); late != nil && !named[in.GetN()] {
			events = append(events, late)
		}
	}
	events = append(events, b.ending)
	j.mu.Lock()
	defer j.mu.Unlock()
	at := j.time()
	if b.tail != nil && j.fold != nil { // an earlier attempt has changed the fold
		if j.fold, err = b.refold(ctx, q); err != nil {
			return nil, err
		}
	}
	b.tail = b.tail[:0:0]
	for i, ev := range events {
		ev.Seq, ev.Time = b.lo+int64(len(b.entries)+i)+1, at
		e, err := encode(j.root, ev)
		if err != nil {
			return nil, err
		}
		if j.fold != nil {
			show(j.fold, ev, j.hidden)
		}
		if j.book != nil && store.RootEnd(ev) {
			e.costs = j.book.End(ev)
		}
		b.tail = append(b.tail, e)
	}
	b.hi = b.lo + int64(len(b.entries)+len(b.tail))
	if j.fold == nil { // the earlier events cannot be read
		b.after = listing{state: outcomeState(b.ending), at: at.AsTime().UnixNano(), visible: true}
		return nil, nil
	}
	b.after = listingOf(j.fold)
	return j.fold.Task(), nil
}

// refold computes the fold again, as it is before the tail.
func (b *batch) refold(ctx context.Context, q querier) (*project.Fold, error) {
	f, events, err := b.j.s.replay(ctx, q, b.j.root)
	if err != nil {
		return nil, err
	}
	hidden := hides(events)
	for _, e := range b.entries {
		show(f, e.ev, hidden)
	}
	return f, nil
}

// outcomeState returns the state of a task of which only the end can be read.
func outcomeState(end *teamv1.Event) a2av1.TaskState {
	switch end.GetEnded().GetOutcome() {
	case teamv1.Outcome_OUTCOME_SUCCEEDED:
		return a2av1.TaskState_TASK_STATE_COMPLETED
	case teamv1.Outcome_OUTCOME_CANCELED:
		return a2av1.TaskState_TASK_STATE_CANCELED
	default:
		return a2av1.TaskState_TASK_STATE_FAILED
	}
}

// snapshot stores the task as of a sequence number. It does nothing if task is nil.
func (s *Store) snapshot(ctx context.Context, q querier, root string, seq int64, task *a2av1.Task) error {
	if task == nil {
		return nil
	}
	body, err := proto.Marshal(task)
	if err != nil {
		return fmt.Errorf("encode task %s: %w", root, err)
	}
	record, extracted := split(task, body)
	for _, v := range extracted {
		if _, err := q.exec(ctx, `INSERT INTO blob (id, hash, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, root, v.hash, v.value); err != nil {
			return err
		}
	}
	_, err = q.exec(ctx, `UPDATE task SET snap_seq = $2, snap_sum = $3, snap = $4 WHERE id = $1`, root, seq, sumOf(root, seq, "", body), record)
	return err
}
