//go:build linux

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// figuresVariable is the number of runs of each kind that TestFigures measures in a round.
	figuresVariable = "TEMPORAL_FIGURES"
	rounds          = 3
	// costsFile has what TestFigures has measured of each run, for the reckoning of tools/reckon. -update writes it.
	costsFile = "../../tools/reckon/costs.json"
)

// figuresFile has the kinds of runs that are measured. Beside teams, agents are served that teams have.
const figuresFile = agents + `teams:
  three: {workflow: {steps: [{id: a, agent: echo}, {id: b, agent: echo, after: [a]}, {id: c, agent: echo, after: [b]}]}}
  has: {workflow: {steps: [{id: a, agent: asks}, {id: b, agent: long}]}}
`

// TestFigures measures, in rounds on the same servers, what runs take and cost: with Temporal, with the store's engine, and
// as bare workflows with one empty activity. Temporal keeps its state in a PostgreSQL server of its own.
func TestFigures(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(figuresVariable))
	if err != nil {
		t.Skip("set " + figuresVariable + " to a number of runs")
	}
	with, without := newBench(t, true), newBench(t, false)
	empty := bare(t, with.stack)
	of := samples{}
	defer func() {
		t.Logf("medians of %d rounds, and the range\n%s", rounds, of.table("figure", "bare", "store", "temporal"))
	}()
	for round := range rounds {
		for _, b := range []*bench{with, without} {
			b.measure(of, n)
		}
		load(t.Context(), 64, 64, empty) // everything has begun
		for _, inFlight := range []int{1, 64} {
			of.rates("bare", inFlight, 1, func() []time.Duration { return load(t.Context(), runsOf(n, inFlight), inFlight, empty) })
		}
		t.Logf("round %d, load average %s", round+1, loadAverage(t))
	}
	with.faults(of)
	without.faults(of)
	if *update {
		of.write(t)
	}
}

// runsOf returns how many runs are made with a number of them in flight.
func runsOf(n, inFlight int) int {
	if inFlight == 1 {
		return n / 5
	}
	return n
}

// bench is two servers on a PostgreSQL server of their own, with Temporal or without.
type bench struct {
	*stack
	name     string
	a, b     *server
	journal  *pgtest.Server
	temporal *pgtest.Server // of Temporal; nil without
	idle     map[string]float64

	mu   sync.Mutex
	last string // the id of the last run; guarded by mu
}

