package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// listSizes are how many tasks an owner has; BENCH_LIST names others:
// BENCH_LIST=1000,100000,1000000.
func listSizes(b *testing.B) []int {
	b.Helper()
	text, set := os.LookupEnv("BENCH_LIST")
	switch {
	case !set && testing.Short():
		text = "1000,2000"
	case !set:
		text = "1000,10000"
	}
	var sizes []int
	for _, field := range strings.Split(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatalf("BENCH_LIST: %v", err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// BenchmarkList is goal 13: pages of 50 tasks, one after the other, of an owner
// with few tasks and with many.
func BenchmarkList(b *testing.B) {
	t := &measure.Table{
		Title: "a page of 50 of an owner's tasks, its first page and count left out; runs kept in memory are not bounded",
		Head:  "store\ttasks\tfilter\tput\tdisk/task\tpages/s\tp50\tp99\tallocs/op\txp50\txp99",
		Goals: []string{
			"goal 13: tasks=1000000: xp99 <= 3", "goal 13: tasks=1000000: p99 <= 1ms", "goal 13: store=memory: put <= 5µs",
			"disk/task: the growth of the database, with its indexes, by a task of three events of some bytes",
		},
	}
	w := share(measure.BudgetOf(b), 3)
	for _, place := range []func(testing.TB) rig.Place{rig.Memory, rig.SQLite, rig.PostgreSQL} {
		at := place(b)
		b.Run(at.Name, func(b *testing.B) { lists(b, t, w, place, at.Name) })
	}
	t.Print()
}

// filters are what is listed.
var filters = []struct {
	name   string
	filter runs.Filter
}{{"none", runs.Filter{}}, {"context", runs.Filter{ContextID: "c7"}}, {"agent", runs.Filter{Agent: "bench"}}}

// lists measures one kind of store, the one with the fewest tasks first.
func lists(b *testing.B, t *measure.Table, w measure.Budget, place func(testing.TB) rig.Place, name string) {
	sizes := listSizes(b)
	stores, puts, disks := make([]keeper, len(sizes)), make([]time.Duration, len(sizes)), make([]string, len(sizes))
	for i, n := range sizes {
		url := place(b).URL
		stores[i] = openFor(b, url)
		empty := diskOf(b, url)
		puts[i] = fill(b, stores[i], n)
		analyze(b, url)
		disks[i] = "-"
		if used := diskOf(b, url) - empty; used > 0 {
			disks[i] = fmt.Sprintf("%d B", used/int64(n))
		}
	}
	for _, f := range filters {
		rivals := make([]measure.Rival, len(sizes))
		for i := range sizes {
			rivals[i] = measure.Rival{Name: fmt.Sprint(sizes[i]), Start: func(b *testing.B) (measure.Call, func()) { return pages(b, stores[i], f.filter), func() {} }}
		}
		all := measure.Race(b, w, 1, rivals)
		for i, own := range all {
			t.Add("%s\t%d\t%s\t%s\t%s\t%.0f\t%s\t%s\t%.0f\t%.2f\t%.2f", name, sizes[i], f.name, measure.Short(float64(puts[i])), disks[i],
				measure.Median(own, rate), measure.Short(measure.Median(own, p50)),
				measure.Short(measure.Median(own, p99)), measure.Median(own, measure.Allocs), measure.Ratio(own, all[0], p50), measure.Ratio(own, all[0], p99))
		}
		last := len(all) - 1
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(measure.Ratio(all[last], all[0], p99), f.name+"-xp99")
	}
}

// openFor opens a store that drops nothing.
func openFor(b *testing.B, url string) keeper {
	b.Helper()
	s, err := sqlstore.Open(b.Context(), url, sqlstore.Config{MaxEnded: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// analyze has PostgreSQL count what its tables hold, as it does by itself some
// time after they were filled.
func analyze(b *testing.B, url string) {
	b.Helper()
	if !strings.HasPrefix(url, "postgres:") {
		return
	}
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	_, err = conn.Exec(b.Context(), "ANALYZE")
	if err = errors.Join(err, conn.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
}

// diskOf returns how many bytes of the disk a store uses, 0 if it uses none. The log of SQLite, which
// is written over again and again, is left out.
func diskOf(b *testing.B, url string) (size int64) {
	b.Helper()
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		info, err := os.Stat(file)
		if err != nil {
			b.Fatal(err)
		}
		return info.Size()
	}
	if !strings.HasPrefix(url, "postgres:") {
		return 0
	}
	conn, err := pgx.Connect(b.Context(), url)
	if err == nil {
		const query = `SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace`
		err = errors.Join(conn.QueryRow(b.Context(), query).Scan(&size), conn.Close(b.Context()))
	}
	if err != nil {
		b.Fatal(err)
	}
	return size
}

// owned is who the tasks belong to.
const owned = "bench/bench"

// keeper is a store with its runs.
type keeper interface {
	runs.Store
	engine.Leases
}

// fill makes n tasks that have ended, in ten contexts, many at the same time, and returns what it
// took to make one.
func fill(b *testing.B, s keeper, n int) time.Duration {
	b.Helper()
	const writers = 128
	begin := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				errs[w] = put(b.Context(), s, i)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin) / time.Duration(n)
	err := errors.Join(errs...)
	for left := n; left > 0; {
		var claims []runs.Claim
		if err == nil {
			claims, _, err = s.Claim(b.Context(), "bench", engine.NewRoom(256, nil))
		}
		if err != nil || len(claims) == 0 {
			b.Fatalf("%d of %d tasks are not due: %v", left, n, err)
		}
		left -= len(claims)
		for _, c := range claims {
			wg.Go(func() {
				if err := end(b.Context(), s, c); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	return took
}

// put makes a task.
func put(ctx context.Context, s keeper, i int) error {
	id := fmt.Sprintf("task-%08d", i)
	m := agent.UserMessage(id, "do it")
	m.ContextId = fmt.Sprint("c", i%10)
	_, _, err := s.Create(ctx, runs.New{Owner: owned, MessageID: id, Accepted: &teamv1.Accepted{TaskId: id, Agent: "bench", Owner: owned, Message: m}})
	return err
}

// end ends a task's run.
func end(ctx context.Context, s keeper, c runs.Claim) error {
	ended := &teamv1.Event{Agent: "bench", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")},
	}}}
	if err := c.Journal.Append(ctx, ended); err != nil {
		return err
	}
	if err := c.Journal.Commit(ctx); err != nil {
		return err
	}
	_, err := s.Park(ctx, c, runs.Park{Done: true})
	return err
}

// pages reads one page after the other, and then again from the second.
func pages(b *testing.B, s runs.Store, f runs.Filter) measure.Call {
	b.Helper()
	f.PageSize = 50
	first, err := s.List(b.Context(), owned, f)
	if err != nil || first.NextToken == "" {
		b.Fatalf("%d tasks, no second page: %v", len(first.Tasks), err)
	}
	f.PageToken = first.NextToken
	return func(ctx context.Context, _ int64) error {
		page, err := s.List(ctx, owned, f)
		switch {
		case err != nil:
			return err
		case len(page.Tasks) == 0:
			return errors.New("an empty page")
		case page.NextToken == "":
			f.PageToken = first.NextToken
		default:
			f.PageToken = page.NextToken
		}
		return nil
	}
}
