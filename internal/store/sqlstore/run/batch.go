package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/account"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// batch is a group of events of one journal that are written together.
type batch struct {
	j             *journal
	entries       []entry
	ending        *teamv1.Event // the end of the root, if the batch has it
	lo, hi        int64         // the journal's last sequence number before and after the batch
	bytes         int64
	room          room // queued bytes that the batch releases
	appends       int64
	before, after listing
	tail          []entry // for an end: inputs that came too late, and the end itself
	snap          *snapshotRow
	done          *a2av1.Task     // the task in snap, unless it is large or not visible
	early         map[string]bool // hashes of the blobs that are stored before the other statements of the batch
	pushed        int64           // 1 if the run has push configurations, which the batch wakes if they are idle; else 0
	asking        bool            // there may be open questions for roles
	slot          bool            // the run may have the slot of a collaboration
	// quiet is set for a small end of a run into whose inbox nothing was ever put, as far as its journal knows.
	// Such an end need not read the inbox first: it is only admitted if that is so.
	quiet bool
}

// maxQuiet is the size in bytes up to which the end of a run is one change without a plan. A larger one has a
// transaction of its own, so that it does not delay others, and they do not fail with it.
const maxQuiet = 256 << 10

// Statements of a batch that reads first, and of snapshots.
const (
	selectFence     = `SELECT epoch, seq, push, inputs FROM run WHERE id = $1`
	deleteInbox     = `DELETE FROM inbox WHERE id = $1`
	deleteQuestions = `DELETE FROM question WHERE id = $1`
	updateSnapshot  = `UPDATE task SET snap_seq = $2, snap_sum = $3, snap = $4 WHERE id = $1`
)

// ended reports whether the batch ends the run.
func (b *batch) ended() bool { return b.ending != nil }

// size returns how many bytes the batch writes, as far as that is known.
func (b *batch) size() (n int) {
	for _, e := range slices.Concat(b.entries, b.tail) {
		n += len(e.Body) + sizeOf(e.Blobs)
	}
	if b.snap != nil {
		n += len(b.snap.record) + sizeOf(b.snap.blobs)
	}
	return n
}

// sizeOf returns the size of blobs in bytes.
func sizeOf(values []record.Blob) (n int) {
	for _, v := range values {
		n += len(v.Value)
	}
	return n
}

// op returns the change that writes the batch. If the batch ends a run that has had inputs, the change
// has a plan instead of statements, because it has to read the inbox first.
func (b *batch) op() *db.Op {
	o := &db.Op{Root: b.j.root, Size: b.size()}
	if o.Size >= db.LargeChange {
		blobs := b.blobs()
		o.Early, b.early = b.storeBlobs(b.lo, blobs), map[string]bool{}
		for _, v := range blobs {
			b.early[string(v.Hash)] = true
		}
	}
	if b.ended() && !b.quiet {
		o.Plan = b.end
		o.Done = func(_ context.Context, _ db.Querier, err error) error {
			if b.pushed == 1 {
				b.j.s.pushes.Wake()
			}
			return b.j.settle(b, b.why(db.Answer(err)))
		}
		return o
	}
	o.Stmts = b.statements(0)
	o.Done = func(ctx context.Context, q db.Querier, err error) error {
		if err == nil && o.Affected[0] == 0 {
			err = b.refused(ctx, q, o.Again)
		}
		if errors.Is(err, errOutdated) {
			b.pushed, b.quiet = 1, false // an end reads what is so
			if err = b.j.s.db.Add(retry{b, o.Again}); err == nil {
				return nil
			}
		}
		if b.pushed == 1 && err == nil && (o.Again || o.Affected[len(o.Affected)-1] > 0) { // an earlier attempt may have made them due
			b.j.s.pushes.Wake()
		}
		return b.j.settle(b, b.why(err))
	}
	return o
}

// why wraps an error of the store for the owner of the journal.
func (b *batch) why(err error) error {
	if err == nil || errors.Is(err, agent.ErrFenced) || errors.Is(err, runs.ErrStorage) || errors.Is(err, runs.ErrDataLoss) {
		return err
	}
	return fmt.Errorf("write %s: %w: %w", b.j.root, runs.ErrStorage, err)
}

