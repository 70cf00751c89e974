package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	fold "github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// lazily is how long events wait for company that nobody commits: a streamed
// piece is on record, and seen, this much later.
const lazily = 5 * time.Millisecond

// journal is one claim's access to its run. What is appended waits in memory
// until a commit asks for it; then all of it is one change of the writer's group.
// The first failure ends it: what the claim was for is continued by the next one.
type journal struct {
	s           *Store
	root, owner string
	epoch       int64
	wake        chan struct{}

	load sync.Mutex // one load at a time; taken before mu

	mu      sync.Mutex
	fold    *project.Fold // of the root, with everything appended; nil until loaded; guarded by mu, like all below
	hidden  bool          // see hides
	lost    bool          // what is on record cannot be read: only the end is taken
	listed  listing       // what the task row says
	seq     int64         // of the last event appended
	durable int64         // of the last event on record
	bytes   int64
	last    time.Time // of the last event
	room    int64     // of the queue, that pending takes
	pending []entry   // appended, not yet taken by the writer
	ending  *teamv1.Event
	flying  bool  // the writer works on a batch
	queued  bool  // the writer will take
	appends int64 // how many there were
	commits int64 // how many of them are on record
	waiting int   // commits that wait
	changed chan struct{}
	timer   *time.Timer
	ended   bool // the root's end was appended
	closed  bool // the claim was given up
	broken  error
	unread  bool // the inbox may hold something
	asking  fold.Questions
	named   map[int64]bool // rows of the inbox that events consume which were appended here
	pushed  int64          // 1: there may be receivers to tell, see fence
	ring    ring

	view view
}

// entry is an event as it will be stored.
type entry struct {
	ev     *teamv1.Event
	body   []byte
	sum    int64
	closes []int64 // sequences of questions that roles may answer
}

// listing is what the task row says for lists.
type listing struct {
	state   a2av1.TaskState
	at      int64 // nanoseconds
	visible bool
}

func listingOf(f *project.Fold) listing {
	return listing{state: f.State(), at: f.StatusAt().UnixNano(), visible: f.Visible()}
}

// fence is the statement that gives a batch its place: no row of a run that
// another epoch holds, or that stands elsewhere; nor of one that has got a push
// configuration that its journal does not know of.
const fence = `UPDATE run SET seq = $4, bytes = $5, deltas = deltas + $6 WHERE id = $1 AND epoch = $2 AND seq = $3 AND push = $7`

// insertEvent puts an event of a batch on record whose fence held.
const insertEvent = `INSERT INTO event (id, seq, scope, delta, sum, body)
SELECT id, $4, $5, $6, $7, $8 FROM run WHERE id = $1 AND epoch = $2 AND seq = $3
ON CONFLICT DO NOTHING`

