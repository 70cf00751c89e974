package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/inflight"
	fold "github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/ring"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// lazily is how long appended events are collected before they are written, unless a commit writes them
// earlier. A streamed piece of text becomes visible this much later.
const lazily = 5 * time.Millisecond

// journal is the access of one claim to its run. Appended events wait in memory until a commit, and
// are then written as one change. After the first failure the journal accepts nothing more; the run
// is continued by the next claim.
type journal struct {
	s           *Runs
	root, owner string
	former      sql.NullString // the replica from which the run was taken over; not valid if it was released
	epoch       int64
	wake        chan struct{}

	load sync.Mutex // held during a load; acquired before mu

	mu      sync.Mutex
	fold    *project.Fold // of the root; nil until loaded; guarded by mu, like all fields below
	book    *cost.Book    // nil until loaded
	lost    bool          // the recorded events cannot be read: only the end is accepted
	listed  listing       // what the task row holds
	seq     int64         // sequence number of the last event appended
	durable int64         // sequence number of the last event recorded
	bytes   int64
	last    time.Time // time of the last event
	room    room      // queue space that pending occupies
	pending []entry   // appended, not yet given to the writer
	ending  *teamv1.Event
	sealed  *batch // with the end of a large run, prepared by flush
	flying  bool   // the writer is writing a batch
	queued  bool   // the writer will call take
	appends int64  // number of appends
	commits int64  // number of appends that are recorded
	waiting int    // number of waiting commits
	// changed is closed at the next change that commits wait for; nil if none waits.
	changed chan struct{}
	timer   *time.Timer
	ended   bool // the end of the root was appended
	closed  bool // the claim has been released
	broken  error
	unread  bool             // the inbox may hold an input
	named   map[int64]bool   // inbox rows that are recorded by events appended here
	stored  map[string]bool  // hashes of the blobs that are recorded; nil without any
	pushed  int64            // 1 if there may be push configurations, see fence
	inputs  int64            // number of inputs that were put before the claim
	first   *entry           // the only event that was recorded before the claim; nil if there were more, and after Load
	slot    bool             // the run may have the slot of a collaboration
	ring    ring.Ring[entry] // the latest recorded events, so that readers need no database
	done    *a2av1.Task      // the task as it was stored at the end; nil before that, and for a task that is large or not visible

	view view
}

// entry is an event of a batch.
type entry struct {
	record.Entry
	closes []int64 // sequence numbers of the questions for roles that the event closes
	costs  []cost.Sum
}

// encode returns an event in its stored form.
func encode(root string, ev *teamv1.Event) (entry, error) {
	e, err := record.Encode(root, ev)
	return entry{Entry: e}, err
}

// listing is what the task row holds for lists.
type listing struct {
	state   a2av1.TaskState
	at      int64 // nanoseconds since the Unix epoch
	visible bool
}

// listingOf returns the listing of a fold.
func listingOf(f *project.Fold) listing {
	return listing{state: f.State(), at: f.StatusAt().UnixNano(), visible: f.Visible()}
}

// fence is the statement that admits a batch. It changes no row if the run has another epoch or
// sequence number, or a push configuration that its journal does not know.
const fence = `UPDATE run SET seq = $4, bytes = $5, deltas = deltas + $6 WHERE id = $1 AND epoch = $2 AND seq = $3 AND push = $7`

// endFence is the fence of a batch that ends its run, which it also releases. It changes no row either if
// the run has had another number of inputs. Each input changes that number, in its transaction.
const endFence = `UPDATE run SET seq = $4, bytes = $5, deltas = deltas + $6, holder = NULL, due = NULL, ended = $8
WHERE id = $1 AND epoch = $2 AND seq = $3 AND push = $7 AND inputs = $9`

// admitted selects a row if the batch was admitted by its fence.
const admitted = `SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3`

// maxRows is the number of events that a statement records at most.
const maxRows = 8

// eventColumns is the number of arguments of an event.
const eventColumns = 5

// insertEvents returns the statements that record 1 to maxRows events of a batch that was admitted by its
// fence. binary is the type of the bodies, which PostgreSQL has to be told.
func insertEvents(binary string) (texts [maxRows]string) {
	var rows []string
	for i := range texts {
		n := 4 + eventColumns*i
		rows = append(rows, fmt.Sprintf("(CAST($%d AS BIGINT), CAST($%d AS TEXT), CAST($%d AS BIGINT), CAST($%d AS BIGINT), CAST($%d AS %s))", n, n+1, n+2, n+3, n+4, binary))
		texts[i] = `INSERT INTO event (id, seq, scope, delta, sum, body)
SELECT run.id, column1, column2, column3, column4, column5 FROM run CROSS JOIN (VALUES ` + strings.Join(rows, ", ") + `) AS e
WHERE run.id = $1 AND epoch = $2 AND run.seq = $3 ON CONFLICT DO NOTHING`
	}
	return texts
}

