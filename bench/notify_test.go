package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// BenchmarkNotify guards against notifications that hold up commits: 64 runs on
// PostgreSQL, with a reader of each on another replica and without. Notifications
// inside the appends cost a factor of twelve.
func BenchmarkNotify(b *testing.B) {
	t := &measure.Table{
		Title: "64 runs on PostgreSQL, alone and read on another replica",
		Head:  "rival\tsteps/s\tp50\tp99\txsteps",
		Goals: []string{"goal notify: rival=read elsewhere: xsteps >= 0.5"},
	}
	pgtest.URL(b) // or skip
	rivals := []measure.Rival{{Name: "unread", Start: durable(rig.PostgreSQL)}, {Name: "read elsewhere", Start: readElsewhere}}
	all := measure.Race(b, measure.BudgetOf(b), 64, rivals)
	b.ReportMetric(0, "ns/op")
	for i, r := range rivals {
		t.Add("%s\t%.0f\t%s\t%s\t%.2f", r.Name, measure.Median(all[i], rate), measure.Short(measure.Median(all[i], p50)), measure.Short(measure.Median(all[i], p99)),
			measure.Ratio(all[i], all[0], rate))
	}
	b.ReportMetric(measure.Ratio(all[1], all[0], rate), "xsteps")
	t.Print()
}

// readElsewhere is a store with a run for each caller, and a second one on the same
// database that reads them.
func readElsewhere(b *testing.B) (measure.Call, func()) {
	url := pgtest.URL(b)
	var stores [2]server.Store
	for i := range stores {
		s, err := server.OpenStore(b.Context(), url, server.StoreConfig{})
		if err != nil {
			b.Fatal(err)
		}
		stores[i] = s
	}
	ctx, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	r := &driven{store: stores[0], text: filler(), of: map[int64]*journal{}, opened: func(root string) {
		readers.Go(func() { tail(ctx, stores[1], root) })
	}}
	return r.step, func() {
		stop()
		readers.Wait()
		for _, s := range stores {
			if err := s.Close(); err != nil {
				b.Error(fmt.Errorf("close: %w", err))
			}
		}
	}
}

// tail reads a run as it grows.
func tail(ctx context.Context, s runs.Store, root string) {
	wake, stop := s.Watch(root)
	defer stop()
	var cursor int64
	for {
		page, err := s.Events(ctx, runs.Key{Owner: "bench/bench", ID: root}, cursor, 256)
		if err != nil {
			return // the benchmark is over
		}
		for _, rec := range page {
			cursor = rec.Seq
		}
		if len(page) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}
