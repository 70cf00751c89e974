package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// plannedDesk is a team whose plans people approve.
const plannedDesk = `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}"}}
agents:
  a: {description: Finds facts., scripted: {steps: [{text: "a did {{input}}"}]}}
  b: {description: Writes., scripted: {steps: [{text: "b did {{input}}"}]}}
teams:
  desk:
    members: [{agent: a}, {agent: b}]
    workflow: {plan: {model: m, approve: {}, max_steps: 3}}
`

// planner is a model that plans two steps, and answers with what the last one said.
func planner(t *testing.T) *fakellm.Server {
	t.Helper()
	llm := fakellm.New(t)
	llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
		if slices.Contains(r.Tools, "plan") {
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "plan", Arguments: `{"steps": [{"id": "facts", "member": "a", "task": "find {{input}}"}, {"id": "text", "member": "b", "task": "write", "after": ["facts"]}]}`}}}
		}
		return fakellm.Turn{Text: "answer from: " + r.Last()}
	})
	return llm
}

func plannedTeam(t *testing.T, llm *fakellm.Server) *manager.Manager {
	t.Helper()
	return defined(t, plannedDesk, map[string]string{"LLM": llm.URL})
}

// asData is an answer as data.
func asData(t *testing.T, task *a2av1.Task, id string, data map[string]any) *a2av1.SendMessageRequest {
	t.Helper()
	v, err := structpb.NewValue(data)
	if err != nil {
		t.Fatal(err)
	}
	req := inAnswerTo(task, id, "")
	req.Message.Parts = []*a2av1.Part{{Content: &a2av1.Part_Data{Data: v}}}
	return req
}

// TestS_62_ApprovalOfAPlanOverTheWire: the question has the plan; answers that are no decision and
// plans that break its rules are rejected, and the question stays open; after a restart the plan that
// a person sends runs.
func TestS_62_ApprovalOfAPlanOverTheWire(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := planner(t)
		for n := range 3 {
			one := live(t, at, plannedTeam(t, llm), llm)
			c := one.clients[n]
			t.Run("S-62 "+c.Binding(), func(t *testing.T) {
				id := one.sendNow(t, "desk", "m"+c.Binding(), "tides").GetId()
				task := one.until(t, id, asksAll(1))
				q := a2a.RunOf(task.GetMetadata()).GetQuestions()[0]
				r := q.GetApproval()
				if q.GetKind() != teamv1.Asked_KIND_APPROVAL || r.GetBy() != "desk" || !slices.Equal(r.GetPlan().GetMembers(), []string{"a", "b"}) || r.GetHash() != agent.HashOf(r.GetArguments()) {
					t.Fatal(q)
				}
				if text := agent.Text(q.GetMessage()); !strings.Contains(text, `1. facts (a): "find {{input}}"`+"\n"+`2. text (b) after facts: "write"`) {
					t.Error(text)
				}
				bad := func(i int, req *a2av1.SendMessageRequest, want string) {
					req.Message.MessageId = fmt.Sprint("bad", c.Binding(), i)
					_, err := c.Send(t.Context(), req)
					if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" || !strings.Contains(fmt.Sprint(f), want) {
						t.Errorf("answer %d: %v, want %q", i, err, want)
					}
				}
				for i, b := range []struct{ text, want string }{
					{"perhaps", `answer "approve", "reject" or "reject: REASON", or "edit: " and the changed plan as JSON`},
					{"approve all", "is not a decision"}, {"approve it: all", "is not a decision"}, {"edit:", "has no arguments"}, {"edit: later", "not a JSON object"},
					{`edit: {"steps": []}`, "is not a valid plan: the plan has no steps; add one"},
					{`edit: {"steps": [{"id": "x", "member": "c", "task": "go"}]}`, `is not a valid plan: step "x": there is no member "c"; known here: a, b`},
					{`{"steps": [{"id": "x", "member": "a", "task": "go", "after": ["x"]}]}`, "is not a valid plan: workflow: steps form a cycle: x -> x"},
					{"reject: " + strings.Repeat("x", 2000), "has a reason of 2000 bytes"},
				} {
					bad(i, inAnswerTo(task, "", b.text), b.want)
				}
				bad(90, asData(t, task, "", map[string]any{"decision": "edit", "arguments": map[string]any{"steps": []any{map[string]any{"id": "x", "member": "a"}}}}), `step "x": has no task`)
				bad(91, asData(t, task, "", map[string]any{"steps": "x"}), "steps is not a list of objects")
				one.until(t, id, asksAll(1))
				l := one
				if at.Durable {
					one.kill(at)
					l = live(t, at, plannedTeam(t, llm), llm)
					c = l.clients[n]
				}
				plan := map[string]any{"steps": []any{map[string]any{"id": "mine", "member": "b", "task": "write about {{input}}"}}}
				good := []*a2av1.SendMessageRequest{
					inAnswerTo(task, "", `edit: {"steps": [{"id": "mine", "member": "b", "task": "write about {{input}}"}]}`),
					asData(t, task, "", plan), asData(t, task, "", map[string]any{"decision": "edit", "arguments": plan}),
				}[n]
				good.Message.MessageId = "good" + c.Binding()
				if _, err := c.Send(t.Context(), good); err != nil {
					t.Fatal(err)
				}
				task = l.until(t, id, ended)
				if text := fmt.Sprint(task.GetArtifacts()); !strings.Contains(text, `answer from: tides\n\nResult of step mine, by b: succeeded`) || !strings.Contains(text, "b did write about tides") {
					t.Error(task)
				}
				trace, err := rig.Monitors(t, l.Target)[n%2].Trace(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				var plans []string
				for _, d := range trace.GetStep().GetDecisions() {
					if d.GetPlan() != nil {
						plans = append(plans, fmt.Sprint(d.GetPlan().AsMap()))
					}
				}
				if len(plans) != 1 || plans[0] != "map[steps:[map[id:mine member:b task:write about {{input}}]]]" {
					t.Errorf("plans in the trace: %q", plans)
				}
				l.kill(at)
			})
		}
	})
}

