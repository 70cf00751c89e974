package sqlstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// paid is the end of a step that has cost n micros.
func paid(step, path string, n int64) *teamv1.Event {
	return &teamv1.Event{Scope: step, Agent: path, Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Spent: &teamv1.Spent{CostMicros: n, ModelCalls: 1},
	}}}
}

// costsOf returns what a store says was spent in all hours, and the number of sums.
func costsOf(t testing.TB, s *sqlstore.Store, q cost.Query) (micros int64, sums []cost.Sum) {
	t.Helper()
	if q.Until == 0 {
		q.Until = 1 << 40
	}
	sums, err := s.Costs(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, sum := range sums {
		micros += sum.Spent().GetCostMicros()
	}
	return micros, sums
}

// wantCosts wants a total, and a number of rows in the table.
func wantCosts(t testing.TB, s *sqlstore.Store, when string, micros, rows int64) {
	t.Helper()
	if got, sums := costsOf(t, s, cost.Query{}); got != micros {
		t.Errorf("%s: %d micros, want %d: %v", when, got, micros, sums)
	}
	if n := s.Count(context.Background(), t, "cost"); n != rows {
		t.Errorf("%s: %d rows, want %d", when, n, rows)
	}
}

// TestS_60_CostsOfDeletedRuns: the costs of runs that have ended become sums, which stay when the runs
// are deleted; the hours of a day become one after a month, and are deleted after 400 days.
func TestS_60_CostsOfDeletedRuns(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("S-60 "+name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever, Retention: 24 * time.Hour})
			for i := range 30 {
				finish(t, s, id(i), paid("1", fmt.Sprint("a/", i%3), 10))
			}
			create(t, s, "goes-on")
			c := claim(t, s, "r")
			record(t, c, paid("1", "a/0", 10))
			wantCosts(t, s, "before a sweep", 310, 31)
			sweep(t, s)
			wantCosts(t, s, "after a sweep", 310, 4)
			now = now.Add(time.Hour)
			record(t, c, paid("2", "a/0", 1), end())
			sweep(t, s)
			wantCosts(t, s, "an hour later", 311, 4)
			now = now.Add(25 * time.Hour)
			sweep(t, s)
			if _, _, err := s.Task(t.Context(), key(id(7))); err == nil {
				t.Fatal("a run is still there after the retention")
			}
			wantCosts(t, s, "after the runs were deleted", 311, 4)
			now = now.Add(cost.Hourly)
			sweep(t, s)
			wantCosts(t, s, "a month later", 311, 3)
			march := cost.HourOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
			if micros, sums := costsOf(t, s, cost.Query{From: march, Until: march + 24, ByDay: true}); micros != 311 || sums[0].Hour != march {
				t.Errorf("of the day: %d micros, %v", micros, sums)
			}
			now = now.Add(cost.Kept - cost.Hourly)
			sweep(t, s)
			wantCosts(t, s, "after 400 days", 0, 0)
		})
	}
}

// TestS_60_SweepWithoutCosts: old runs are deleted even if costs cannot be added up, and the error is
// reported. Their costs are added up when that is possible again.
func TestS_60_SweepWithoutCosts(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("S-60 "+name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever, Retention: 24 * time.Hour})
			for i := range 3 {
				finish(t, s, id(i), paid("1", "a/b", 10))
			}
			now = now.Add(25 * time.Hour)
			s.Exec(t.Context(), t, `ALTER TABLE cost RENAME TO cost_gone`)
			if err := s.Sweep(t.Context()); err == nil {
				t.Error("a sweep that cannot add up costs reports no error")
			}
			if n := s.Count(t.Context(), t, "run"); n != 0 {
				t.Errorf("%d runs are left", n)
			}
			s.Exec(t.Context(), t, `ALTER TABLE cost_gone RENAME TO cost`)
			wantCosts(t, s, "after the runs were deleted", 30, 3)
			sweep(t, s)
			wantCosts(t, s, "after a sweep", 30, 1)
		})
	}
}

// TestS_60_ManyCosts: costs that are more than one transaction adds up lose nothing.
func TestS_60_ManyCosts(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("S-60 "+name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := open(t, url(t), sqlstore.Config{Clock: func() time.Time { return now }, Lease: forever})
			for i := range 3 {
				var steps []*teamv1.Event
				for j := range 250 {
					steps = append(steps, paid(fmt.Sprint(j+1), fmt.Sprint("a/", j), 1))
				}
				finish(t, s, id(i), steps...)
				now = now.Add(time.Hour)
			}
			wantCosts(t, s, "before a sweep", 750, 750)
			sweep(t, s)
			wantCosts(t, s, "after a sweep", 750, 750)
			now = now.Add(cost.Hourly + 24*time.Hour)
			sweep(t, s)
			wantCosts(t, s, "a month later", 750, 250)
		})
	}
}

// TestPostgres_S_60_SweepsTogether: replicas that add up the costs at the same time, while runs go on,
// count each cost once.
func TestPostgres_S_60_SweepsTogether(t *testing.T) {
	url := pgtest.URL(t)
	stores := []*sqlstore.Store{open(t, url, sqlstore.Config{}), open(t, url, sqlstore.Config{})}
	const runs = 120
	var wg sync.WaitGroup
	done := make(chan struct{})
	for _, s := range stores {
		wg.Go(func() {
			for {
				if err := s.Sweep(context.Background()); err != nil {
					t.Errorf("sweep: %v", err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range runs {
		finish(t, stores[0], id(i), paid("1", fmt.Sprint("a/", i%7), 10), paid("2", fmt.Sprint("a/", i%5), 1))
		if micros, _ := costsOf(t, stores[1], cost.Query{}); micros != int64(i+1)*11 {
			t.Errorf("after %d runs %d micros, want %d", i+1, micros, (i+1)*11)
		}
	}
	close(done)
	wg.Wait()
	sweep(t, stores[0])
	if micros, _ := costsOf(t, stores[1], cost.Query{}); micros != runs*11 {
		t.Errorf("%d micros, want %d", micros, runs*11)
	}
}
