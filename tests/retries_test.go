package tests

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/pkg/upstream"
	"github.com/agentteams/team-server/tests/rig"
)

// written is a team of one writer whose model is a fake endpoint.
func written(t *testing.T, llm *fakellm.Server, price openai.Price, calls team.Upstreams, l *teamv1.Limits) *manager.Manager {
	t.Helper()
	m, err := openai.New(openai.Config{Name: "writer-model", BaseURL: llm.URL, Price: price})
	if err != nil {
		t.Fatal(err)
	}
	reg := rig.Manager(t, metered(t, "writer", m, nil), metered(t, "editor", m, nil))
	s, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "write", Member: "writer"}}})
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: "desk", Mode: "workflow", Scheduler: s, Members: []team.Member{{Agent: "writer"}}, Registry: reg, Limits: l, Upstreams: calls})
	if err != nil {
		t.Fatal(err)
	}
	if err := reg.Register("desk", tm); err != nil {
		t.Fatal(err)
	}
	return reg
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestS_10_RetryWithBackoff: 500, 500, text: three requests with growing gaps, one
// delegation, no cycle (R-002-32).
func TestS_10_RetryWithBackoff(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Script("writer-model", fakellm.Turn{Status: 500}, fakellm.Turn{Status: 500}, fakellm.Turn{Text: "a text"})
		store, _ := at.Open(t)
		limits := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(40 * time.Millisecond)}}
		target := rig.Serve(t, server.Config{Agents: written(t, llm, openai.Price{}, upstream.New(upstream.Config{}), limits), Store: store}, llm)
		all := events(t, target, "desk", "s-10")
		if got := agent.Text(all[len(all)-1].GetEnded().GetReply()); got != "a text" {
			t.Fatal(all[len(all)-1])
		}
		reqs := llm.Requests()
		if len(reqs) != 3 {
			t.Fatalf("%d requests", len(reqs))
		}
		one, two := reqs[1].Arrived.Sub(reqs[0].Finished), reqs[2].Arrived.Sub(reqs[1].Finished)
		if one < 35*time.Millisecond || two < 75*time.Millisecond {
			t.Errorf("gaps %s and %s, want about 40 and 80 ms", one, two)
		}
		delegations, attempts := 0, int32(0)
		for _, ev := range all {
			if s := ev.GetStarted(); s != nil && ev.GetAgent() == "desk/writer" {
				if ev.GetScope() == "1" {
					delegations++
				}
				attempts = max(attempts, s.GetAttempt())
			}
		}
		if delegations != 1 || attempts != 3 {
			t.Errorf("%d delegations, %d attempts", delegations, attempts)
		}
	})
}

// TestS_11_RetryBoundedByTime: 500, then an answer that does not come: TIMED_OUT at
// the member's time from the first attempt, and the request is closed (R-002-8.2).
func TestS_11_RetryBoundedByTime(t *testing.T) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		gate := fakellm.NewGate()
		llm.Script("writer-model", fakellm.Turn{Status: 500}, fakellm.Turn{Gate: gate})
		store, _ := at.Open(t)
		const most = 600 * time.Millisecond
		limits := &teamv1.Limits{MemberTimeout: durationpb.New(most), Retry: &teamv1.Retry{Backoff: durationpb.New(50 * time.Millisecond)}}
		target := rig.Serve(t, server.Config{Agents: written(t, llm, openai.Price{}, upstream.New(upstream.Config{}), limits), Store: store}, llm)
		all := events(t, target, "desk", "s-11")
		end := all[len(all)-1].GetEnded()
		if end.GetError().GetReason() != agent.ReasonTimeout || end.GetOutcome() != teamv1.Outcome_OUTCOME_TIMED_OUT {
			t.Fatal(end)
		}
		if err := llm.Quiet(within(t)); err != nil {
			t.Error("I3: a request is still open:", err)
		}
		reqs := llm.Requests()
		if len(reqs) != 2 || !reqs[1].Gone {
			t.Fatalf("%+v", reqs)
		}
		if d := reqs[1].Finished.Sub(reqs[0].Arrived); d < most-100*time.Millisecond || d > most+2*time.Second {
			t.Errorf("it ended %s after the first attempt, want %s", d, most)
		}
	})
}

