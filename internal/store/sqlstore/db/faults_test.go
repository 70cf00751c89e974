package db

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// A group of PostgreSQL in which a plain statement fails: what looks first, and has
// a transaction of its own, is neither done nor told of twice.
func TestPostgres_A_16_AFailureInAGroupRepeatsNoPlan(t *testing.T) {
	t.Parallel()
	s := opened(t, pgtest.URL(t))
	d := s.Engine.(*postgresDB)
	var plans, told, failed atomic.Int64
	plan := &Op{
		Plan: func(context.Context, Querier) error { plans.Add(1); return nil },
		Done: func(context.Context, Querier, error) error { told.Add(1); return nil },
	}
	bad := &Op{
		Stmts: []Stmt{With(`SELECT 1 / 0`)},
		Done:  func(_ context.Context, _ Querier, err error) error { failed.Add(1); return err },
	}
	d.writer.commit([]*Op{plan, bad})
	d.writer.work.Wait()
	if plans.Load() != 1 || told.Load() != 1 || failed.Load() != 1 {
		t.Errorf("the plan ran %d times and was told %d times, the other %d times; want once each", plans.Load(), told.Load(), failed.Load())
	}
}

// After a write that the disk had no room for, nobody writes: a server that is not
// ready gets no calls. It must become ready all the same.
func TestSQLite_P13_ReadyAgainWithoutWrites(t *testing.T) {
	t.Parallel()
	s := opened(t, fileURL(t))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Heal(ctx, func() bool { return false }, s.Touch)
	for range 3 {
		s.state().wrote(errors.New("the disk is full"))
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

// Changes that meet an outage together are told of it together.
func TestPostgres_WritesFailTogether(t *testing.T) {
	t.Parallel()
	s := opened(t, pgtest.URL(t))
	d := s.Engine.(*postgresDB)
	d.patience = 300 * time.Millisecond
	var told atomic.Int64
	ops := make([]*Op, 20)
	for i := range ops {
		ops[i] = &Op{
			Stmts: []Stmt{With(`DO $$ BEGIN RAISE EXCEPTION 'out of reach' USING ERRCODE = '57P03'; END $$`)},
			Done: func(_ context.Context, _ Querier, err error) error {
				if errors.Is(err, runs.ErrStorage) {
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
	s := opened(t, pgtest.URL(t))
	var limit string
	if err := s.Reader().Scan(t.Context(), []any{&limit}, `SHOW idle_in_transaction_session_timeout`); err != nil || limit != "10s" {
		t.Errorf("idle_in_transaction_session_timeout = %s, %v", limit, err)
	}
}

// A replica that is cut off while it sends a group does not keep the rows that the part which has arrived
// has locked: the database looks whether its peer is there. Such a session is not idle, so no other limit
// ends it.
func TestPostgres_P20_HalfAGroupIsEnded(t *testing.T) {
	s := opened(t, pgtest.URL(t))
	silence := 0
	for _, setting := range []string{"idle", "interval", "count"} {
		var text string
		if err := s.Reader().Scan(t.Context(), []any{&text}, `SELECT setting FROM pg_settings WHERE name = $1`, "tcp_keepalives_"+setting); err != nil {
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
	if err := s.Reader().Scan(t.Context(), []any{&unanswered}, `SELECT setting FROM pg_settings WHERE name = 'tcp_user_timeout'`); err != nil || unanswered != "10000" {
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
	if err = d.failed(err); !errors.Is(err, runs.ErrStorage) || d.health.problem() == nil {
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

// A notification need not wait for the disk. All else that is written over the same connection, which a pooler
// may hand on, does.
func TestPostgres_P20_OnlyNotificationsAreNotSynced(t *testing.T) {
	s := opened(t, pgtest.URL(t))
	d := s.Engine.(*postgresDB)
	if v := d.bell.send.RuntimeParams["synchronous_commit"]; v != "on" {
		t.Errorf("the connection for notifications begins with synchronous_commit = %q", v)
	}
	c, err := d.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	setting := func() (v string) {
		t.Helper()
		if err := c.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if _, err := tx.Exec(t.Context(), notify, channel, "self"); err != nil {
		t.Fatal(err)
	}
	if v := setting(); v != "off" {
		t.Errorf("synchronous_commit is %s for a notification", v)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := setting(); v != "on" {
		t.Errorf("synchronous_commit is %s after it", v)
	}
}

func TestP3_ACommitIsSynced(t *testing.T) {
	opened(t, fileURL(t))
	var mode string
	var synchronous int
	err := opened(t, fileURL(t)).Do(t.Context(), func(ctx context.Context, q Querier) error {
		if err := q.Scan(ctx, []any{&mode}, `PRAGMA journal_mode`); err != nil {
			return err
		}
		return q.Scan(ctx, []any{&synchronous}, `PRAGMA synchronous`)
	})
	if err != nil || mode != "wal" || synchronous != 2 {
		t.Fatalf("journal_mode %s, synchronous %d, %v; want wal, 2 (FULL)", mode, synchronous, err)
	}
}

// Every commit is on the disk, and those that wait for one share the next.
func TestSQLite_GroupsCommits(t *testing.T) {
	s := opened(t, fileURL(t))
	w := &s.Engine.(*sqliteDB).writer
	write, groups, begun, full := w.write, 0, make(chan struct{}), make(chan struct{})
	w.write = func(ctx context.Context, ops []*Op) ([]*Op, error) {
		if groups++; groups == 1 {
			close(begun)
			<-full
		}
		return write(ctx, ops)
	}
	const commits = 64
	done := make(chan error, commits)
	touch := func() { done <- s.Touch(context.Background()) }
	go touch()
	<-begun
	for range commits - 1 {
		go touch()
	}
	for queued := 0; queued < commits-1; {
		w.mu.Lock()
		queued = len(w.queue)
		w.mu.Unlock()
	}
	close(full)
	for range commits {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if groups != 2 {
		t.Errorf("%d transactions for %d commits, want 2", groups, commits)
	}
}