// refused returns why a batch changed no row. The result is nil if an earlier attempt has recorded
// the batch and only its reply was lost, errOutdated if a push configuration or the first input has come
// in the meantime, and agent.ErrFenced if another replica has claimed the run.
func (b *batch) refused(ctx context.Context, q db.Querier, again bool) error {
	var epoch, seq, push, inputs int64
	j := b.j
	err := q.Scan(ctx, []any{&epoch, &seq, &push, &inputs}, selectFence, j.root)
	switch {
	case err == nil && again && epoch == j.epoch && seq == b.hi:
		return nil
	case err == nil && epoch == j.epoch && seq == b.lo && (push != b.pushed || b.quiet && inputs > 0):
		return errOutdated
	case err == nil || errors.Is(db.NotFound(err), runs.ErrNotFound):
		return fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced)
	}
	return err
}

// statements returns the statements that record the batch. An end is only admitted if so many inputs
// were put into the inbox.
func (b *batch) statements(inputs int64) []db.Stmt {
	entries := slices.Concat(b.entries, b.tail)
	var deltas int64
	for _, e := range entries {
		deltas += record.IsDelta(e.Event)
	}
	j, hi := b.j, b.lo+int64(len(entries))
	stmts := make([]db.Stmt, 0, 4+len(entries)/maxRows)
	if b.ended() {
		stmts = append(stmts, db.With(endFence, j.root, j.epoch, b.lo, hi, b.bytes, deltas, b.pushed, j.s.db.Millis(), inputs))
	} else {
		stmts = append(stmts, db.With(fence, j.root, j.epoch, b.lo, hi, b.bytes, deltas, b.pushed))
	}
	at := []any{j.root, j.epoch, hi}
	add := func(text string, args ...any) {
		stmts = append(stmts, db.With(text, append(at[:3:3], args...)...))
	}
	var costs []cost.Sum
	stmts = append(stmts, b.storeBlobs(hi, slices.DeleteFunc(b.blobs(), func(v record.Blob) bool { return b.early[string(v.Hash)] }))...)
	for rows := range slices.Chunk(entries, maxRows) {
		args := make([]any, 0, eventColumns*len(rows))
		for _, e := range rows {
			args = append(args, e.Event.GetSeq(), e.Event.GetScope(), record.IsDelta(e.Event), e.Sum, e.Body)
		}
		add(j.s.insertEvents[len(rows)-1], args...)
	}
	for _, e := range entries {
		costs = append(costs, e.costs...)
		b.take(e, add)
		b.ask(e, add)
	}
	var total cost.Amounts
	for _, sum := range cost.Merge(costs, nil) {
		add(account.AddCost, account.CostArgs(sum)...)
		total.Add(sum.Amounts)
	}
	if spent := total.Spent(); len(costs) > 0 {
		add(addSpent, identity.AccountOf(j.owner), spent.GetInputTokens(), spent.GetOutputTokens(), spent.GetCostMicros())
	}
	switch {
	case b.snap != nil:
		add(endTask, int64(b.after.state), b.after.at, db.Flag(b.after.visible), hi, b.snap.sum, b.snap.record)
	case b.after != b.before:
		add(updateTask, int64(b.after.state), b.after.at, db.Flag(b.after.visible))
	}
	if b.slot {
		add(freeSlot + ` AND EXISTS (` + admitted + `)`)
	}
	if b.pushed == 1 {
		add(push.WakeIdle, j.s.db.Millis())
	}
	return stmts
}

// blobs returns each blob of the batch once, as far as they are known before its end is sealed.
func (b *batch) blobs() (list []record.Blob) {
	entries := slices.Concat(b.entries, b.tail)
	if b.ended() && len(b.tail) == 0 {
		if e, err := record.Encode(b.j.root, b.ending); err == nil { // otherwise seal returns the error
			entries = append(entries, entry{Entry: e})
		}
	}
	for _, e := range entries {
		list = append(list, e.Blobs...)
	}
	if b.snap != nil {
		list = append(list, b.snap.blobs...)
	}
	known := map[string]bool{}
	return slices.DeleteFunc(list, func(v record.Blob) bool {
		again := known[string(v.Hash)]
		known[string(v.Hash)] = true
		return again
	})
}

