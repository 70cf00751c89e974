package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// everything is greater than every sequence number.
const everything int64 = math.MaxInt64

// Events returns at most limit committed events after a sequence number, of the key's scope and
// below. It also returns those of a task that is not visible yet, because the sender of its message
// waits for them.
func (s *Store) Events(ctx context.Context, k a2a.Key, after int64, limit int) ([]a2a.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	root, scope, err := s.owned(ctx, k)
	if err != nil {
		return nil, err
	}
	return s.page(ctx, root, scope, after, limit)
}

// page returns committed events of a root after a sequence number, of a scope and below.
func (s *Store) page(ctx context.Context, root, scope string, after int64, limit int) ([]a2a.Record, error) {
	upTo := everything
	if j := s.live(root); j != nil {
		records, durable, ok := j.since(after, scope, limit)
		if ok {
			return records, nil
		}
		upTo = durable
	}
	return s.events(ctx, s.db.reader(), root, scope, after, upTo, limit)
}

// since returns the events that the ring has after a sequence number; ok is false if the ring does
// not reach back that far. durable is the last sequence number that the journal knows to be
// recorded. The database may hold more for a moment, which a reader must not see before others do.
func (j *journal) since(after int64, scope string, limit int) (records []a2a.Record, durable int64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	records, ok = j.ring.since(after, j.durable, scope, limit)
	return records, j.durable, ok
}

// shown returns the sequence number up to which readers see a root.
func (s *Store) shown(root string) int64 {
	if j := s.live(root); j != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.durable
	}
	return everything
}

// events reads events from the database.
func (s *Store) events(ctx context.Context, q querier, root, scope string, after, upTo int64, limit int) ([]a2a.Record, error) {
	below := scope + "."
	var records []a2a.Record
	err := s.eachEvent(ctx, q, root, func() { records = nil }, func(rec a2a.Record) error {
		records = append(records, rec)
		return nil
	}, `SELECT seq, scope, sum, body FROM event
WHERE id = $1 AND seq > $2 AND seq <= $7 AND ($3 = '' OR scope = $3 OR substr(scope, 1, $4) = $5) ORDER BY seq LIMIT $6`,
		root, after, scope, int64(len(below)), below, int64(limit), upTo)
	return records, err
}

// scanEvent reads the columns seq, scope, sum and body of an event. If blobs of it are missing from known,
// it returns their hashes and no event. The error may be a2a.ErrDataLoss.
func scanEvent(r *sql.Rows, root string, known blobs) (rec a2a.Record, missing [][]byte, err error) {
	var sum int64
	var scope string
	var record []byte
	if err := r.Scan(&rec.Seq, &scope, &sum, &record); err != nil {
		return rec, nil, err
	}
	body, missing, err := join(record, known)
	if err != nil {
		return rec, nil, dataLoss("event", root, rec.Seq)
	}
	if len(missing) == 0 {
		rec.Event, err = decodeEvent(root, rec.Seq, scope, sum, body)
	}
	return rec, missing, err
}

// journalOf reads a root's events up to a sequence number, and passes them to take in order. It may
// start again from the first event; it calls reset before each start.
func (s *Store) journalOf(ctx context.Context, q querier, root string, upTo int64, reset func(), take func(a2a.Record)) error {
	return s.eachEvent(ctx, q, root, reset, func(rec a2a.Record) error {
		take(rec)
		return nil
	}, `SELECT seq, scope, sum, body FROM event WHERE id = $1 AND seq <= $2 ORDER BY seq`, root, upTo)
}

// replay reads all recorded events. It returns the fold of the root, and the events without
// streamed text, which no replay needs.
func (s *Store) replay(ctx context.Context, q querier, root string) (*project.Fold, []*teamv1.Event, error) {
	var f *project.Fold
	var events []*teamv1.Event
	err := s.journalOf(ctx, q, root, everything, func() { f, events = project.New(root, ""), nil }, func(rec a2a.Record) {
		f.Apply(rec.Event)
		if rec.Event.GetDelta() == nil {
			events = append(events, rec.Event)
		}
	})
	if err == nil && len(events) == 0 {
		err = fmt.Errorf("journal of %s: it is empty: %w", root, a2a.ErrDataLoss)
	}
	return f, events, err
}

// inbox reads the inbox of a run in order.
func (s *Store) inbox(ctx context.Context, q querier, root string) ([]*teamv1.Inbound, error) {
	var list []*teamv1.Inbound
	err := each(ctx, q, func() { list = nil }, func(r *sql.Rows) error {
		var n, sum int64
		var body []byte
		if err := r.Scan(&n, &sum, &body); err != nil {
			return err
		}
		in, err := decodeInbound(root, n, sum, body)
		list = append(list, in)
		return err
	}, `SELECT n, sum, body FROM inbox WHERE id = $1 ORDER BY n`, root)
	return list, err
}

// errFound ends a scan before the last row.
var errFound = errors.New("found")

