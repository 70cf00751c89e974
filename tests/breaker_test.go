package tests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/pkg/upstream"
	"github.com/agentteams/team-server/tests/rig"
)

// TestP11_BadInputOpensNoBreaker has six workers of one account send work that its agent fails at. The
// agent answered, so the breaker stays closed, and the calls of another account are made.
func TestP11_BadInputOpensNoBreaker(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() (*a2av1.Message, error){
		"an error": func() (*a2av1.Message, error) { return nil, errors.New("no such column") },
		"an invalid input": func() (*a2av1.Message, error) {
			return nil, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "no")
		},
		"a crash": func() (*a2av1.Message, error) { panic("no such column") },
		"an upstream of its own": func() (*a2av1.Message, error) {
			return nil, agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "that shop is closed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, binding := range sample.Of(t, []string{"in process", "service", remote.BindingGRPC, remote.BindingREST, remote.BindingJSONRPC}) {
				if binding == "in process" && name == "an upstream of its own" {
					continue // it is the agent itself that cannot be called
				}
				t.Run(binding, func(t *testing.T) { badInput(t, fail, binding) })
			}
		})
	}
}

func badInput(t *testing.T, fail func() (*a2av1.Message, error), binding string) {
	worker := &agent.Func{ID: "worker", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		if agent.Text(m) == "bad" {
			return fail()
		}
		return agent.NewMessage("done"), nil
	}}
	var a agent.Agent = worker
	if binding != "in process" {
		far := rig.Serve(t, server.Config{Agents: rig.Manager(t, worker)})
		if binding == "service" {
			a = overService(t, "far", far, "worker")
		} else {
			a = overA2A(t, "far", far, "worker", binding)
		}
	}
	near := rig.Manager(t)
	if err := near.Register("far", a); err != nil {
		t.Fatal(err)
	}
	s, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "ask", Member: "far"}}})
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: "desk", Mode: "workflow", Scheduler: s, Members: []team.Member{{Agent: "far"}}, Registry: near,
		Upstreams: upstream.New(upstream.Config{}), Limits: &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := near.Register("desk", tm); err != nil {
		t.Fatal(err)
	}
	target := rig.Serve(t, server.Config{Agents: near, Settings: rig.Keys(rig.Key("acme", "ann"), rig.Key("other", "bob"))})
	ask := func(c *rig.GRPC, id, text string) *a2av1.Task {
		resp, err := c.Send(within(t), rig.Text("desk", id, text))
		if err != nil {
			t.Error(err)
		}
		return resp.GetTask()
	}
	client := func(account, principal string) *rig.GRPC {
		c, err := rig.NewGRPC(target.As(account, principal))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var workers sync.WaitGroup
	for w := range 6 {
		c := client("acme", "ann")
		workers.Go(func() {
			for i := range 10 {
				if task := ask(c, fmt.Sprintf("bad-%d-%d", w, i), "bad"); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
					t.Error(task)
				}
			}
		})
	}
	workers.Wait()
	c, good, calls := client("other", "bob"), 0, 68/sample.Stride()
	for i := range calls {
		if task := ask(c, fmt.Sprint("good-", i), "good"); task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED {
			good++
		} else if good == i {
			t.Errorf("call %d of another account: %v", i, a2a.RunOf(task.GetMetadata()).GetError())
		}
	}
	if good != calls {
		t.Errorf("%d of %d calls of another account succeeded", good, calls)
	}
}
