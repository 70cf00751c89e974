package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

func opened(t *testing.T, url string, cfg Config) *Store {
	t.Helper()
	s, err := Open(context.Background(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func fileURL(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "team.db") }

func created(t *testing.T, s *Store, id string) {
	t.Helper()
	m := agent.UserMessage("m-"+id, "do it")
	n := a2a.New{Owner: "o", MessageID: "m-" + id, Digest: []byte("d"), Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Owner: "o", Message: m}}
	if _, _, err := s.Create(context.Background(), n); err != nil {
		t.Fatal(err)
	}
}

func claimedOne(t *testing.T, s *Store) a2a.Claim {
	t.Helper()
	claims, _, err := s.Claim(context.Background(), "r", a2a.NewRoom(10, nil))
	if err != nil || len(claims) != 1 {
		t.Fatalf("Claim = %v, %v, want one", claims, err)
	}
	return claims[0]
}

// A group of PostgreSQL in which a plain statement fails: what looks first, and has
// a transaction of its own, is neither done nor told of twice.
func TestPostgres_A_16_AFailureInAGroupRepeatsNoPlan(t *testing.T) {
	t.Parallel()
	s := opened(t, pgtest.URL(t), Config{})
	d := s.db.(*postgresDB)
	var plans, told, failed atomic.Int64
	plan := &op{
		plan: func(context.Context, querier) error { plans.Add(1); return nil },
		done: func(context.Context, querier, error) error { told.Add(1); return nil },
	}
	bad := &op{
		stmts: []stmt{{`SELECT 1 / 0`, nil}},
		done:  func(_ context.Context, _ querier, err error) error { failed.Add(1); return err },
	}
	d.writer.commit([]*op{plan, bad})
	d.writer.work.Wait()
	if plans.Load() != 1 || told.Load() != 1 || failed.Load() != 1 {
		t.Errorf("the plan ran %d times and was told %d times, the other %d times; want once each", plans.Load(), told.Load(), failed.Load())
	}
}

// twice commits a transaction, loses the answer, and tries again.
type twice struct{ database }

func (d twice) do(ctx context.Context, f func(context.Context, querier) error) error {
	if err := d.database.do(ctx, f); err != nil {
		return err
	}
	return d.database.do(ctx, f)
}

func (d twice) statement(ctx context.Context, f func(context.Context, querier) error) error {
	return d.do(ctx, f)
}

func TestA_16_AClaimWhoseAnswerWasLostIsMadeAgain(t *testing.T) {
	s := opened(t, fileURL(t), Config{})
	created(t, s, "one")
	if err := s.Beat(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	s.stop() // the sweep uses the database too
	s.work.Wait()
	db := s.db
	s.db = twice{db}
	claims, _, err := s.Claim(t.Context(), "r", a2a.NewRoom(10, nil))
	s.db = db
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
	s := opened(t, pgtest.URL(t), Config{})
	created(t, s, "one")
	s.forget(claimedOne(t, s).Journal.(*journal)) // as if its answer was lost
	s.doubt()
	tx, err := s.db.(*postgresDB).pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM run WHERE id = 'one' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Beat(ctx, "r"); err != nil {
		t.Errorf("Beat waits for the lock: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
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
	s := opened(t, pgtest.URL(t), Config{})
	created(t, s, "one")
	tx, err := s.db.(*postgresDB).pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM run WHERE id = 'one' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	claims, next, err := s.Claim(t.Context(), "r", a2a.NewRoom(10, nil))
	if err != nil || len(claims) > 0 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	if left := next.Sub(s.Now()); left < 10*time.Millisecond {
		t.Errorf("the next claim is in %v", left)
	}
}

// An input is named by an event that is just being written.
func TestA_10_AnInputThatIsBeingConsumedIsNotReturned(t *testing.T) {
	s := opened(t, fileURL(t), Config{})
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	in := &teamv1.Inbound{Key: "k", Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("k", "x")}}}
	n, _, err := s.Put(t.Context(), a2a.Key{Owner: "o", ID: "one"}, in, []byte("d"), nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{}, 2)
	hold := func(until chan struct{}) *op {
		return &op{
			plan: func(context.Context, querier) error { begun <- struct{}{}; <-until; return nil },
			done: func(_ context.Context, _ querier, err error) error { return err },
		}
	}
	if err := s.db.add(once{hold(first), &atomic.Bool{}}); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.db.add(once{hold(second), &atomic.Bool{}}); err != nil {
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
	s := opened(t, fileURL(t), Config{})
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	ev := &teamv1.Event{Seq: 2, Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "x"}}}
	j.give()
	_ = j.settle(&batch{j: j, entries: []entry{{ev: ev}}, lo: 1, hi: 2}, nil)
	if n := s.ringed.Load(); n != 0 {
		t.Errorf("%d bytes are held for good", n)
	}
}

// Pages of any size are one statement.
func TestList_SizesShareAStatement(t *testing.T) {
	s := opened(t, fileURL(t), Config{})
	for size := range 50 {
		if _, err := s.List(t.Context(), "o", a2a.Filter{PageSize: size + 1, State: a2av1.TaskState_TASK_STATE_WORKING}); err != nil {
			t.Fatal(err)
		}
	}
	reads := s.db.(*sqliteDB).reads
	reads.mu.RLock()
	defer reads.mu.RUnlock()
	if n := len(reads.prepared); n > 20 {
		t.Errorf("%d statements are kept", n)
	}
}

// After a write that the disk had no room for, nobody writes: a server that is not
// ready gets no calls. It must become ready all the same.
func TestSQLite_P13_ReadyAgainWithoutWrites(t *testing.T) {
	t.Parallel()
	s := opened(t, fileURL(t), Config{})
	created(t, s, "one")
	for range 3 { // the first look for what is old writes as well
		s.db.state().wrote(errors.New("the disk is full"))
		deadline := time.After(5 * time.Second)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for s.Ready() != nil {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatal("never ready again")
			}
		}
	}
}