// TestS_60_MoneyStopsTheRun: prices of the configuration, usage of the endpoint.
func TestS_60_MoneyStopsTheRun(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("writer-model", func(*fakellm.Request) fakellm.Turn {
			return fakellm.Turn{Text: "a text", Usage: &fakellm.Usage{PromptTokens: 1000, CompletionTokens: 500}}
		})
		// A call costs 1000 * 0.25 + 500 * 2 = 1250 millionths.
		reg := written(t, llm, openai.Price{Input: 0.25, Output: 2}, nil, nil)
		limitedChain(t, reg, "poor", &teamv1.Limits{MaxCost: proto.Float64(0.00126)}, "writer", "editor")
		target := rig.Serve(t, server.Config{Agents: reg, Store: kept(t, place)}, llm)
		all := events(t, target, "desk", "rich")
		if got := all[len(all)-1].GetEnded().GetSpent().GetCostMicros(); got != 1250 {
			t.Error(got)
		}
		all = events(t, target, "poor", "poor")
		end := all[len(all)-1].GetEnded()
		if e := end.GetError(); e.GetReason() != agent.ReasonBudgetExceeded || e.GetDetails()["limit"] != "max_cost" || e.GetDetails()["value"] != "0.00126" ||
			end.GetSpent().GetCostMicros() != 1250 {
			t.Error(end)
		}
	})
}

// TestS_56_BreakerOfARemoteMember: a peer that is down is a member's error, after
// some of those it is not called any more, by no team, and once it is up again a
// probe finds out (R-002-33).
func TestS_56_BreakerOfARemoteMember(t *testing.T) {
	onStages(t, func(t *testing.T, place rig.Place) {
		at := "127.0.0.1:" + child.FreePort(t)
		calls := upstream.New(upstream.Config{Calls: 4, Probe: 200 * time.Millisecond})
		near := rig.Manager(t)
		if err := near.Register("far", overService(t, "far", rig.Target{GRPC: at}, "echo")); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"one", "two"} {
			s, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "ask", Member: "far"}}})
			if err != nil {
				t.Fatal(err)
			}
			tm, err := team.New(team.Config{ID: id, Mode: "workflow", Scheduler: s, Members: []team.Member{{Agent: "far"}}, Registry: near, Upstreams: calls,
				Limits: &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(1)}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := near.Register(id, tm); err != nil {
				t.Fatal(err)
			}
		}
		target := rig.Serve(t, server.Config{Agents: near, Store: kept(t, place)})
		c, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		n := 0
		ask := func(id string) (a2av1.TaskState, string) {
			n++
			resp, err := c.Send(within(t), rig.Text(id, "m-"+string(rune('a'+n/26))+string(rune('a'+n%26)), "hi"))
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetTask().GetStatus().GetState(), a2a.RunOf(resp.GetTask().GetMetadata()).GetError().GetReason()
		}
		for range 4 {
			if state, reason := ask("one"); state != a2av1.TaskState_TASK_STATE_FAILED || reason != agent.ReasonUnavailable {
				t.Fatal(state, reason)
			}
		}
		if state, reason := ask("two"); state != a2av1.TaskState_TASK_STATE_FAILED || reason != agent.ReasonBreakerOpen {
			t.Fatal(state, reason)
		}
		h, err := teamv1.NewAgentServiceClient(c.Conn).HealthCheck(c.Context(within(t)), &teamv1.HealthCheckRequest{AgentId: "two"})
		if err != nil || h.GetHealthy() {
			t.Error(h, err)
		}

		far := rig.Manager(t, says("echo"))
		grpc, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		rig.Serve(t, server.Config{Agents: far, Listeners: server.Listeners{GRPC: grpc}})
		ctx := within(t)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if state, _ := ask("two"); state == a2av1.TaskState_TASK_STATE_COMPLETED {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatal("the breaker does not close")
			}
		}
		if state, _ := ask("one"); state != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Error(state)
		}
	})
}
