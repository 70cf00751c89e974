package tests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/pkg/upstream"
	"github.com/agentteams/team-server/tests/rig"
)

// TestP11_OneAccountAtTwentyTimesItsLimit has one account call at twenty times its limit:
// what is refused says when to try again. No call of another account fails; how much longer they take is
// printed, and how much longer if the calls beyond the limit go to a server that does nothing but refuse
// them, because the callers share the processor with the servers here.
func TestP11_OneAccountAtTwentyTimesItsLimit(t *testing.T) {
	type deployment struct {
		name     string
		place    func(testing.TB) rig.Place
		replicas int
	}
	for _, c := range sample.Of(t, []deployment{{"sqlite", rig.SQLite, 1}, {"postgres", rig.PostgreSQL, 1}, {"three replicas", rig.PostgreSQL, 3}}) {
		t.Run(c.name, func(t *testing.T) {
			at := c.place(t)
			var targets []rig.Target
			for range c.replicas {
				store, _ := at.Open(t)
				targets = append(targets, rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Store: store, Settings: rig.Keys(twoAccounts...)}))
			}
			besides(t, targets)
		})
	}
}

// besides measures the calls of account other alone, beside calls within the limit of account acme, and
// beside its flood.
func besides(t *testing.T, targets []rig.Target) {
	t.Helper()
	const limit, burst = 20, 20
	lasts := 2 * time.Second
	if sample.All() {
		lasts = time.Minute
	}
	_ = latency(t, targets, "first", lasts/10)
	alone := latency(t, targets, "alone", max(lasts/4, 2*time.Second))
	within, beyond := flood(t, targets, limit), flood(t, []rig.Target{{GRPC: refusing(t)}}, 19*limit)
	yardstick := latency(t, targets, "yardstick", lasts)
	within.end(t)
	beyond.end(t)
	setLimits(t, targets[0], &teamv1.AccountLimits{RequestsPerSecond: proto.Float64(limit), Burst: proto.Int32(burst)})
	acme := flood(t, targets, 20*limit)
	for i := range targets { // until all of them know of the limit
		for acme.refused[i].Load() == 0 && t.Context().Err() == nil {
			_ = latency(t, targets, fmt.Sprint("before-", time.Now().UnixNano()), lasts/100)
		}
	}
	before, began := acme.taken.Load(), time.Now()
	flooded := latency(t, targets, "flooded", lasts)
	taken, took := acme.taken.Load()-before, time.Since(began)
	acme.end(t)
	setLimits(t, targets[0], nil)
	for _, target := range targets { // until all of them know of it, because the tasks are read at the end
		c := rig.NewREST(target.As("acme", "ann"))
		for rig.Fault(list(t, c)) != nil && t.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	refused := int64(0)
	for i := range targets {
		refused += acme.refused[i].Load()
	}
	t.Logf("p99 of the other account: alone %s, flooded %s, ratio %.1f; with the calls beyond the limit to another server %s, ratio to it %.1f",
		alone, flooded, float64(flooded)/float64(alone), yardstick, float64(flooded)/float64(yardstick))
	t.Logf("of the flood %.1f per second were taken in %v, with a limit of %d; %d were refused", float64(taken)/took.Seconds(), took.Round(time.Millisecond), limit, refused)
	if most := float64(limit)*(took.Seconds()+2)*1.2 + float64(burst*len(targets)); float64(taken) > most {
		t.Errorf("%d requests were taken in %v, more than %.0f", taken, took, most)
	}
	if sample.All() && float64(taken) < limit*took.Seconds()/2 {
		t.Errorf("only %d requests were taken in %v", taken, took)
	}
	if sample.All() && flooded > 3*max(alone, yardstick) {
		t.Error("the other account waits more than three times as long as without the calls beyond the limit")
	}
}

// list returns the error of a list of tasks.
func list(t *testing.T, c rig.Client) error {
	t.Helper()
	_, err := c.List(within(t), &a2av1.ListTasksRequest{})
	return err
}

// refusing returns the address of a gRPC server that refuses every call as soon as it can.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, "no")
	e.Retry, e.RetryAfter = true, time.Second
	refusal := wire.Status(e).Err()
	s := grpc.NewServer(grpc.InTapHandle(func(context.Context, *tap.Info) (context.Context, error) { return nil, refusal }))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	return l.Addr().String()
}

// flooding are calls of account acme.
type flooding struct {
	taken   atomic.Int64
	refused []atomic.Int64 // by target
	stop    context.CancelFunc
	calling sync.WaitGroup
}

// end ends the calls.
func (f *flooding) end(t *testing.T) {
	t.Helper()
	f.stop()
	f.calling.Wait()
}