// answered returns an *a2a.AnsweredError if an answer to a question of a scope is recorded, nil
// otherwise.
func (s *Store) answered(ctx context.Context, q querier, root, scope, question string) (answered, err error) {
	err = s.eachEvent(ctx, q, root, func() { answered = nil }, func(rec a2a.Record) error {
		var decides bool
		if decides, answered = store.Decides(rec.Event, question); decides {
			return errFound
		}
		return nil
	}, `SELECT seq, scope, sum, body FROM event WHERE id = $1 AND scope = $2 AND delta = 0 ORDER BY seq DESC`, root, scope)
	if errors.Is(err, errFound) {
		err = nil
	}
	return answered, err
}

// Task returns the A2A task and the sequence number of the last event that it includes.
func (s *Store) Task(ctx context.Context, k a2a.Key) (*a2av1.Task, int64, error) {
	root, scope, err := s.owned(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	if scope != "" {
		return s.child(ctx, root, scope)
	}
	if j := s.live(root); j != nil {
		return j.task(ctx)
	}
	var r taskRow
	err = s.db.reader().scan(ctx, r.dest(), taskColumns+` WHERE task.id = $1`, root)
	if err != nil {
		return nil, 0, notFound(err)
	}
	return s.taskOf(ctx, &r)
}

// Agent returns the id of the agent that a root task was sent to.
func (s *Store) Agent(ctx context.Context, k a2a.Key) (id string, err error) {
	if j := s.live(k.ID); j != nil && j.owner == k.Owner {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.fold != nil {
			return j.fold.Agent(), nil
		}
	}
	err = s.db.reader().scan(ctx, []any{&id}, `SELECT agent FROM task WHERE id = $1 AND owner = $2`, k.ID, k.Owner)
	return id, notFound(err)
}

// taskRow is a row of the table task, with columns of its run.
type taskRow struct {
	id                                   string
	visible, statusAt, snapSeq, sum, seq int64
	snap                                 []byte
	dropped                              bool // snap exists, but was not kept
	parked                               sql.NullString
}

// taskColumns selects the columns of a taskRow.
const taskColumns = `SELECT task.id, visible, status_at, snap_seq, snap_sum, snap, seq, parked FROM task JOIN run ON run.id = task.id`

// smallTaskColumns is like taskColumns, without large snapshots.
var smallTaskColumns = strings.Replace(taskColumns, " snap,", fmt.Sprintf(" CASE WHEN length(snap) <= %d THEN snap END,", smallSnap), 1)

// dest returns the destinations for a scan of taskColumns.
func (r *taskRow) dest() []any {
	return []any{&r.id, &r.visible, &r.statusAt, &r.snapSeq, &r.sum, &r.snap, &r.seq, &r.parked}
}

// taskOf returns the task of a row and the sequence number of the last event that it includes. It
// uses the snapshot if that is current, and otherwise computes the task from the events, of which
// there may be more by then.
func (s *Store) taskOf(ctx context.Context, r *taskRow) (*a2av1.Task, int64, error) {
	if r.visible == 0 {
		return nil, 0, a2a.ErrNotFound
	}
	if r.snapSeq == r.seq && r.snap != nil {
		t := &a2av1.Task{}
		body, err := s.joined(ctx, s.db.reader(), r.id, r.snapSeq, r.snap)
		if err != nil {
			return nil, 0, err
		}
		if sumOf(r.id, r.snapSeq, "", body) != r.sum || proto.Unmarshal(body, t) != nil {
			return nil, 0, dataLoss("task", r.id, r.snapSeq)
		}
		return a2a.Parked(t, r.parked.String), r.seq, nil
	}
	f, seq, err := s.foldOf(ctx, r.id, "")
	switch {
	case err != nil:
		return nil, 0, err
	case seq == 0: // deleted after its row was read, or lost
		return nil, 0, dataLoss("the journal behind event", r.id, 0)
	}
	return a2a.Parked(f.Task(), r.parked.String), seq, nil
}

// child computes the task of a scope below a root.
func (s *Store) child(ctx context.Context, root, scope string) (*a2av1.Task, int64, error) {
	f, seq, err := s.foldOf(ctx, root, scope)
	if err != nil {
		return nil, 0, err
	}
	if !f.Visible() {
		return nil, 0, a2a.ErrNotFound
	}
	return f.Task(), seq, nil
}

// foldOf computes the fold of a scope as readers see it.
func (s *Store) foldOf(ctx context.Context, root, scope string) (*project.Fold, int64, error) {
	var f *project.Fold
	var seq int64
	err := s.journalOf(ctx, s.db.reader(), root, s.shown(root), func() { f, seq = project.New(root, scope), 0 }, func(rec a2a.Record) {
		f.Apply(rec.Event)
		seq = rec.Seq
	})
	return f, seq, err
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
	v := &j.view
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	if err := j.s.Ready(); err != nil && !j.s.db.single() && !j.fresh(v.seq) {
		return nil, 0, err // do not make further callers wait for their turn
	}
	for {
		page, err := j.s.Events(ctx, a2a.Key{Owner: j.owner, ID: j.root}, v.seq, viewPage)
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
		return nil, 0, a2a.ErrNotFound
	}
	return v.fold.Task(), v.seq, nil
}

// fresh reports whether the ring has the events after a sequence number, so that the database is
// not needed.
func (j *journal) fresh(seq int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.ring.since(seq, j.durable, "", 1)
	return ok
}