// TestS_62_PlanOfAMember: a team whose plans people approve is a member here, and of another server;
// the plan that a person sends to the task of the leader is checked here as well.
func TestS_62_PlanOfAMember(t *testing.T) {
	t.Parallel()
	llm := planner(t)
	peer := rig.Serve(t, server.Config{Agents: plannedTeam(t, llm)}, llm)
	for name, far := range map[string]string{
		"here":          "",
		"over A2A":      `far: {a2a: {card: "` + peer.HTTP + `/desk", binding: GRPC}}`,
		"agent service": `far: {grpc: {address: "` + peer.GRPC + `", agent_id: desk}}`,
	} {
		t.Run("S-62 "+name, func(t *testing.T) {
			file, member := strings.Replace(plannedDesk, "agents:", "agents:\n  "+far, 1), "far"
			if far == "" {
				file, member = plannedDesk, "desk"
			}
			file += `  front: {workflow: {steps: [{id: ask, agent: ` + member + `}]}}` + "\n"
			l := live(t, rig.Memory(t), defined(t, file, map[string]string{"LLM": llm.URL}), llm)
			id := l.sendNow(t, "front", "m", "tides").GetId()
			task := l.until(t, id, asksAll(1))
			if r := a2a.RunOf(task.GetMetadata()).GetQuestions()[0].GetApproval(); !strings.HasPrefix(r.GetBy(), "front/"+member) || r.GetPlan().GetMaxSteps() != 3 {
				t.Error(r)
			}
			_, err := l.clients[0].Send(t.Context(), inAnswerTo(task, "bad", `edit: {"steps": [{"id": "x", "member": "c", "task": "go"}]}`))
			if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" || !strings.Contains(fmt.Sprint(f), `there is no member "c"`) {
				t.Error(err)
			}
			if _, err := l.clients[1].Send(t.Context(), inAnswerTo(task, "good", "approve")); err != nil {
				t.Fatal(err)
			}
			if task = l.until(t, id, ended); !strings.Contains(fmt.Sprint(task.GetArtifacts()), `Result of step text, by b: succeeded`) {
				t.Error(task)
			}
		})
	}
}