const updateTask = `UPDATE task SET state = $4, status_at = $5, visible = $6
WHERE id = $1 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

const deleteInput = `DELETE FROM inbox
WHERE id = $1 AND n = $4 AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND epoch = $2 AND seq = $3)`

// Load returns the events on record that a replay needs, in order. a2a.ErrDataLoss.
func (j *journal) Load(ctx context.Context) ([]*teamv1.Event, error) {
	if err := j.usable(); err != nil {
		return nil, err
	}
	j.load.Lock()
	defer j.load.Unlock()
	f, events, err := j.s.replay(ctx, j.s.db.reader(), j.root)
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

// open makes the fold ready.
func (j *journal) open(ctx context.Context) error {
	j.mu.Lock()
	ready := j.fold != nil || j.lost
	j.mu.Unlock()
	if ready {
		return nil
	}
	_, err := j.Load(ctx)
	if errors.Is(err, a2a.ErrDataLoss) {
		return nil // the end can still be put on record
	}
	return err
}

// opened takes over what is on record. The caller holds mu.
func (j *journal) opened(f *project.Fold, events []*teamv1.Event) {
	j.fold, j.listed, j.hidden = f, listingOf(f), hides(events)
	for _, ev := range events {
		j.asking.Apply(ev)
	}
	j.last = events[len(events)-1].GetTime().AsTime()
}

// unreadable notes that the record is damaged.
func (j *journal) unreadable(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = j.lost || errors.Is(err, a2a.ErrDataLoss)
}

// usable refuses a claim that is over.
func (j *journal) usable() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held()
}

// held is usable. The caller holds mu.
func (j *journal) held() error {
	switch {
	case j.closed:
		return fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced)
	case j.broken != nil:
		return j.broken
	}
	return nil
}

// Append gives each event its place, all or none. They are on record and can be
// read once they are committed, by Commit or a little later by themselves.
func (j *journal) Append(ctx context.Context, events ...*teamv1.Event) error {
	if err := j.s.Err(); err != nil {
		return err
	}
	if err := j.open(ctx); err != nil {
		return err
	}
	size := store.Size(events)
	room := min(size, maxQueued) // of the queue: never more than there is
	if err := j.s.space.Acquire(ctx, room); err != nil {
		return context.Cause(ctx)
	}
	err := j.append(events, size, room)
	if err != nil {
		j.s.space.Release(room)
	}
	return err
}

// append queues events of a size that take room.
func (j *journal) append(events []*teamv1.Event, size, room int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.held(); err != nil {
		return err
	}
	if err := store.Admit(j.root, j.ended, j.seq, j.bytes, events, size); err != nil {
		return err
	}
	if j.lost && !store.RootEnd(events[len(events)-1]) {
		return dataLoss("the journal behind event", j.root, j.durable)
	}
	at := j.time()
	for _, ev := range events {
		if store.RootEnd(ev) {
			j.ended, j.ending = true, ev // gets its place when it is known what came before
			break
		}
		j.seq++
		ev.Seq, ev.Time = j.seq, at
		e, err := encode(j.root, ev)
		if err != nil {
			return j.fail(err)
		}
		if j.fold != nil {
			show(j.fold, ev, j.hidden)
		}
		_, closed := j.asking.Apply(ev)
		for _, q := range closed {
			if len(store.RolesOf(q.Event)) > 0 {
				e.closes = append(e.closes, q.Event.GetSeq())
			}
		}
		j.pending = append(j.pending, e)
	}
	for _, ev := range events {
		if n := store.Consumes(ev); n > 0 {
			j.named[n] = true
		}
	}
	j.bytes += size
	j.room += room
	j.appends++
	j.later()
	return nil
}

// time is that of the next events: it never goes back. The caller holds mu.
func (j *journal) time() *timestamppb.Timestamp {
	if now := j.s.Now(); now.After(j.last) {
		j.last = now
	}
	return timestamppb.New(j.last)
}

func encode(root string, ev *teamv1.Event) (entry, error) {
	body, sum, err := encodeEvent(root, ev)
	return entry{ev: ev, body: body, sum: sum}, err
}

// Commit returns when everything appended before is durable and can be read.
// agent.ErrFenced, a2a.ErrStorage.
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

// flush has the writer take what is pending. The caller holds mu.
func (j *journal) flush() {
	if j.queued || j.flying || len(j.pending) == 0 && j.ending == nil {
		return
	}
	if err := j.s.db.add(j); err != nil {
		_ = j.fail(err) // whoever commits is told
		return
	}
	j.queued = true
}

// later flushes in a moment what nobody commits. The caller holds mu.
func (j *journal) later() {
	if j.queued || j.flying {
		return // the end of that looks again
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

// take returns what is pending as one change. It implements source.
func (j *journal) take() *op {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queued = false
	if j.broken != nil || len(j.pending) == 0 && j.ending == nil {
		return nil
	}
	b := &batch{j: j, entries: j.pending, ending: j.ending, lo: j.durable, hi: j.durable + int64(len(j.pending)), bytes: j.bytes, room: j.room, appends: j.appends, pushed: j.pushed}
	b.asking = j.fold == nil || len(j.asking.Open()) > 0
	if j.fold != nil {
		b.before, b.after = j.listed, listingOf(j.fold)
	}
	j.pending, j.room, j.flying = nil, 0, true
	return b.op()
}

// settle takes over what became of a batch.
func (j *journal) settle(b *batch, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.s.space.Release(b.room)
	j.flying = false
	if err != nil {
		return j.fail(err)
	}
	j.durable, j.commits, j.listed, j.pushed = b.hi, b.appends, b.after, b.pushed
	if b.ended() {
		j.seq, j.ending = b.hi, nil
	}
	if !j.closed {
		j.ring.add(j.s, b.entries, b.tail)
	}
	j.announce()
	switch {
	case j.waiting > 0:
		j.flush()
	case len(j.pending) > 0 || j.ending != nil:
		j.later()
	}
	return nil
}

// announce wakes those who wait for this journal. The caller holds mu.
func (j *journal) announce() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
	j.s.announce(j.root, j.owner)
}

// fail ends the journal. The caller holds mu.
func (j *journal) fail(err error) error {
	if j.broken == nil {
		j.broken = err
		j.s.space.Release(j.room)
		j.pending, j.ending, j.room = nil, nil, 0
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
	store.Poke(j.wake) // its driver learns of it
	return j.broken
}

// lose ends a journal whose run somebody else has claimed.
func (j *journal) lose() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.fail(fmt.Errorf("epoch %d of %s: %w", j.epoch, j.root, agent.ErrFenced))
}

// Inbound returns the inbox rows that no event has named yet, in order.
func (j *journal) Inbound(ctx context.Context) ([]*teamv1.Inbound, error) {
	j.mu.Lock()
	err, unread, ended := j.held(), j.unread, j.ended
	j.unread = false
	j.mu.Unlock()
	if err != nil || !unread || ended {
		return nil, err
	}
	rows, err := j.s.inbox(ctx, j.s.db.reader(), j.root)
	if err != nil || len(rows) > 0 {
		j.arrived()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	left := rows[:0]
	for _, in := range rows {
		if !j.named[in.GetN()] { // they are there until their events are on record
			left = append(left, in)
		}
	}
	return left, err
}

// arrived notes that the inbox may hold something.
func (j *journal) arrived() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unread = true
}

// Wake receives when the inbox may have changed.
func (j *journal) Wake() <-chan struct{} { return j.wake }

// give ends the claim in this process.
func (j *journal) give() {
	j.s.forget(j)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if j.timer != nil {
		j.timer.Stop()
	}
	j.ring.drop(j.s)
	_ = j.fail(agent.ErrFenced) // of what was never committed
}