// What is old is deleted while a store is copied into another.
func TestCopy_KeepsDefinitionsThatRunsAreTiedTo(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	from := opened(t, fileURL(t), Config{Clock: func() time.Time { return now }})
	if err := from.PutDefinition(t.Context(), "rev", []byte("body")); err != nil {
		t.Fatal(err)
	}
	for i := range 1200 {
		id := "t" + strconv.Itoa(i)
		acc := &teamv1.Accepted{TaskId: id, Agent: "a", Owner: "o", Message: agent.UserMessage("m-"+id, "x"), Pins: &teamv1.Pins{Revisions: map[string]string{"a": "rev"}}}
		if _, _, err := from.Create(t.Context(), a2a.New{Owner: "o", Accepted: acc}); err != nil {
			t.Fatal(err)
		}
	}
	later := now.Add(2 * time.Hour)
	to := opened(t, fileURL(t), Config{Clock: func() time.Time { return later }})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = to.Sweep(context.Background())
			}
		}
	}()
	_, err := Copy(t.Context(), from, to)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Definition(t.Context(), "rev"); err != nil {
		t.Errorf("Definition of runs that go on: %v", err)
	}
}

// Changes that meet an outage together are told of it together.
func TestPostgres_WritesFailTogether(t *testing.T) {
	t.Parallel()
	s := opened(t, pgtest.URL(t), Config{})
	s.stop() // the background work writes too
	s.work.Wait()
	d := s.db.(*postgresDB)
	d.patience = 300 * time.Millisecond
	var told atomic.Int64
	ops := make([]*op, 20)
	for i := range ops {
		ops[i] = &op{
			stmts: []stmt{{`DO $$ BEGIN RAISE EXCEPTION 'out of reach' USING ERRCODE = '57P03'; END $$`, nil}},
			done: func(_ context.Context, _ querier, err error) error {
				if errors.Is(err, a2a.ErrStorage) {
					told.Add(1)
				}
				return err
			},
		}
	}
	start := time.Now()
	d.writer.commit(ops)
	if took := time.Since(start); told.Load() != 20 || took > 5*time.Second {
		t.Errorf("%d were told, the last after %v", told.Load(), took)
	}
	if s.Ready() == nil {
		t.Error("the store is ready while nothing can be written")
	}
}

// A replica that hangs in a transaction does not keep the rows that it has locked.
func TestPostgres_A_16_ATransactionThatHangsIsEnded(t *testing.T) {
	s := opened(t, pgtest.URL(t), Config{})
	var limit string
	if err := s.db.reader().scan(t.Context(), []any{&limit}, `SHOW idle_in_transaction_session_timeout`); err != nil || limit != "10s" {
		t.Errorf("idle_in_transaction_session_timeout = %s, %v", limit, err)
	}
}

// A replica that is cut off while it sends a group does not keep the rows that the part which has arrived
// has locked: the database looks whether its peer is there. Such a session is not idle, so no other limit
// ends it.
func TestPostgres_P20_HalfAGroupIsEnded(t *testing.T) {
	s := opened(t, pgtest.URL(t), Config{})
	silence := 0
	for _, setting := range []string{"idle", "interval", "count"} {
		var text string
		if err := s.db.reader().scan(t.Context(), []any{&text}, `SELECT setting FROM pg_settings WHERE name = $1`, "tcp_keepalives_"+setting); err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n <= 0:
			t.Fatalf("tcp_keepalives_%s is %q: %v", setting, text, err)
		case setting == "count":
			silence *= n
		case setting == "interval":
			silence = n
		}
	}
	var unanswered string
	if err := s.db.reader().scan(t.Context(), []any{&unanswered}, `SELECT setting FROM pg_settings WHERE name = 'tcp_user_timeout'`); err != nil || unanswered != "10000" {
		t.Errorf("tcp_user_timeout is %s ms, want 10000: %v", unanswered, err)
	}
	if silence > 10 {
		t.Errorf("the database misses its peer after %d s without an answer, want 10 at most", silence)
	}
}

// Somebody else writes to the file: nothing is recorded, which callers are told as such.
func TestSQLite_P13_ALockedFileIsAStoreThatCannotRecord(t *testing.T) {
	d := &sqliteDB{health: newHealth()}
	file := filepath.Join(t.TempDir(), "x.db")
	one, two := beside(t, file), beside(t, file)
	if _, err := one.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	_, err := two.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	if err = d.failed(err); !errors.Is(err, a2a.ErrStorage) || d.health.problem() == nil {
		t.Errorf("failed = %v, problem %v", err, d.health.problem())
	}
}

func beside(t *testing.T, file string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), db.Close() })
	return c
}

// What nobody has committed when the store closes is refused afterwards, unless it
// was written before.
func TestA_16_AClosedStoreRefuses(t *testing.T) {
	for name, url := range map[string]string{"sqlite": fileURL(t), "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, url, Config{})
			created(t, s, "one")
			j := claimedOne(t, s).Journal
			if err := j.Append(t.Context(), &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "x"}}}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			err := j.Commit(t.Context())
			records, rerr := opened(t, url, Config{}).Events(t.Context(), a2a.Key{Owner: "o", ID: "one"}, 0, 10)
			if rerr != nil || len(records) == 1 && !errors.Is(err, a2a.ErrStorage) || len(records) > 1 && err != nil {
				t.Errorf("Commit to a closed store: %v; on record are %v, %v", err, records, rerr)
			}
		})
	}
}
