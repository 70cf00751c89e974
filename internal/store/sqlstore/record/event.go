// Package record has the rows of runs as they are stored: events, their blobs, and inputs.
package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
)

// Tables are the tables of this package whose rows are copied with a store.
var Tables = []string{"inbox", "blob", "event"}

// DeleteRun are the statements that delete what belongs to a run, $1, and DeleteDeltas those that delete its streamed text.
var (
	DeleteRun    = []string{`DELETE FROM event WHERE id = $1`, `DELETE FROM blob WHERE id = $1`, `DELETE FROM inbox WHERE id = $1`}
	DeleteDeltas = []string{`DELETE FROM event WHERE id = $1 AND delta = 1`, `UPDATE run SET deltas = 0 WHERE id = $1`}
)

// Everything is greater than every sequence number.
const Everything int64 = math.MaxInt64

// Statements that read events. Each selects what Each scans.
const (
	selectEvents = `SELECT seq, scope, sum, body FROM event
WHERE id = $1 AND seq > $2 AND seq <= $7 AND ($3 = '' OR scope = $3 OR substr(scope, 1, $4) = $5) ORDER BY seq LIMIT $6`
	selectJournal = `SELECT seq, scope, sum, body FROM event WHERE id = $1 AND seq <= $2 ORDER BY seq`
	selectScope   = `SELECT seq, scope, sum, body FROM event WHERE id = $1 AND scope = $2 AND delta = 0 ORDER BY seq DESC`
	selectInbox   = `SELECT n, sum, body FROM inbox WHERE id = $1 ORDER BY n`
)

// Entry is an event in its stored form.
type Entry struct {
	Event *teamv1.Event
	Body  []byte // without the blobs; a delta has none
	Blobs []Blob
	Size  int   // of the event with its blobs, in bytes
	Sum   int64 // checksum of the event with its blobs
}

// Encode returns an event in its stored form.
func Encode(root string, ev *teamv1.Event) (Entry, error) {
	body, err := proto.Marshal(ev)
	if err != nil {
		return Entry{}, fmt.Errorf("encode event %d of %s: %w", ev.GetSeq(), root, err)
	}
	e := Entry{Event: ev, Sum: db.SumOf(root, ev.GetSeq(), ev.GetScope(), body), Size: len(body)}
	if ev.GetDelta() != nil { // streamed text is deleted before its run
		e.Body = body
	} else {
		e.Body, e.Blobs = Split(ev, body, nil)
	}
	return e, nil
}

// Decode decodes a stored event with its blobs. The error is runs.ErrDataLoss.
func Decode(id string, seq int64, scope string, sum int64, body []byte) (*teamv1.Event, error) {
	ev := &teamv1.Event{}
	if db.SumOf(id, seq, scope, body) != sum || proto.Unmarshal(body, ev) != nil {
		return nil, db.DataLoss("event", id, seq)
	}
	return ev, nil
}

// decodeInbound decodes a stored input. The error is runs.ErrDataLoss.
func decodeInbound(id string, n, sum int64, body []byte) (*teamv1.Inbound, error) {
	in := &teamv1.Inbound{}
	if db.SumOf(id, n, "", body) != sum || proto.Unmarshal(body, in) != nil {
		return nil, db.DataLoss("input", id, n)
	}
	in.N = n
	return in, nil
}

// Events reads at most limit events of a scope and below, after one sequence number and up to another.
func Events(ctx context.Context, q db.Querier, root, scope string, after, upTo int64, limit int) ([]runs.Record, error) {
	below := scope + "."
	var records []runs.Record
	err := eachEvent(ctx, q, root, func() { records = nil }, func(rec runs.Record) error {
		records = append(records, rec)
		return nil
	}, selectEvents, root, after, scope, int64(len(below)), below, int64(limit), upTo)
	return records, err
}

// scanEvent reads the columns seq, scope, sum and body of an event. If blobs of it are missing from known,
// it returns the references to them and no event. The error may be runs.ErrDataLoss.
func scanEvent(r *sql.Rows, root string, known blobs) (rec runs.Record, missing []ref, err error) {
	var sum int64
	var scope string
	var record []byte
	if err := r.Scan(&rec.Seq, &scope, &sum, &record); err != nil {
		return rec, nil, err
	}
	body, missing, err := join(record, known)
	if err != nil {
		return rec, nil, db.DataLoss("event", root, rec.Seq)
	}
	if len(missing) == 0 {
		rec.Event, err = Decode(root, rec.Seq, scope, sum, body)
	}
	return rec, missing, err
}

// readJournal reads a root's events up to a sequence number, and passes them to take in order. It may
// start again from the first event; it calls reset before each start.
func readJournal(ctx context.Context, q db.Querier, root string, upTo int64, reset func(), take func(runs.Record)) error {
	return eachEvent(ctx, q, root, reset, func(rec runs.Record) error {
		take(rec)
		return nil
	}, selectJournal, root, upTo)
}

// Fold computes the fold of a scope from the events up to a sequence number. seq is the last one; 0 without events.
func Fold(ctx context.Context, q db.Querier, root, scope string, upTo int64) (f *project.Fold, seq int64, err error) {
	err = readJournal(ctx, q, root, upTo, func() { f, seq = project.New(root, scope), 0 }, func(rec runs.Record) {
		f.Apply(rec.Event)
		seq = rec.Seq
	})
	return f, seq, err
}

// Replay reads all recorded events. It returns the fold of the root, and the events without
// streamed text, which no replay needs.
func Replay(ctx context.Context, q db.Querier, root string) (*project.Fold, []*teamv1.Event, error) {
	var f *project.Fold
	var events []*teamv1.Event
	err := readJournal(ctx, q, root, Everything, func() { f, events = project.New(root, ""), nil }, func(rec runs.Record) {
		f.Apply(rec.Event)
		if rec.Event.GetDelta() == nil {
			events = append(events, rec.Event)
		}
	})
	if err == nil && len(events) == 0 {
		err = fmt.Errorf("journal of %s: it is empty: %w", root, runs.ErrDataLoss)
	}
	return f, events, err
}

// Inbox reads the inbox of a run in order.
func Inbox(ctx context.Context, q db.Querier, root string) ([]*teamv1.Inbound, error) {
	return db.List(ctx, q, func(r *sql.Rows) (*teamv1.Inbound, error) {
		var n, sum int64
		var body []byte
		if err := r.Scan(&n, &sum, &body); err != nil {
			return nil, err
		}
		return decodeInbound(root, n, sum, body)
	}, selectInbox, root)
}

// errFound ends a scan before the last row.
var errFound = errors.New("found")

// Answered returns an *runs.AnsweredError if an answer to a question of a scope is recorded, nil
// otherwise.
func Answered(ctx context.Context, q db.Querier, root, scope, question string) (answered, err error) {
	err = eachEvent(ctx, q, root, func() { answered = nil }, func(rec runs.Record) error {
		var decides bool
		if decides, answered = store.Decides(rec.Event, question); decides {
			return errFound
		}
		return nil
	}, selectScope, root, scope)
	if errors.Is(err, errFound) {
		err = nil
	}
	return answered, err
}

// IsDelta returns 1 if an event is a text delta, 0 otherwise.
func IsDelta(ev *teamv1.Event) int64 { return db.Flag(ev.GetDelta() != nil) }