// updateTask updates the task row of a batch that was admitted by fence.
const updateTask = `UPDATE task SET state = $4, status_at = $5, visible = $6
WHERE id = $1 AND EXISTS (` + admitted + `)`

// endTask is like updateTask, and stores the task as it is at its end.
const endTask = `UPDATE task SET state = $4, status_at = $5, visible = $6, snap_seq = $7, snap_sum = $8, snap = $9
WHERE id = $1 AND EXISTS (` + admitted + `)`

// addSpent adds to what the task of a batch that was admitted by fence has spent. A batch that is written again, because
// the reply to the first attempt was lost, adds nothing.
const addSpent = `INSERT INTO task_spent (id, owner, seq, account, input_tokens, output_tokens, cost_micros)
SELECT id, owner, seq, $4, $5, $6, $7 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, input_tokens = task_spent.input_tokens + excluded.input_tokens,
output_tokens = task_spent.output_tokens + excluded.output_tokens, cost_micros = task_spent.cost_micros + excluded.cost_micros
WHERE task_spent.seq < excluded.seq`

// deleteInput deletes an inbox row of a batch that was admitted by fence.
const deleteInput = `DELETE FROM inbox WHERE id = $1 AND n = $4 AND EXISTS (` + admitted + `)`

// Load returns the recorded events that a replay needs, in order. The error may be runs.ErrDataLoss.
func (j *journal) Load(ctx context.Context) ([]*teamv1.Event, error) {
	if err := j.usable(); err != nil {
		return nil, err
	}
	j.load.Lock()
	defer j.load.Unlock()
	if ev := j.only(); ev != nil {
		return []*teamv1.Event{ev}, nil
	}
	f, events, err := record.Replay(ctx, j.s.db.Reader(), j.root)
	if err != nil {
		j.unreadable(err)
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fold == nil {
		j.opened(f, events)
	}
	return events, nil
}

// only returns the recorded event if there is only one and the claim has read it, otherwise nil.
func (j *journal) only() *teamv1.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := j.first
	j.first = nil
	if first == nil || j.seq > 1 {
		return nil
	}
	ev, err := record.Decode(j.root, 1, "", first.Sum, first.Body) // that of first is what readers receive
	if err != nil {
		return nil // Load reads it again
	}
	return ev
}

// open loads the fold, unless it is loaded. It returns no error for damaged events.
func (j *journal) open(ctx context.Context) error {
	j.mu.Lock()
	ready := j.fold != nil || j.lost
	j.mu.Unlock()
	if ready {
		return nil
	}
	_, err := j.Load(ctx)
	if errors.Is(err, runs.ErrDataLoss) {
		return nil // the end can still be recorded
	}
	return err
}

// opened sets the state of the journal from the recorded events. The caller must hold mu.
func (j *journal) opened(f *project.Fold, events []*teamv1.Event) {
	j.fold, j.listed, j.book = f, listingOf(f), cost.NewBook(identity.AccountOf(j.owner))
	for _, ev := range events {
		j.book.Apply(ev)
	}
	j.slot = events[0].GetAccepted().GetCollaboration() != nil
	j.last = events[len(events)-1].GetTime().AsTime()
}

// unreadable notes whether an error means that recorded events are damaged.
func (j *journal) unreadable(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = j.lost || errors.Is(err, runs.ErrDataLoss)
}

// usable returns an error if the claim has ended.
func (j *journal) usable() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held()
}

// held is like usable. The caller must hold mu.
func (j *journal) held() error {
	switch {
	case j.closed:
		return fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced)
	case j.broken != nil:
		return j.broken
	}
	return nil
}

// Append assigns the events their sequence numbers, either all of them or none. They become durable
// and visible with the next Commit, or shortly afterwards without one.
func (j *journal) Append(ctx context.Context, events ...*teamv1.Event) error {
	if err := j.s.db.Err(); err != nil {
		return err
	}
	if err := j.open(ctx); err != nil {
		return err
	}
	size := store.Size(events)
	room, err := j.s.space.acquire(ctx, size, j.growsLarge(size))
	if err != nil {
		return err
	}
	defer inflight.Turn(size)() // not with mu: the writer takes that
	if err = j.append(events, size, room); err != nil {
		j.s.space.release(room)
	}
	return err
}

