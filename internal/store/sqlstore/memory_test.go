package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() time.Time) storetest.Sweeper {
		return open(t, store.MemoryURL, sqlstore.Config{Clock: clock})
	})
}

// swept deletes what is old.
func swept(t *testing.T, s *sqlstore.Store) {
	t.Helper()
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestMemory_keeps_the_last_ended_runs(t *testing.T) {
	c := storetest.NewClock()
	s := open(t, store.MemoryURL, sqlstore.Config{Clock: c.Now, MaxEnded: 2})
	create(t, s, id(99)) // goes on, and stays
	claim(t, s, "r")
	for i := range 3 {
		finish(t, s, id(i))
		c.Move(time.Second)
	}
	swept(t, s)
	page, err := s.List(t.Context(), me, runs.Filter{})
	if err != nil || page.Total != 3 {
		t.Fatalf("List = %v, %v, want 3 tasks", page, err)
	}
	if _, _, err := s.Task(t.Context(), key(id(0))); !errors.Is(err, runs.ErrNotFound) {
		t.Fatalf("Task of the oldest: %v, want ErrNotFound", err)
	}
	if _, err := s.Events(t.Context(), key(id(0)), 0, 1); !errors.Is(err, runs.ErrNotFound) {
		t.Fatalf("Events of the oldest: %v, want ErrNotFound", err)
	}
	create(t, s, id(0))
}

// A store in memory deletes what is old also before the next sweep if much has been written.
func TestMemory_deletes_as_it_grows(t *testing.T) {
	s := open(t, store.MemoryURL, sqlstore.Config{MaxEnded: 10})
	n := 0
	until(t, "tasks are deleted", func() bool {
		for range 100 {
			finish(t, s, id(n))
			n++
		}
		page, err := s.List(t.Context(), me, runs.Filter{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		return page.Total < n
	})
}

// Whole conversations are deleted, the ones that nothing was added to for longest.
func TestMemory_keeps_the_conversations_used_last(t *testing.T) {
	c := storetest.NewClock()
	s := open(t, store.MemoryURL, sqlstore.Config{Clock: c.Now, MaxEnded: 2}) // 8 entries
	remember := func(context string, n int) {
		t.Helper()
		e := runs.Exchange{Task: fmt.Sprint(context, n), By: []runs.Contribution{{Path: "a", Messages: []*a2av1.Message{agent.NewMessage("x"), agent.NewMessage("y")}}}}
		if err := s.Remember(t.Context(), runs.Thread{Owner: me, ContextID: context}, e); err != nil {
			t.Fatal(err)
		}
		c.Move(time.Second)
	}
	wants := func(all map[string]int64) {
		t.Helper()
		swept(t, s)
		for context, want := range all {
			if n, err := s.Position(t.Context(), runs.Thread{Owner: me, ContextID: context}); n != want || err != nil {
				t.Errorf("%s: %d, %v, want %d", context, n, err, want)
			}
		}
	}
	remember("first", 1)
	remember("second", 1)
	remember("first", 2)
	remember("third", 1)
	wants(map[string]int64{"first": 4, "second": 2, "third": 2})
	remember("third", 2) // 10 entries
	wants(map[string]int64{"first": 4, "second": 0, "third": 4})
	for n := range 10 {
		remember("third", 10+n) // alone it may have more
	}
	wants(map[string]int64{"first": 0, "third": 24})
}

// TestT_49_ChainsOfWhichRecordsWereDropped: a store in memory drops the oldest of many records, and what is left can be
// verified. A record that is appended again has no effect.
func TestT_49_ChainsOfWhichRecordsWereDropped(t *testing.T) {
	s := open(t, store.MemoryURL, sqlstore.Config{})
	const n = 101
	for i := range n {
		r := audit.New(t.Context(), time.Unix(int64(i), 0), "denied", "x")
		r.Account = "acme"
		if err := s.AppendAudit(t.Context(), r, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Drop(t.Context(), n, 90); err != nil { // it has no more
		t.Fatal(err)
	}
	if first, err := s.Audit(t.Context(), "acme", 0, 1); err != nil || first[0].Seq != 1 {
		t.Fatalf("the first record is %v, %v", first, err)
	}
	if err := s.Drop(t.Context(), n-1, 90); err != nil {
		t.Fatal(err)
	}
	first, err := s.Audit(t.Context(), "acme", 0, 1)
	if err != nil || len(first) != 1 || first[0].Seq != 12 {
		t.Fatalf("the first record is %v, %v", first, err)
	}
	if last, err := audit.Verify(t.Context(), s, "acme", 0, ""); err != nil || last.Seq != n {
		t.Errorf("Verify = %d, %v, want %d", last.Seq, err, n)
	}
}

// Stores in memory share nothing, and create no file.
func TestMemory_is_nowhere_else(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	s, other := open(t, store.MemoryURL, sqlstore.Config{}), open(t, store.MemoryURL, sqlstore.Config{})
	finish(t, s, "t1")
	if _, _, err := other.Task(t.Context(), key("t1")); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("another store has the task: %v", err)
	}
	if _, err := s.Park(t.Context(), func() runs.Claim { create(t, other, "t2"); return claim(t, other, "r") }(), runs.Park{}); err == nil {
		t.Error("a claim of another store was parked")
	}
	for _, dir := range []string{".", os.TempDir()} {
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("files in %s: %v, %v", dir, files, err)
		}
	}
}

// A store in memory works in a bubble of synctest, whose time goes on while it is open.
func TestMemory_in_a_bubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.MemoryURL, sqlstore.Config{Retention: time.Hour})
		finish(t, s, "t1")
		time.Sleep(2 * time.Hour)
		if _, _, err := s.Task(t.Context(), key("t1")); !errors.Is(err, runs.ErrNotFound) {
			t.Errorf("after its time: %v, want ErrNotFound", err)
		}
	})
}

// A caller that no longer waits does not harm the only connection.
func TestMemory_callers_that_leave(t *testing.T) {
	s := open(t, store.MemoryURL, sqlstore.Config{})
	finish(t, s, "t1")
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 10 {
		_, _, _ = s.Task(gone, key("t1"))
		_, _, _ = s.Create(gone, task("t2"))
	}
	if _, _, err := s.Task(t.Context(), key("t1")); err != nil {
		t.Error(err)
	}
}

func FuzzP17_PageToken(f *testing.F) {
	s := open(f, store.MemoryURL, sqlstore.Config{})
	create(f, s, id(1), id(2), id(3))
	page, err := s.List(context.Background(), me, runs.Filter{PageSize: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page.NextToken)
	f.Add("!")
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := s.List(t.Context(), me, runs.Filter{PageSize: 1, PageToken: token})
		if token == page.NextToken || token == "" {
			if err != nil || len(got.Tasks) != 1 || got.Total != 3 {
				t.Fatalf("List = %v, %v", got, err)
			}
			return
		}
		if !errors.Is(err, runs.ErrPageToken) {
			t.Fatalf("%q: %v, want ErrPageToken", token, err)
		}
	})
}

// BenchmarkMemory_Open is what each test with a store pays.
func BenchmarkMemory_Open(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s, err := sqlstore.Open(b.Context(), store.MemoryURL, sqlstore.Config{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
