package run

import (
	"context"
	"database/sql"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/testkit/dbtest"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

func created(t *testing.T, s *rig, id string) {
	t.Helper()
	m := agent.UserMessage("m-"+id, "do it")
	n := runs.New{Owner: "o", MessageID: "m-" + id, Digest: []byte("d"), Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Owner: "o", Message: m}}
	if _, _, err := s.Create(context.Background(), n); err != nil {
		t.Fatal(err)
	}
}

func claimedOne(t *testing.T, s *rig) runs.Claim {
	t.Helper()
	claims, _, err := s.Claim(context.Background(), "r", engine.NewRoom(10, nil))
	if err != nil || len(claims) != 1 {
		t.Fatalf("Claim = %v, %v, want one", claims, err)
	}
	return claims[0]
}

// twice commits a transaction, loses the answer, and tries again.
type twice struct{ db.Engine }

func (d twice) Do(ctx context.Context, f func(context.Context, db.Querier) error) error {
	if err := d.Engine.Do(ctx, f); err != nil {
		return err
	}
	return d.Engine.Do(ctx, f)
}

func (d twice) Statement(ctx context.Context, f func(context.Context, db.Querier) error) error {
	return d.Do(ctx, f)
}

func TestA_16_AClaimWhoseAnswerWasLostIsMadeAgain(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	if err := s.Beat(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	once := s.db.Engine
	s.db.Engine = twice{once}
	claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(10, nil))
	s.db.Engine = once
	if err != nil || len(claims) > 0 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	if err := s.Beat(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if c := claimedOne(t, s); c.Root != "one" {
		t.Errorf("claimed %s", c.Root)
	}
}

// An input locks the row of a lost claim while it is looked for.
func TestPostgres_A_16_ALostClaimIsFoundBehindALock(t *testing.T) {
	url := pgtest.URL(t)
	s := opened(t, url)
	created(t, s, "one")
	s.forget(claimedOne(t, s).Journal.(*journal)) // as if its answer was lost
	s.doubt()
	tx, err := other(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM run WHERE id = 'one' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Beat(ctx, "r"); err != nil {
		t.Errorf("Beat waits for the lock: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Beat(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if c := claimedOne(t, s); c.Root != "one" || c.Epoch != 2 {
		t.Errorf("claimed %s under %d", c.Root, c.Epoch)
	}
}

// Somebody who hangs has the row of a due run locked.
func TestPostgres_A_16_ALockedRunIsNotAskedForWithoutPause(t *testing.T) {
	url := pgtest.URL(t)
	s := opened(t, url)
	created(t, s, "one")
	tx, err := other(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM run WHERE id = 'one' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	claims, next, err := s.Claim(t.Context(), "r", engine.NewRoom(10, nil))
	if err != nil || len(claims) > 0 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	if left := next.Sub(s.db.Now()); left < 10*time.Millisecond {
		t.Errorf("the next claim is in %v", left)
	}
}

// other connects to a database of a store.
func other(t *testing.T, url string) *sql.DB {
	t.Helper()
	d, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// waiting is a change that is always made.
type waiting struct{ op *db.Op }

func (w waiting) Take() *db.Op  { return w.op }
func (w waiting) IsLarge() bool { return false }
func (w waiting) Of() string    { return "" }

// An input is named by an event that is just being written.
func TestA_10_AnInputThatIsBeingConsumedIsNotReturned(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	in := &teamv1.Inbound{Key: "k", Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("k", "x")}}}
	n, _, err := s.Put(t.Context(), runs.Key{Owner: "o", ID: "one"}, in, []byte("d"), nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{}, 2)
	hold := func(until chan struct{}) *db.Op {
		return &db.Op{
			Plan: func(context.Context, db.Querier) error { begun <- struct{}{}; <-until; return nil },
			Done: func(_ context.Context, _ db.Querier, err error) error { return err },
		}
	}
	if err := s.db.Add(waiting{hold(first)}); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.db.Add(waiting{hold(second)}); err != nil {
		t.Fatal(err)
	}
	ev := &teamv1.Event{Kind: &teamv1.Event_Received{Received: &teamv1.Received{Inbound: n}}}
	if err := j.Append(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	go func() { committed <- j.Commit(context.Background()) }()
	for queued := false; !queued; {
		j.mu.Lock()
		queued = j.queued
		j.mu.Unlock()
	}
	close(first)
	<-begun // the group with the event
	rows, err := j.Inbound(t.Context())
	close(second)
	if err != nil || len(rows) > 0 {
		t.Errorf("Inbound = %v, %v, want none", rows, err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
}

// A batch is on record after its claim was given up.
func TestA_16_ABatchOfAClosedJournalTakesNoMemory(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	ev := &teamv1.Event{Seq: 2, Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "x"}}}
	j.give()
	_ = j.settle(&batch{j: j, entries: []entry{{Entry: record.Entry{Event: ev}}}, lo: 1, hi: 2}, nil)
	if n := s.rings.Bytes(); n != 0 {
		t.Errorf("%d bytes are held for good", n)
	}
}

// claimedFirst is a database on which something happens before its first read.
type claimedFirst struct {
	db.Engine
	first *func()
}

type claimedFirstReader struct {
	db.Querier
	first *func()
}

func (d claimedFirst) Reader() db.Querier { return claimedFirstReader{d.Engine.Reader(), d.first} }

func (q claimedFirstReader) Again(ctx context.Context, read func() error) error {
	if first := *q.first; first != nil {
		*q.first = nil
		first()
	}
	return q.Querier.Again(ctx, read)
}

// A page that is read while the process claims the run has no event that the task does not show: what the journal does not
// know to be recorded yet.
func TestA_13_APageReadDuringAClaim(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	var j *journal
	claim := func() {
		j = claimedOne(t, s).Journal.(*journal)
		committed(t, j, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
		j.mu.Lock()
		defer j.mu.Unlock()
		j.durable-- // as long as the answer of the database is under way
	}
	before := s.db.Engine
	s.db.Engine = claimedFirst{before, &claim}
	page, err := s.Page(t.Context(), "one", "", 0, 10)
	s.db.Engine = before
	if err != nil || len(page) != 1 || page[0].Seq != 1 {
		t.Errorf("Page = %v, %v, want the first event", page, err)
	}
	j.mu.Lock()
	j.durable++
	j.mu.Unlock()
	if page, err = s.Page(t.Context(), "one", "", 1, 10); err != nil || len(page) != 1 {
		t.Errorf("Page = %v, %v, want the second event", page, err)
	}
}