// storeBlobs returns the statements that store blobs. seq is the last sequence number of the run when they are executed.
func (b *batch) storeBlobs(seq int64, blobs []record.Blob) (stmts []db.Stmt) {
	for _, v := range blobs {
		for n, piece := range v.Pieces() {
			stmts = append(stmts, db.With(insertBlob, b.j.root, b.j.epoch, seq, v.Hash, n, piece))
		}
	}
	return stmts
}

// take adds the statement that deletes the inbox row that an event records, if it records one.
func (b *batch) take(e entry, add func(text string, args ...any)) {
	if n := store.Consumes(e.Event); n > 0 {
		add(deleteInput, n)
	}
}

// end records the batch and the end of the root. Inputs that were acknowledged but not recorded
// precede the end. The row of the run is locked, so that no further input arrives.
func (b *batch) end(ctx context.Context, q db.Querier) error {
	j := b.j
	var epoch, seq, inputs int64
	err := q.Scan(ctx, []any{&epoch, &seq, &b.pushed, &inputs}, selectFence+j.s.db.Lock, j.root)
	switch {
	case err != nil && !errors.Is(db.NotFound(err), runs.ErrNotFound):
		return err
	case err == nil && epoch == j.epoch && b.tail != nil && seq == b.hi:
		return nil // an earlier attempt whose reply was lost
	case err != nil || epoch != j.epoch || seq != b.lo:
		return db.Refuse(fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced))
	}
	if err := b.close(ctx, q); err != nil {
		return err
	}
	stmts := b.statements(inputs)
	if inputs > 0 {
		stmts = append(stmts, db.With(deleteInbox, j.root))
	}
	if b.asking {
		stmts = append(stmts, db.With(deleteQuestions, j.root))
	}
	return db.Exec(ctx, q, stmts...)
}

