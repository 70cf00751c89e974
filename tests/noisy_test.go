package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
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
// printed.
func TestP11_OneAccountAtTwentyTimesItsLimit(t *testing.T) {
	for name, place := range map[string]func(testing.TB) rig.Place{"sqlite": rig.SQLite, "postgres": rig.PostgreSQL} {
		t.Run(name, func(t *testing.T) {
			store, _ := place(t).Open(t)
			target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Store: store, Keys: twoAccounts})
			alone := latency(t, target, "alone")
			setLimits(t, target, &teamv1.AccountLimits{RequestsPerSecond: proto.Float64(20), Burst: proto.Int32(20)})
			var flooding sync.WaitGroup
			var taken, refused atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			const workers, perSecond = 8, 20
			for w := range workers {
				c, err := rig.NewGRPC(target.As("acme", "ann"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				flooding.Go(func() {
					tick := time.NewTicker(workers * time.Second / (20 * perSecond))
					defer tick.Stop()
					for i := 0; ctx.Err() == nil; i++ {
						select {
						case <-tick.C:
						case <-ctx.Done():
							return
						}
						_, err := c.Send(ctx, rig.Text("echo", fmt.Sprint("flood-", w, "-", i), "hi"))
						switch f := rig.Fault(err); {
						case err == nil:
							taken.Add(1)
						case f.Reason == agent.ReasonInsufficientResources && f.Retry > 0:
							refused.Add(1)
						case ctx.Err() == nil:
							t.Error(err)
						}
					}
				})
			}
			for refused.Load() == 0 && ctx.Err() == nil { // until the limit is reached
				_ = latency(t, target, fmt.Sprint("before-", time.Now().UnixNano()))
			}
			flooded := latency(t, target, "flooded")
			stop()
			flooding.Wait()
			setLimits(t, target, nil)
			t.Logf("p99 of the other account: alone %s, flooded %s, ratio %.1f; of the flood %d were taken, %d refused",
				alone, flooded, float64(flooded)/float64(alone), taken.Load(), refused.Load())
		})
	}
}

// latency returns the 99th percentile of 200 calls of account other, all of which must succeed.
func latency(t *testing.T, target rig.Target, name string) time.Duration {
	t.Helper()
	c, err := rig.NewGRPC(target.As("other", "bob"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := make([]time.Duration, 200)
	for i := range all {
		began := time.Now()
		resp, err := c.Send(within(t), rig.Text("echo", fmt.Sprint(name, "-", i), "hi"))
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(resp, err)
		}
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// TestP22_RetriesThroughThreeLevels has 300 calls of a team, whose team has a team with a member that always
// fails, a model or an agent. However many levels there are, the upstream gets at most 1.2 times as many
// calls.
func TestP22_RetriesThroughThreeLevels(t *testing.T) {
	const calls = 300
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

// failAtOnce calls team top at least 50 times a second, and counts what arrives upstream.
func failAtOnce(t *testing.T, target rig.Target, calls int, upstream func() int) {
	t.Helper()
	c, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	var calling sync.WaitGroup
	for w := range 50 {
		calling.Go(func() {
			for i := range calls / 50 {
				resp, err := c.Send(within(t), rig.Text("top", fmt.Sprint("m-", w, "-", i), "hi"))
				if err != nil || resp.GetTask().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED {
					t.Error(resp, err)
				}
			}
		})
	}
	calling.Wait()
	n := upstream()
	rate := float64(calls) / time.Since(began).Seconds()
	if n > calls*12/10 {
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
