//go:build linux

package main_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// figuresVariable is the number of runs that TestFigures measures at each load.
const figuresVariable = "TEMPORAL_FIGURES"

// TestFigures measures runs per second at 1 and 64 in flight: with Temporal, with the store's engine, and bare workflows
// with one empty activity.
func TestFigures(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(figuresVariable))
	if err != nil {
		t.Skip("set " + figuresVariable + " to a number of runs")
	}
	s := start(t, agents)
	with := s.serve("a")
	sends := func(r *server) func(context.Context) {
		return func(context.Context) { r.send(t, "echo", "x", false) }
	}
	measure := func(name string, count int, one func(context.Context)) {
		one(t.Context()) // everything has begun
		for _, inFlight := range []int{1, 64} {
			count := count
			if inFlight == 1 {
				count /= 5
			}
			rate, p50, p95 := load(t.Context(), count, inFlight, one)
			t.Logf("%-10s %2d in flight: %6.1f/s, median %v, p95 %v", name, inFlight, rate, p50.Round(time.Millisecond), p95.Round(time.Millisecond))
		}
	}
	measure("Temporal", n, sends(with))
	measure("bare", n, bare(t, s))
	t.Logf("commits of the journal since the start: %d for %d runs", s.number(`SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`), n+n/5+2)
	waiting1000(t, with)

	without := start(t, agents)
	plain, err := without.servePlain("plain")
	if err != nil {
		t.Fatal(err)
	}
	measure("store", 4*n, sends(plain))
}

// waiting1000 measures what runs that wait hold in the memory of a server, and how long they take after their answers.
func waiting1000(t *testing.T, r *server) {
	const runs = 1000
	before := resident(t, r)
	var ids []string
	began := time.Now()
	for range runs {
		ids = append(ids, r.send(t, "asks", "x", true).GetId())
	}
	acknowledged := time.Since(began)
	for _, id := range ids {
		r.await(t, id, waiting)
	}
	wait, held := time.Since(began), resident(t, r)-before
	began = time.Now()
	for _, id := range ids {
		r.reply(t, id, "that one")
	}
	for _, id := range ids {
		r.await(t, id, completed)
	}
	t.Logf("%d runs were acknowledged in %v and waited after %v, with %d KiB more in the server; all had ended %v after the first answer", runs, acknowledged, wait, held, time.Since(began))
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

// load calls one count times, inFlight at a time.
func load(ctx context.Context, count, inFlight int, one func(context.Context)) (rate float64, p50, p95 time.Duration) {
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	began := time.Now()
	for worker := range inFlight {
		wg.Go(func() {
			for i := worker; i < count; i += inFlight {
				at := time.Now()
				one(ctx)
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all := time.Since(began)
	slices.Sort(took)
	return float64(count) / all.Seconds(), took[count/2], took[count*95/100]
}

// bare returns what runs a workflow with one empty activity, with two workers.
func bare(t *testing.T, s *stack) func(context.Context) {
	flow := func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "empty").Get(ctx, nil)
	}
	w := worker.New(s.client, "bare", worker.Options{MaxConcurrentActivityTaskPollers: 16, MaxConcurrentWorkflowTaskPollers: 16})
	w.RegisterWorkflowWithOptions(flow, workflow.RegisterOptions{Name: "bare"})
	w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "empty"})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
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
