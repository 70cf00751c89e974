package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // rows are counted
	"google.golang.org/grpc/metadata"
	_ "modernc.org/sqlite" // likewise

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// waitingRuns is how many runs wait: BENCH_WAITING, else 10,000, or a few where
// only it is looked at whether the benchmark runs at all.
func waitingRuns(b *testing.B) int {
	b.Helper()
	text, set := os.LookupEnv("BENCH_WAITING")
	switch {
	case set:
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("BENCH_WAITING: %q", text)
		}
		return n
	case measure.BudgetOf(b).Ops > 0:
		return 200
	}
	return 10_000
}

// clients is how many calls are made at the same time.
const clients = 64

// BenchmarkWaiting has many runs of a team wait for people at the same time, in
// one process, and then answers all of them. A run that waits is a row and has no
// goroutine.
func BenchmarkWaiting(b *testing.B) {
	n := waitingRuns(b)
	t := &measure.Table{
		Once:  true,
		Title: "runs of a team that wait for people, in one process",
		Head:  "store\truns\tto wait\theap/run\tgoroutines\trun rows\theld\treplicas\tevents/run\tto the end\tcompleted",
		Goals: []string{"heap/run and goroutines: growth of the process while the runs wait, after a garbage collection; held: runs that a replica drives"},
	}
	for _, place := range []func(testing.TB) rig.Place{rig.Memory, rig.SQLite, rig.PostgreSQL} {
		at := place(b)
		b.Run(at.Name, func(b *testing.B) { wait(b, t, at, n) })
	}
	t.Print()
}

// wait measures one kind of store. The store keeps its tasks, so it cannot be measured again with a larger b.N, for
// which testing calls wait if it took less than -benchtime.
func wait(b *testing.B, t *measure.Table, at rig.Place, n int) {
	if b.N > 1 {
		return
	}
	s, done := at.Open(b)
	target, stop := rig.Start(b, server.Config{Agent: asker(b), Store: s})
	defer done()
	defer stop()
	conn := dial(b, target.GRPC)
	defer func() { _ = conn.Close() }()
	w := &waiters{b: b, client: a2av1.NewA2AServiceClient(conn), n: n}
	w.send(0) // connections and pools are there before anything is counted
	w.until(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, 1)
	before := footprint()
	begin := time.Now()
	w.each(1, w.send)
	w.until(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, n)
	asked := time.Since(begin)
	after := footprint()
	rows := rowsOf(b, at.URL)
	begin = time.Now()
	w.each(0, w.answer)
	w.until(a2av1.TaskState_TASK_STATE_COMPLETED, n)
	answered := time.Since(begin)
	perRun := (float64(after.heap) - float64(before.heap)) / float64(n)
	t.Add("%s\t%d\t%s\t%.0f B\t%d\t%s\t%s\t%s\t%s\t%s\t%d", at.Name, n, asked.Round(time.Millisecond), perRun, after.goroutines-before.goroutines,
		rows.runs, rows.held, rows.replicas, rows.events, answered.Round(time.Millisecond), n)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perRun, "B/run")
	b.ReportMetric(float64(after.goroutines-before.goroutines), "goroutines")
	b.ReportMetric(answered.Seconds(), "s-to-the-end")
}

// asker is a team whose only member asks.
func asker(b *testing.B) agent.Agent {
	b.Helper()
	a, err := scripted.New(scripted.Config{ID: "member", Steps: []*teamv1.ScriptedStep{
		{Do: &teamv1.ScriptedStep_Ask{Ask: "go on?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "told {{answer}}"}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "ask", Member: "member"}}})
	if err != nil {
		b.Fatal(err)
	}
	return teamOf(b, w, a, nil)
}

// waiters are the callers of all runs.
type waiters struct {
	b      *testing.B
	client a2av1.A2AServiceClient
	n      int

	ids sync.Map // of tasks, by number
}

// each calls f for every run from a number on, some at the same time.
func (w *waiters) each(from int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := from; i < w.n; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
}

// call bounds a call.
func (w *waiters) call(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(w.b.Context(), "a2a-version", "1.0"), time.Minute)
	defer cancel()
	if err := f(ctx); err != nil {
		w.b.Error(err)
	}
}

func (w *waiters) send(i int) {
	w.call(func(ctx context.Context) error {
		resp, err := w.client.SendMessage(ctx, &a2av1.SendMessageRequest{
			Message: agent.UserMessage(fmt.Sprint("m", i), "x"), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: true},
		})
		w.ids.Store(i, resp.GetTask().GetId())
		return err
	})
}

func (w *waiters) answer(i int) {
	id, _ := w.ids.Load(i)
	m := agent.UserMessage(fmt.Sprint("a", i), "yes")
	m.TaskId, _ = id.(string)
	w.call(func(ctx context.Context) error {
		_, err := w.client.SendMessage(ctx, &a2av1.SendMessageRequest{
			Message: m, Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: true},
		})
		return err
	})
}

// until waits until so many tasks have a state.
func (w *waiters) until(state a2av1.TaskState, n int) {
	w.b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 15_000 { // five minutes
		var total int
		w.call(func(ctx context.Context) error {
			page, err := w.client.ListTasks(ctx, &a2av1.ListTasksRequest{Status: state, PageSize: new(int32(1))})
			total = int(page.GetTotalSize())
			return err
		})
		if total == n {
			return
		}
		<-tick.C
	}
	w.b.Fatalf("there are not %d tasks that are %s", n, state)
}

// held is what a process holds.
type held struct {
	heap       uint64
	goroutines int
}

func footprint() held {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return held{m.HeapAlloc, runtime.NumGoroutine()}
}

// rows are those of a database.
type rows struct{ runs, held, replicas, events string }

// rowsOf counts them; what is kept in memory has none.
func rowsOf(b *testing.B, url string) rows {
	b.Helper()
	driver, source := "pgx", url
	if file, is := strings.CutPrefix(url, "sqlite:"); is {
		driver, source = "sqlite", file
	} else if !strings.HasPrefix(url, "postgres:") {
		return rows{"-", "-", "-", "-"}
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var r rows
	var runs, events int
	for query, to := range map[string]any{
		`SELECT count(*) FROM run`: &runs, `SELECT count(*) FROM run WHERE holder IS NOT NULL`: &r.held,
		`SELECT count(*) FROM replica`: &r.replicas, `SELECT count(*) FROM event`: &events,
	} {
		err = errors.Join(err, db.QueryRowContext(b.Context(), query).Scan(to))
	}
	if err != nil {
		b.Fatal(err)
	}
	r.runs, r.events = strconv.Itoa(runs), strconv.Itoa(events/max(runs, 1))
	return r
}