// flood has account acme call targets so many times a second, all together.
func flood(t *testing.T, targets []rig.Target, perSecond int) *flooding {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	f := &flooding{refused: make([]atomic.Int64, len(targets)), stop: stop}
	const workers = 9 // as many for each of three targets
	for w := range workers {
		at := w % len(targets)
		c, err := rig.NewGRPC(targets[at].As("acme", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		began := time.Now().UnixNano()
		f.calling.Go(func() {
			next := time.Now().Add(time.Duration(w) * time.Second / time.Duration(perSecond)) // not all at once
			for i := 0; ctx.Err() == nil; i++ {
				select {
				case <-time.After(time.Until(next)):
				case <-ctx.Done():
					return
				}
				next = next.Add(workers * time.Second / time.Duration(perSecond))
				_, err := c.Send(ctx, rig.Text("echo", fmt.Sprint("flood-", began, "-", w, "-", i), "hi"))
				switch fault := rig.Fault(err); {
				case err == nil:
					f.taken.Add(1)
				case fault != nil && fault.Reason == agent.ReasonInsufficientResources && fault.Retry > 0:
					f.refused[at].Add(1)
				case ctx.Err() == nil:
					t.Error(err)
				}
			}
		})
	}
	return f
}

// latency returns the 99th percentile of the calls that account other makes for some time, one after the
// other, and at least 200. All must succeed.
func latency(t *testing.T, targets []rig.Target, name string, d time.Duration) time.Duration {
	t.Helper()
	var clients []rig.Client
	for _, target := range targets {
		c, err := rig.NewGRPC(target.As("other", "bob"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	var all []time.Duration
	for start := time.Now(); len(all) < 200 || time.Since(start) < d; {
		began := time.Now()
		i := len(all)
		returned := time.AfterFunc(15*time.Second, func() { _ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) }) // what does it wait for?
		resp, err := clients[i%len(clients)].Send(within(t), rig.Text("echo", fmt.Sprint(name, "-", i), "hi"))
		returned.Stop()
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(resp, err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)*99/100].Round(10 * time.Microsecond)
}

// TestP22_RetriesThroughThreeLevels has many calls of a team, whose team has a team with a member that always
// fails, a model or an agent. However many levels there are, the upstream gets no more retries than the budget of one
// account allows.
func TestP22_RetriesThroughThreeLevels(t *testing.T) {
	calls := 120
	if sample.All() {
		calls = 300
	}
	for name, opens := range map[string]int{"with the breaker": 0, "without it": 1_000_000} {
		guard := func() *upstream.Guard { return upstream.New(upstream.Config{Calls: opens}) }
		t.Run("a model "+name, func(t *testing.T) {
			llm := fakellm.New(t)
			llm.Answer("writer-model", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Status: 503} })
			m, err := openai.New(openai.Config{Name: "writer-model", BaseURL: llm.URL})
			if err != nil {
				t.Fatal(err)
			}
			g := guard()
			writer, err := leader.NewAgent(leader.AgentConfig{ID: "writer", Model: m, Upstreams: g, Limits: &teamv1.Limits{Retry: quickly}})
			if err != nil {
				t.Fatal(err)
			}
			reg := rig.Manager(t, writer)
			levels(t, reg, g, "writer")
			failAtOnce(t, rig.Serve(t, server.Config{Agents: reg}, llm), calls, func() int { return len(llm.Requests()) })
		})
		t.Run("an agent "+name, func(t *testing.T) {
			var attempts atomic.Int64
			far := &agent.Func{ID: "far", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
				attempts.Add(1)
				e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "down")
				e.Retry = true
				return nil, e.Because(errors.New("connection refused"))
			}}
			g := guard()
			reg := rig.Manager(t, far)
			levels(t, reg, g, "far")
			failAtOnce(t, rig.Serve(t, server.Config{Agents: reg}), calls, func() int { return int(attempts.Load()) })
		})
	}
}

// failAtOnce calls team top more than 50 times a second, and counts what arrives upstream. A call does not wait for the
// ones before it: one account that waits for its retries makes fewer calls, and may make all of its retries then.
func failAtOnce(t *testing.T, target rig.Target, calls int, upstream func() int) {
	t.Helper()
	c, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	var calling sync.WaitGroup
	next := time.NewTicker(time.Second / 150)
	defer next.Stop()
	for i := range calls {
		<-next.C
		calling.Go(func() {
			resp, err := c.Send(within(t), rig.Text("top", fmt.Sprint("m-", i), "hi"))
			if err != nil || resp.GetTask().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Error(resp, err)
			}
		})
	}
	rate := float64(calls) / time.Since(began).Seconds()
	calling.Wait()
	n := upstream()
	if most := calls*11/10 + int(50*time.Since(began).Seconds()); n > most { // a tenth, and 50 in each second in which it is not busy
		t.Errorf("%d attempts upstream for %d calls", n, calls)
	}
	if rate < 50 {
		t.Logf("only %.0f calls per second", rate)
	}
	t.Logf("%d attempts upstream for %d calls, %.0f per second", n, calls, rate)
}

// quickly is a retry policy with a short pause.
var quickly = &teamv1.Retry{Backoff: durationpb.New(time.Millisecond)}

// levels makes team top, of team middle, of team bottom, of a member.
func levels(t *testing.T, reg *manager.Manager, calls team.Upstreams, member string) {
	t.Helper()
	for _, id := range []string{"bottom", "middle", "top"} {
		s, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "ask", Member: member}}})
		if err != nil {
			t.Fatal(err)
		}
		tm, err := team.New(team.Config{ID: id, Mode: "workflow", Scheduler: s, Members: []team.Member{{Agent: member}}, Registry: reg, Upstreams: calls, Limits: &teamv1.Limits{Retry: quickly}})
		if err != nil {
			t.Fatal(err)
		}
		if err := reg.Register(id, tm); err != nil {
			t.Fatal(err)
		}
		member = id
	}
}