func newBench(t *testing.T, withTemporal bool) *bench {
	t.Helper()
	programs, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{name: "store", journal: pgtest.New(t)}
	c := setup{yaml: figuresFile, store: b.journal.Schema(t)}
	b.stack = &stack{TB: t, built: programs, setup: c, store: c.store}
	if withTemporal {
		b.name, b.temporal = "temporal", pgtest.New(t)
		c.temporal = []string{"-postgres", hostOf(t, b.temporal)}
		b.stack = c.start(t)
	}
	serve := func(name string) *server {
		if withTemporal {
			return b.serve(name)
		}
		r, err := b.servePlain(name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	b.a, b.b = serve("a"), serve("b")
	b.idle = b.whenIdle()
	return b
}

func hostOf(t testing.TB, db *pgtest.Server) string {
	t.Helper()
	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// kind is a kind of runs: what is sent to, how many steps it has, and whether it asks.
type kind struct {
	name, agent string
	steps       int
	asks        bool
}

// kinds are what is measured.
var kinds = []kind{{"instant", "echo", 1, false}, {"question", "asks", 2, true}, {"three steps", "three", 3, false}}

// measure is a round.
func (b *bench) measure(of samples, n int) {
	for _, k := range kinds {
		load(b.Context(), 64, 64, b.one(k)) // everything has begun
		if !k.asks {
			of.rates(b.name, 1, k.steps, func() []time.Duration { return load(b.Context(), runsOf(n, 1), 1, b.one(k)) })
		}
	}
	before, began := b.read(), time.Now()
	for _, k := range kinds {
		if run := func() []time.Duration { return load(b.Context(), n, 64, b.one(k)) }; k.asks {
			run()
		} else {
			of.rates(b.name, 64, k.steps, run)
		}
		after := b.read()
		for what, value := range after {
			idle := b.idle[what] * time.Since(began).Seconds()
			of.add(k.name+": "+what, b.name, max(value-before[what]-idle, 0)/float64(n))
		}
		before, began = after, time.Now()
		if b.temporal != nil {
			of.add(k.name+": events of Temporal", b.name, float64(b.events(b.last)))
		}
	}
}

// one returns what makes a run of a kind.
func (b *bench) one(k kind) func(context.Context) {
	return func(context.Context) {
		task := b.a.send(b, k.agent, "x", false)
		if k.asks {
			m := agent.UserMessage(uuid.NewString(), "that one")
			m.TaskId = task.GetId()
			if _, err := b.a.Send(b.a.ctx, &a2av1.SendMessageRequest{Message: m}); err != nil {
				b.Error(err)
			}
		}
		b.mu.Lock()
		b.last = task.GetId()
		b.mu.Unlock()
	}
}

// settle is after what time PostgreSQL's statistics are up to date, also those of connections that do nothing.
const settle = 11 * time.Second

// read returns what has been used until now.
func (b *bench) read() map[string]float64 {
	_ = agent.Sleep(b.Context(), settle)
	used := map[string]float64{"CPU of servers, ms": ms(cpu(b, b.a.Cmd.Process.Pid) + cpu(b, b.b.Cmd.Process.Pid))}
	readDatabase(b, used, "the store", b.journal)
	if b.temporal != nil {
		used["CPU of Temporal, ms"] = ms(cpu(b, b.stack.temporal.Cmd.Process.Pid))
		readDatabase(b, used, "Temporal", b.temporal)
	}
	return used
}

// whenIdle returns what is used in a second in which nothing happens.
func (b *bench) whenIdle() map[string]float64 {
	before, began := b.read(), time.Now()
	after := b.read()
	for what := range after {
		after[what] = (after[what] - before[what]) / time.Since(began).Seconds()
	}
	return after
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// readDatabase adds what a PostgreSQL server has used.
func readDatabase(t testing.TB, used map[string]float64, of string, db *pgtest.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var commits, inserted, updated, wal, size float64
	var data string
	err = conn.QueryRow(t.Context(), `SELECT sum(xact_commit)::float8, sum(tup_inserted)::float8, sum(tup_updated)::float8,
pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, (SELECT sum(pg_database_size(oid)) FROM pg_database)::float8, current_setting('data_directory') FROM pg_stat_database`).
		Scan(&commits, &inserted, &updated, &wal, &size, &data)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pid), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	used["commits of "+of], used["rows inserted of "+of], used["rows updated of "+of] = commits, inserted, updated
	used["WAL of "+of+", KB"], used["disk of "+of+", KB"] = wal/1000, size/1000
	used["CPU of the database of "+of+", ms"] = ms(cpu(t, postmaster))
}

// cpu returns the time of processors that a process, its children, and those of them that have ended have taken.
func cpu(t testing.TB, pid int) (sum time.Duration) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0 // it has ended
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(after))
	const utime, tick = 11, 10 * time.Millisecond // of a second field from state, and its unit
	for _, f := range fields[utime : utime+4] {
		n, _ := strconv.Atoi(f)
		sum += time.Duration(n) * tick
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, c := range strings.Fields(string(children)) {
		n, _ := strconv.Atoi(c)
		sum += cpu(t, n)
	}
	return sum
}

// faults measures a death and cancels, and counts what was lost and what was done twice until then.
func (b *bench) faults(of samples) {
	of.add("runs lost", b.name, float64(b.number(`SELECT count(*) FROM run WHERE ended IS NULL`)))
	of.add("runs driven twice", b.name, float64(b.number(`SELECT count(*) FROM run WHERE epoch > 1 + (SELECT count(*) FROM task WHERE task.id = run.id AND agent = 'asks')`)))
	for range rounds {
		id := b.a.send(b, "long", "x", true).GetId()
		b.a.await(b, id, working)
		began := time.Now()
		if _, err := b.b.Cancel(b.b.ctx, &a2av1.CancelTaskRequest{Id: id}); err != nil {
			b.Fatal(err)
		}
		of.add("cancel to quiet, s", b.name, time.Since(began).Seconds())
	}
	const all = 20
	for range all {
		b.a.await(b, b.a.send(b, "long", "x", true).GetId(), working)
	}
	b.a.End(syscall.SIGKILL)
	killed := time.Now()
	b.until(all, `SELECT count(*) FROM run WHERE holder LIKE 'b-%'`)
	of.add("kill -9 to all going on, s", b.name, time.Since(killed).Seconds())
}

// samples are what was measured, by figure and subject.
type samples map[string]map[string][]float64

func (of samples) add(figure, subject string, value float64) {
	if of[figure] == nil {
		of[figure] = map[string][]float64{}
	}
	of[figure][subject] = append(of[figure][subject], value)
}

// rates adds runs and steps per second and the 95th percentile.
func (of samples) rates(subject string, inFlight, steps int, run func() []time.Duration) {
	began := time.Now()
	took := run()
	rate := float64(len(took)) / time.Since(began).Seconds()
	slices.Sort(took)
	figure := fmt.Sprintf("%d in flight", inFlight)
	switch steps {
	case 1:
		of.add(figure+": runs/s", subject, rate)
		of.add(figure+": 95th percentile, s", subject, took[len(took)*95/100].Seconds())
	default:
		of.add(figure+": steps/s of runs with three", subject, rate*float64(steps))
	}
}

// table returns the medians and ranges.
func (of samples) table(first string, subjects ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, first+"\t"+strings.Join(subjects, "\t"))
	figures := make([]string, 0, len(of))
	for f := range of {
		figures = append(figures, f)
	}
	slices.Sort(figures)
	for _, f := range figures {
		fmt.Fprint(w, f)
		for _, s := range subjects {
			fmt.Fprint(w, "\t"+spread(of[f][s]))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	return b.String()
}

// spread returns the median of values, and their range.
func spread(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g (%.3g-%.3g)", median(values), slices.Min(values), slices.Max(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// write writes the medians of what runs cost.
func (of samples) write(t *testing.T) {
	costs := map[string]map[string]map[string]float64{}
	for figure, by := range of {
		kind, what, ok := strings.Cut(figure, ": ")
		if !ok || strings.Contains(kind, "in flight") {
			continue
		}
		for subject, values := range by {
			if costs[subject] == nil {
				costs[subject] = map[string]map[string]float64{}
			}
			if costs[subject][kind] == nil {
				costs[subject][kind] = map[string]float64{}
			}
			rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", median(values)), 64)
			costs[subject][kind][what] = rounded
		}
	}
	text, err := json.MarshalIndent(costs, "", "  ")
	if err == nil {
		err = os.WriteFile(costsFile, append(text, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// loadAverage returns that of a minute.
func loadAverage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))[0]
}

// resident returns the resident memory of a server in KiB.
func resident(t *testing.T, r *server) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// load calls one count times, inFlight at a time, and returns how long each call took.
func load(ctx context.Context, count, inFlight int, one func(context.Context)) []time.Duration {
	took := make([]time.Duration, count)
	var wg sync.WaitGroup
	for worker := range inFlight {
		wg.Go(func() {
			for i := worker; i < count; i += inFlight {
				began := time.Now()
				one(ctx)
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return took
}

// bare returns what runs a workflow with one empty activity, with two workers.
func bare(t *testing.T, s *stack) func(context.Context) {
	flow := func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "empty").Get(ctx, nil)
	}
	for range 2 {
		w := worker.New(s.client, "bare", worker.Options{MaxConcurrentActivityTaskPollers: 16, MaxConcurrentWorkflowTaskPollers: 16})
		w.RegisterWorkflowWithOptions(flow, workflow.RegisterOptions{Name: "bare"})
		w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "empty"})
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
	}
	return func(ctx context.Context) {
		run, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: uuid.NewString(), TaskQueue: "bare"}, "bare")
		if err == nil {
			err = run.Get(ctx, nil)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
