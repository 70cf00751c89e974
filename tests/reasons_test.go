package tests

import (
	"context"
	"crypto/rand"
	"iter"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// speechless is an agent that ends without an answer.
type speechless struct{ agent.Func }

func (*speechless) Process(context.Context, *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(func(*teamv1.Event, error) bool) {}
}

// polite stops every message.
var polite = ware{"polite", func(*agent.Passing) (agent.Verdict, error) { return agent.Verdict{Block: "say please"}, nil }}

// TestR_002_19_ErrorReasons has each kind of error of a team as a task, and as the
// ErrorInfo of a call of the Agent service.
func TestR_002_19_ErrorReasons(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		sleepy := &agent.Func{ID: "sleepy", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		m := rig.Manager(t, says("ann"), sleepy, &speechless{agent.Func{ID: "mute"}})
		for id, c := range map[string]team.Config{
			"failing": {Members: []team.Member{{Agent: "mute"}}},
			"lost":    {Members: []team.Member{{Agent: "gone"}}},
			"late":    {Members: []team.Member{{Agent: "sleepy"}}, Limits: &teamv1.Limits{MemberTimeout: durationpb.New(20 * time.Millisecond)}},
			"empty":   {Members: []team.Member{{Agent: "ann", Disabled: true}}},
			"guarded": {Members: []team.Member{{Agent: "ann"}}, Guards: agent.Guards{Input: []agent.Guard{{Middleware: polite}}}},
		} {
			c.ID, c.Registry = id, m
			s, err := supervisor.New(supervisor.Config{Members: c.Members, Rules: []supervisor.Rule{{ID: "first", When: "true", Next: []string{c.Members[0].Agent}}}})
			if err != nil {
				t.Fatal(err)
			}
			c.Scheduler = s
			tm, err := team.New(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Register(id, tm); err != nil {
				t.Fatal(err)
			}
		}
		target := rig.Serve(t, server.Config{Agents: m, Store: kept(t, place)})
		g, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		for id, want := range map[string]struct {
			reason string
			code   codes.Code
			state  a2av1.TaskState
		}{
			"failing": {agent.ReasonDelegationFailed, codes.Internal, a2av1.TaskState_TASK_STATE_FAILED},
			"lost":    {agent.ReasonMemberNotFound, codes.Internal, a2av1.TaskState_TASK_STATE_FAILED},
			"late":    {agent.ReasonTimeout, codes.DeadlineExceeded, a2av1.TaskState_TASK_STATE_FAILED},
			"empty":   {agent.ReasonTeamError, codes.FailedPrecondition, a2av1.TaskState_TASK_STATE_FAILED},
			"guarded": {agent.ReasonGuardrailBlocked, codes.FailedPrecondition, a2av1.TaskState_TASK_STATE_REJECTED},
		} {
			t.Run("R-002-19 "+want.reason, func(t *testing.T) {
				_, err := teamv1.NewAgentServiceClient(g.Conn).Process(g.Context(t.Context()), &teamv1.ProcessRequest{AgentId: id, Message: agent.UserMessage(id, "x")})
				info := wire.InfoOf(status.Convert(err))
				if info.GetReason() != want.reason || info.GetDomain() != "team-server" || status.Code(err) != want.code {
					t.Errorf("%v: %v", err, info)
				}
				task, err := g.Get(t.Context(), &a2av1.GetTaskRequest{Id: info.GetMetadata()["task_id"]})
				if err != nil {
					t.Fatal(err)
				}
				if e := a2a.RunOf(task.GetMetadata()).GetError(); task.GetStatus().GetState() != want.state || e.GetReason() != want.reason {
					t.Error(task)
				}
			})
		}
	})
}

// TestR_002_9_3_OfAnotherServer has a guardrail of another server's team stop what
// its member is given: the delegation is rejected here, for the same reason.
func TestR_002_9_3_OfAnotherServer(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		far := rig.Manager(t, says("writer"))
		s, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "one", Member: "writer"}}})
		if err != nil {
			t.Fatal(err)
		}
		tm, err := team.New(team.Config{
			ID: "newsroom", Scheduler: s, Members: []team.Member{{Agent: "writer"}}, Registry: far, Guards: agent.Guards{Input: []agent.Guard{{Middleware: polite}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := far.Register("newsroom", tm); err != nil {
			t.Fatal(err)
		}
		b := rig.Serve(t, server.Config{Agents: far})
		for name, member := range map[string]agent.Agent{
			"agent service": overService(t, "far", b, "newsroom"), "a2a grpc": overA2A(t, "far", b, "newsroom", remote.BindingGRPC),
			"a2a rest": overA2A(t, "far", b, "newsroom", remote.BindingREST), "a2a jsonrpc": overA2A(t, "far", b, "newsroom", remote.BindingJSONRPC),
		} {
			t.Run(name, func(t *testing.T) {
				near := rig.Manager(t)
				if err := near.Register("far", member); err != nil {
					t.Fatal(err)
				}
				chain(t, near, "company", "far")
				client := rig.NewREST(rig.Serve(t, server.Config{Agents: near, Store: kept(t, place)}))
				resp, err := client.Send(t.Context(), rig.Text("company", rand.Text(), "tides"))
				if err != nil {
					t.Fatal(err)
				}
				task := resp.GetTask()
				run := a2a.RunOf(task.GetMetadata())
				if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_REJECTED || run.GetError().GetReason() != agent.ReasonGuardrailBlocked {
					t.Error(task)
				}
				if d := run.GetFailedDelegations(); len(d) != 1 || d[0].GetOutcome() != teamv1.Outcome_OUTCOME_REJECTED || d[0].GetAttempts() != 1 {
					t.Error(d)
				}
			})
		}
	})
}