// growsLarge reports whether the next change is large with events of a size.
func (j *journal) growsLarge(size int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.room.large > 0 || j.room.small+size >= db.LargeChange
}

// IsLarge implements db.Source. An end may be large because of the task as it is then.
func (j *journal) IsLarge() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.room.large > 0 || j.endsLarge()
}

// endsLarge reports whether the end of a large run is pending. The caller must hold mu.
func (j *journal) endsLarge() bool { return j.ending != nil && j.bytes > maxQuiet }

// Of implements db.Source.
func (j *journal) Of() string { return identity.AccountOf(j.owner) }

// append queues events that have a total size and occupy room in the queue.
func (j *journal) append(events []*teamv1.Event, size int64, room room) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.held(); err != nil {
		return err
	}
	if err := store.Admit(j.root, j.ended, j.seq, j.bytes, events, size); err != nil {
		return err
	}
	if j.lost && !taskstate.EndsRun(events[len(events)-1]) {
		return db.DataLoss("the journal behind event", j.root, j.durable)
	}
	at := j.time()
	for _, ev := range events {
		if taskstate.EndsRun(ev) {
			j.ended, j.ending = true, ev // numbered later, behind the inputs that came too late
			break
		}
		j.seq++
		ev.Seq, ev.Time = j.seq, at
		e, err := encode(j.root, ev)
		if err != nil {
			return j.fail(err)
		}
		if j.fold != nil {
			e.closes = closes(j.fold.Apply(ev))
			e.costs = j.book.Apply(ev)
		}
		j.pending = append(j.pending, e)
	}
	for _, ev := range events {
		if n := store.Consumes(ev); n > 0 {
			j.named[n] = true
		}
	}
	j.bytes += size
	j.room = j.room.add(room)
	j.appends++
	j.later()
	return nil
}

// State implements runs.Journal. After the claim the state is that of a run without events.
func (j *journal) State(read func(*fold.Summary)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &fold.Summary{}
	if j.fold != nil {
		s = j.fold.Summary()
	}
	read(s)
}

// closes returns the sequence numbers of the questions for roles that an event has closed.
func closes(c fold.Change) (list []int64) {
	for _, q := range c.Closed {
		if len(store.RolesOf(q.Event)) > 0 {
			list = append(list, q.Event.GetSeq())
		}
	}
	return list
}

// time returns the time of the next events, which is never before that of earlier ones. The caller
// must hold mu.
func (j *journal) time() *timestamppb.Timestamp {
	if now := j.s.db.Now(); now.After(j.last) {
		j.last = now
	}
	return timestamppb.New(j.last)
}

// Commit returns when everything appended before is durable and visible. The error is the cause of
// ctx, agent.ErrFenced or runs.ErrStorage.
func (j *journal) Commit(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	want := j.appends
	for {
		if err := j.held(); err != nil {
			return err
		}
		if j.commits >= want {
			return nil
		}
		if j.flush(); j.broken != nil {
			continue
		}
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		changed := j.changed
		j.waiting++
		j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		j.mu.Lock()
		j.waiting--
		if ctx.Err() != nil && j.commits < want {
			return context.Cause(ctx)
		}
	}
}

// flush queues the pending events for the writer. The caller must hold mu.
func (j *journal) flush() {
	if j.queued || j.flying || len(j.pending) == 0 && j.ending == nil {
		return
	}
	if j.endsLarge() {
		j.sealed = j.batch()
	}
	if err := j.s.db.Add(j); err != nil {
		_ = j.fail(err) // commits return the error
		return
	}
	j.queued = true
}

// later flushes pending events after lazily. The caller must hold mu.
func (j *journal) later() {
	if j.queued || j.flying {
		return // settle checks again
	}
	if j.timer == nil {
		j.timer = time.AfterFunc(lazily, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.flush()
		})
		return
	}
	j.timer.Reset(lazily)
}

// Take returns the pending events as one change. It returns nil if no event is pending. It implements
// db.Source.
func (j *journal) Take() *db.Op {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queued = false
	if j.broken != nil || len(j.pending) == 0 && j.ending == nil {
		return nil
	}
	b := j.sealed
	if b == nil {
		b = j.batch()
	}
	j.pending, j.sealed, j.room, j.flying = nil, nil, room{}, true
	return b.op()
}

