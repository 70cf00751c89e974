package sqlstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// Readers that leave in the middle of a read hold no later reader back in time.
func TestSQLite_A_07_AReadThatIsBrokenOffLeavesNothingBehind(t *testing.T) {
	s := open(t, sqliteURL(t), sqlstore.Config{})
	create(t, s, "long")
	c := claim(t, s, "r")
	events := make([]*teamv1.Event, 2000)
	for i := range events {
		events[i] = note("x")
	}
	record(t, c, events...)
	record(t, c, end())
	if _, err := s.Park(t.Context(), c, runs.Park{Done: true}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration((i*37+w*11)%3000)*time.Microsecond)
				_, _ = s.Events(ctx, key("long"), 0, 5000)
				_, _, _ = s.Task(ctx, key("long"))
				cancel()
			}
		})
	}
	for i := range 100 {
		create(t, s, id(i))
		for range 4 {
			if _, _, err := s.Task(t.Context(), key(id(i))); err != nil {
				t.Errorf("task %d is not seen after its creation: %v", i, err)
			}
		}
		if claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(10, nil)); err != nil || len(claims) != 1 {
			t.Errorf("task %d: %d claims, %v", i, len(claims), err)
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	wg.Wait()
}

// What one reader has been shown, no other reader is denied: a commit is in the
// database a moment before its journal knows.
func TestSQLite_P5_NobodyIsShownMoreThanOthers(t *testing.T) {
	s := open(t, sqliteURL(t), sqlstore.Config{})
	for i := range 200 {
		create(t, s, id(i))
		c := claim(t, s, "r")
		if err := c.Journal.Append(t.Context(), note("x")); err != nil { // on record by itself, a moment later
			t.Fatal(err)
		}
		for seen := int64(1); seen < 2; {
			records, err := s.Events(t.Context(), key(id(i)), 0, 10) // from further back than the ring
			if err != nil {
				t.Fatal(err)
			}
			seen = records[len(records)-1].Seq
			if _, at, err := s.Task(t.Context(), key(id(i))); err != nil || at < seen {
				t.Fatalf("run %d: the task shows %d, %v, after event %d was shown", i, at, err, seen)
			}
		}
	}
}