// close creates the tail of an end, which begins with the inputs that came too late.
func (b *batch) close(ctx context.Context, q db.Querier) error {
	j := b.j
	rows, err := record.Inbox(ctx, q, j.root)
	if err != nil && !errors.Is(err, runs.ErrDataLoss) {
		return err
	}
	named := map[int64]bool{}
	for _, e := range b.entries {
		named[store.Consumes(e.Event)] = true
	}
	var late []*teamv1.Event
	for _, in := range rows {
		if ev := store.TooLate(in, b.ending); ev != nil && !named[in.GetN()] {
			late = append(late, ev)
		}
	}
	if b.snap != nil && len(b.tail) == len(late)+1 {
		return nil // as flush or an earlier attempt has made it: nothing else takes inputs out of the inbox
	}
	j.mu.Lock()
	f := j.fold
	j.mu.Unlock()
	if f != nil && len(b.tail) > 0 { // an earlier attempt has changed the fold
		if f, err = b.refold(ctx, q); err != nil {
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return b.seal(f, late)
}

// seal numbers the end and the events before it that are not in the batch, and sets what of the task is
// recorded with them. It applies these events to the fold f. Without a fold, because the earlier events cannot
// be read, only the state is recorded. The caller must hold the mu of the journal.
func (b *batch) seal(f *project.Fold, late []*teamv1.Event) error {
	j, at := b.j, b.j.time()
	b.tail, b.snap, b.done = nil, nil, nil
	for i, ev := range append(late, b.ending) {
		ev.Seq, ev.Time = b.lo+int64(len(b.entries)+i)+1, at
		e, err := encode(j.root, ev)
		if err != nil {
			return err
		}
		if f != nil {
			f.Apply(ev)
		}
		if j.book != nil && taskstate.EndsRun(ev) {
			e.costs = j.book.End(ev)
		}
		b.tail = append(b.tail, e)
	}
	b.hi = b.lo + int64(len(b.entries)+len(b.tail))
	if f == nil {
		b.after = listing{state: outcomeState(b.ending), at: at.AsTime().UnixNano(), visible: true}
		return nil
	}
	b.after = listingOf(f)
	task := f.Task()
	snap, err := snapshotOf(j.root, b.hi, task, nil)
	if err != nil {
		return err
	}
	if f.Visible() && proto.Size(task) <= maxQuiet {
		b.done = task
	}
	written := map[string]bool{}
	for _, e := range slices.Concat(b.entries, b.tail) {
		for _, v := range e.Blobs {
			written[string(v.Hash)] = true
		}
	}
	snap.blobs = slices.DeleteFunc(j.unstored(snap.blobs), func(v record.Blob) bool { return written[string(v.Hash)] })
	b.snap = snap
	return nil
}

// refold computes the fold again, as it is before the tail.
func (b *batch) refold(ctx context.Context, q db.Querier) (*project.Fold, error) {
	f, _, err := record.Replay(ctx, q, b.j.root)
	if err != nil {
		return nil, err
	}
	for _, e := range b.entries {
		f.Apply(e.Event)
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

// insertBlob stores a piece of a blob, before or within the batch that needs it. The last sequence number of the run is
// that of before or after the batch.
const insertBlob = `INSERT INTO blob (id, hash, piece, body)
SELECT id, $4, $5, $6 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT DO NOTHING`

// insertQuestion records a question for a role, in a batch that was admitted by fence.
const insertQuestion = `INSERT INTO question (id, seq, role, account)
SELECT id, $4, $5, $6 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT DO NOTHING`

// deleteQuestion deletes a closed question, in a batch that was admitted by fence.
const deleteQuestion = `DELETE FROM question WHERE id = $1 AND seq = $4 AND EXISTS (` + admitted + `)`

// ask adds the statements for the questions for roles that an event asks or closes.
func (b *batch) ask(e entry, add func(text string, args ...any)) {
	for _, role := range store.RolesOf(e.Event) {
		add(insertQuestion, e.Event.GetSeq(), role, identity.AccountOf(b.j.owner))
	}
	for _, seq := range e.closes {
		add(deleteQuestion, seq)
	}
}

// errOutdated means that a run has a push configuration or an input that its journal did not know.
var errOutdated = errors.New("a push configuration or an input came")

// retry writes a batch again that was not admitted because of errOutdated.
type retry struct {
	*batch
	again bool // an earlier attempt may still take effect
}

// Take implements db.Source.
func (r retry) Take() *db.Op {
	o := r.op()
	o.Again = r.again
	return o
}

// IsLarge implements db.Source.
func (r retry) IsLarge() bool { return r.ended() && r.bytes > maxQuiet || r.size() >= db.LargeChange }

// Of implements db.Source.
func (r retry) Of() string { return identity.AccountOf(r.j.owner) }

// snapshotRow is a task as it is stored for readers.
type snapshotRow struct {
	sum    int64
	record []byte
	blobs  []record.Blob
}

// snapshotOf returns the stored form of a task as of a sequence number. may is as in record.Split.
func snapshotOf(root string, seq int64, task *a2av1.Task, may func(hash []byte) bool) (*snapshotRow, error) {
	body, err := proto.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("encode task %s: %w", root, err)
	}
	r := &snapshotRow{sum: db.SumOf(root, seq, "", body)}
	r.record, r.blobs = record.Split(task, body, may)
	return r, nil
}

// putSnapshot stores the task as of a sequence number. Values that no event has as blobs stay in the record: the next
// snapshot replaces it, and blobs live as long as their run.
func (j *journal) putSnapshot(ctx context.Context, q db.Querier, seq int64, task *a2av1.Task) error {
	r, err := snapshotOf(j.root, seq, task, j.isStored)
	if err != nil {
		return err
	}
	return db.Exec(ctx, q, db.With(updateSnapshot, j.root, seq, r.sum, r.record))
}

// isStored reports whether this journal has recorded a blob.
func (j *journal) isStored(hash []byte) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stored[string(hash)]
}