// batch returns the pending events as a batch. The caller must hold mu.
func (j *journal) batch() *batch {
	for i := range j.pending {
		j.pending[i].Blobs = j.unstored(j.pending[i].Blobs)
	}
	b := &batch{j: j, entries: j.pending, ending: j.ending, lo: j.durable, hi: j.durable + int64(len(j.pending)), bytes: j.bytes, room: j.room, appends: j.appends, pushed: j.pushed}
	b.asking = j.fold == nil || j.fold.Asks()
	if j.fold != nil {
		b.before, b.after = j.listed, listingOf(j.fold)
	}
	if b.ended() {
		b.slot = j.fold == nil || j.slot
		sealed := j.undisturbed() && j.fold != nil && b.seal(j.fold, nil) == nil // after an error of seal, end returns it
		b.quiet = sealed && !b.asking && j.bytes <= maxQuiet && b.size() <= maxQuiet
	}
	return b
}

// undisturbed reports whether nothing was ever put into the inbox, as far as the journal knows. The caller must
// hold mu.
func (j *journal) undisturbed() bool { return j.inputs == 0 && len(j.named) == 0 && !j.unread }

// unstored returns those of some blobs that are not recorded yet, as far as the journal knows. The caller must
// hold mu.
func (j *journal) unstored(values []record.Blob) []record.Blob {
	return slices.DeleteFunc(values, func(v record.Blob) bool { return j.stored[string(v.Hash)] })
}

// settle updates the journal after a batch was written. err is the error of the batch.
func (j *journal) settle(b *batch, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.s.space.release(b.room)
	j.flying = false
	if err != nil {
		return j.fail(err)
	}
	j.durable, j.commits, j.listed, j.pushed = b.hi, b.appends, b.after, b.pushed
	for _, e := range b.entries {
		for _, v := range e.Blobs {
			if j.stored == nil {
				j.stored = map[string]bool{}
			}
			j.stored[string(v.Hash)] = true
		}
	}
	if b.ended() {
		j.seq, j.ending, j.done = b.hi, nil, b.done
	}
	if !j.closed {
		j.keeps(b.entries, b.tail)
	}
	j.announce()
	switch {
	case j.waiting > 0 && !j.endsLarge(): // to prepare such an end takes long, and the writer is waiting
		j.flush()
	case len(j.pending) > 0 || j.ending != nil:
		j.later()
	}
	return nil
}

// announce wakes the waiting commits and the readers of the run. The caller must hold mu.
func (j *journal) announce() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
	j.s.db.Announce(j.root, j.owner)
}

// fail ends the journal with an error. It returns the first such error. The caller must hold mu.
func (j *journal) fail(err error) error {
	if j.broken == nil {
		j.broken = err
		j.s.space.release(j.room)
		j.pending, j.ending, j.sealed, j.room = nil, nil, nil, room{}
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
	store.Poke(j.wake) // the driver notices the error
	return j.broken
}

// lose ends the journal of a run that another replica has claimed.
func (j *journal) lose() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.fail(fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced))
}

// Inbound returns the inbox rows that no appended event has recorded, in order.
func (j *journal) Inbound(ctx context.Context) ([]*teamv1.Inbound, error) {
	j.mu.Lock()
	err, unread, ended := j.held(), j.unread, j.ended
	j.unread = false
	j.mu.Unlock()
	if err != nil || !unread || ended {
		return nil, err
	}
	rows, err := record.Inbox(ctx, j.s.db.Reader(), j.root)
	if err != nil || len(rows) > 0 {
		j.arrived()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	left := rows[:0]
	for _, in := range rows {
		if !j.named[in.GetN()] { // rows remain until their events are recorded
			left = append(left, in)
		}
	}
	return left, err
}

// arrived notes that the inbox may hold an input.
func (j *journal) arrived() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unread = true
}

// Wake returns a channel that receives when the inbox may have changed.
func (j *journal) Wake() <-chan struct{} { return j.wake }

// give ends the claim in this process.
func (j *journal) give() {
	j.mu.Lock()
	over := j.ended && j.broken == nil && j.ending == nil && !j.flying
	if !j.closed && over && j.s.rings.Bytes() <= maxKept && j.s.keep(j) {
		j.fold, j.book, j.stored, j.named, j.first = nil, nil, nil, nil, nil // readers need the ring and done
	} else {
		defer j.dropRing()
	}
	j.closed = true
	if j.timer != nil {
		j.timer.Stop()
	}
	_ = j.fail(agent.ErrFenced) // for appends that were never committed
	j.mu.Unlock()
	j.s.forget(j)
}

// dropRing empties the ring.
func (j *journal) dropRing() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring.Drop()
}
