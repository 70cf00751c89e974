package tests

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// grantable serves "desk", whose budget of so many tokens people may raise.
func grantable(t *testing.T, m agent.Model, tokens int64, roles ...string) *manager.Manager {
	t.Helper()
	reg := rig.Manager(t, metered(t, "a", m, nil))
	limitedChain(t, reg, "desk", &teamv1.Limits{MaxTokens: &tokens, OnLimit: teamv1.OnLimit_ASK, AskRoles: roles}, "a")
	return reg
}

// inAnswerTo is a message that answers the only question of a task.
func inAnswerTo(task *a2av1.Task, id, text string) *a2av1.SendMessageRequest {
	req := rig.Text("", id, text)
	req.Message.TaskId = task.GetId()
	return req
}

// TestC_07_GrantOverTheWire: a task asks for more budget; answers that are no amount are rejected, and
// the question stays open; after a restart an amount continues the task, within the new limit.
func TestC_07_GrantOverTheWire(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for n := range 3 {
			m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20, CostMicros: 50}}
			agents := grantable(t, m, 40)
			one := live(t, at, agents)
			c := one.clients[n]
			t.Run("C-07 "+c.Binding()+" bad answers, a restart, and a grant", func(t *testing.T) {
				id := one.sendNow(t, "desk", "m"+c.Binding(), "x").GetId()
				task := one.until(t, id, asksAll(1))
				q := a2a.RunOf(task.GetMetadata()).GetQuestions()[0]
				if q.GetKind() != teamv1.Asked_KIND_BUDGET || q.GetBudget().GetLimit() != "max_tokens" || q.GetBudget().GetValue() != 40 || q.GetBudget().GetSetBy() != "desk" {
					t.Fatal(q)
				}
				for i, bad := range []struct{ text, want string }{
					{"maybe", "is not an amount"}, {"", "is not an amount"}, {"-2", "does not add anything"}, {"0", "does not add anything"},
					{"2 USD", "another unit"}, {"$2", "another unit"}, {"1.5 tokens", "whole number"}, {"5,000", "is not an amount"}, {"5k", "is not an amount"},
					{"yes", "is not an amount"}, {"5000 EUR", "is not an amount"}, {"9" + strings.Repeat("0", 30), "is more than"}, {"5 tokens\n6 tokens", "is not an amount"},
				} {
					req := inAnswerTo(task, fmt.Sprint("bad", c.Binding(), i), bad.text)
					if bad.text == "" {
						req.Message.Parts = []*a2av1.Part{{Content: &a2av1.Part_Data{Data: structpb.NewStringValue("x")}}}
					}
					_, err := c.Send(t.Context(), req)
					if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" || !strings.Contains(fmt.Sprint(f), bad.want) || !strings.Contains(fmt.Sprint(f), `"5000 tokens"`) {
						t.Errorf("%q: %v", bad.text, err)
					}
				}
				one.until(t, id, asksAll(1))
				l := one
				if at.Durable {
					one.kill(at)
					l = live(t, at, grantable(t, m, 40))
					c = l.clients[n]
				}
				req := inAnswerTo(task, "good"+c.Binding(), "7000 tokens")
				if n == 1 {
					req.Message.Parts = []*a2av1.Part{{Content: &a2av1.Part_Data{Data: structpb.NewStructValue(&structpb.Struct{
						Fields: map[string]*structpb.Value{"grant": structpb.NewNumberValue(7000)},
					})}}}
				}
				if _, err := c.Send(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				task = l.until(t, id, ended)
				if s := a2a.RunOf(task.GetMetadata()).GetSpent(); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || agent.CostOf(s).Tokens != 50 {
					t.Error(task)
				}
				l.kill(at)
			})
		}
	})
}

// TestC_07_GrantByRole: only people with a role of ask_roles may grant more.
func TestC_07_GrantByRole(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20}}
		l := keyed(t, at, grantable(t, m, 40, "boss"))
		id := l.sendNow(t, "desk", "m", "x").GetId()
		task := l.until(t, id, asksAll(1))
		for _, c := range l.clients {
			_, err := c.Send(t.Context(), inAnswerTo(task, "a"+c.Binding(), "7000"))
			if f := rig.Fault(err); f == nil || f.Reason != agent.ReasonPermissionDenied {
				t.Error(c.Binding(), err)
			}
		}
		carl := l.monitor(t, "carl", 1)
		q := answerable(t, carl, &teamv1.ListQuestionsRequest{TaskId: id})[0]
		_, err := carl.Answer(t.Context(), toAsk(q, "a lot"))
		if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" {
			t.Error(err)
		}
		if _, err := carl.Answer(t.Context(), toAsk(q, "7000")); err != nil {
			t.Fatal(err)
		}
		if task = l.until(t, id, ended); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Error(task)
		}
	})
}

// TestC_07_GrantBeyondTheAccount: an answer that grants more than the account may still spend on the day is refused
// over each binding, also to people with a role, and the question stays open; less continues the task.
func TestC_07_GrantBeyondTheAccount(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20, CostMicros: 50}}
		reg := grantable(t, m, 40, "boss")
		limitedChain(t, reg, "paid", &teamv1.Limits{MaxCost: proto.Float64(0.00004), OnLimit: teamv1.OnLimit_ASK}, "a")
		store, _ := at.Open(t)
		boss := rig.Key("acme", "carl")
		boss.Roles = []string{"boss"}
		target := rig.Serve(t, server.Config{
			Agents:   reg,
			Store:    store,
			Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann"), boss), Accounts: map[string]*teamv1.AccountLimits{"acme": {MaxTokensPerDay: proto.Int64(20_000), MaxCostPerDay: proto.Float64(0.02), TimeZone: "Asia/Tokyo"}}},
		})
		ann := target.As("acme", "ann")
		l := &life{Target: ann, clients: rig.Clients(t, ann)}
		begin := func(team string) *a2av1.Task {
			return l.until(t, l.sendNow(t, team, "begin-"+team, "x").GetId(), asksAll(1))
		}
		wantRefused := func(by string, err error, limit, value string) {
			t.Helper()
			f := rig.Fault(err)
			if f == nil || f.Code != "ResourceExhausted" || f.Reason != agent.ReasonAccountLimit || f.Details[agent.DetailLimit] != limit || f.Details[agent.DetailValue] != value ||
				f.Details[agent.DetailSetBy] != agent.SetByAccount || f.Details[agent.DetailAccount] != "acme" || f.Details[account.DetailReset] == "" || !strings.Contains(f.Message, "the question stays open: grant at most ") {
				t.Errorf("%s: %+v", by, f)
			}
		}
		paid := begin("paid")
		for _, c := range l.clients {
			_, err := c.Send(t.Context(), inAnswerTo(paid, "much-"+c.Binding(), "0.03 USD"))
			wantRefused(c.Binding(), err, "max_cost_per_day", "0.02")
		}
		l.until(t, paid.GetId(), asksAll(1))
		if _, err := l.clients[1].Send(t.Context(), inAnswerTo(paid, "much-rest", "0.015 USD")); err != nil { // the id was not used up
			t.Error(err)
		}
		if task := l.until(t, paid.GetId(), ended); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Error(task)
		}

		desk := begin("desk")
		for _, m := range rig.Monitors(t, target.As("acme", "carl")) {
			q := answerable(t, m, &teamv1.ListQuestionsRequest{TaskId: desk.GetId()})[0]
			_, err := m.Answer(t.Context(), toAsk(q, "20000 tokens")) // 50 are spent
			wantRefused("a role", err, "max_tokens_per_day", "20000")
		}
		carl := rig.Monitors(t, target.As("acme", "carl"))[0]
		if _, err := carl.Answer(t.Context(), toAsk(answerable(t, carl, &teamv1.ListQuestionsRequest{TaskId: desk.GetId()})[0], "7000")); err != nil {
			t.Error(err)
		}
		if task := l.until(t, desk.GetId(), ended); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Error(task)
		}
	})
}

// TestC_07_GrantOnAnotherServer: the member of another team-server asks for more of its own budget,
// and the caller of the team here answers; the limit here is not raised.
func TestC_07_GrantOnAnotherServer(t *testing.T) {
	t.Parallel()
	for _, binding := range []string{"GRPC", "REST", "JSONRPC", "agent service"} {
		t.Run("C-07 "+binding, func(t *testing.T) {
			m := &meteredModel{spent: &teamv1.Spent{InputTokens: 30, OutputTokens: 20}}
			peer := rig.Serve(t, server.Config{Agents: grantable(t, m, 40)})
			far := `a2a: {card: "` + peer.HTTP + `/desk", binding: ` + binding + `}`
			if binding == "agent service" {
				far = `grpc: {address: "` + peer.GRPC + `", agent_id: desk}`
			}
			l := live(t, rig.Memory(t), defined(t, `version: v1
agents:
  far: {`+far+`}
teams:
  front: {workflow: {steps: [{id: ask, agent: far}]}, limits: {max_tokens: 20000}}
`, nil))
			id := l.sendNow(t, "front", "m", "x").GetId()
			task := l.until(t, id, asksAll(1))
			q := a2a.RunOf(task.GetMetadata()).GetQuestions()[0]
			if q.GetKind() != teamv1.Asked_KIND_BUDGET || !strings.HasPrefix(q.GetBudget().GetSetBy(), "front/far/") || q.GetBudget().GetValue() != 40 {
				t.Fatal(q)
			}
			_, err := l.clients[0].Send(t.Context(), inAnswerTo(task, "bad", "much"))
			if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" {
				t.Error(err)
			}
			if _, err := l.clients[1].Send(t.Context(), inAnswerTo(task, "good", "7000")); err != nil {
				t.Fatal(err)
			}
			task = l.until(t, id, ended)
			if s := a2a.RunOf(task.GetMetadata()).GetSpent(); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || agent.CostOf(s).Tokens != 50 {
				t.Error(task)
			}
		})
	}
}

// TestS_51_SeveralQuestionsOfAMember: a member on another server asks two questions at the same time;
// over A2A they are asked one after the other, and each answer reaches its own.
func TestS_51_SeveralQuestionsOfAMember(t *testing.T) {
	t.Parallel()
	peer := rig.Serve(t, server.Config{Agents: defined(t, `version: v1
agents:
  echo: {scripted: {steps: [{text: "{{input}}"}]}}
teams:
  desk:
    workflow:
      steps:
        - parallel:
            - {id: one, human: {question: "Publish?", options: ["yes", "no"]}}
            - {id: two, human: {question: "Which city?"}}
        - {id: sum, agent: echo, task: "{{steps.one.text}} {{steps.two.text}}"}
`, nil)})
	for _, binding := range []string{"GRPC", "REST", "JSONRPC"} {
		t.Run("S-51 "+binding, func(t *testing.T) {
			l := live(t, rig.Memory(t), defined(t, `version: v1
agents:
  far: {a2a: {card: "`+peer.HTTP+`/desk", binding: `+binding+`}}
teams:
  front: {workflow: {steps: [{id: ask, agent: far}]}}
`, nil))
			id := l.sendNow(t, "front", "m", "x").GetId()
			answers := map[string]string{"Publish?": "yes", "Which city?": "Lisbon"}
			for range 2 {
				task := l.until(t, id, asksAll(1))
				text := agent.Text(&a2av1.Message{Parts: a2a.RunOf(task.GetMetadata()).GetQuestions()[0].GetMessage().GetParts()[:1]})
				if answers[text] == "" {
					t.Fatalf("it asks %q, of %v", text, answers)
				}
				if _, err := l.clients[0].Send(t.Context(), inAnswerTo(task, "a"+text[:1], answers[text])); err != nil {
					t.Fatal(err)
				}
				delete(answers, text)
			}
			if task := l.until(t, id, ended); !strings.Contains(fmt.Sprint(task.GetArtifacts()), "yes Lisbon") {
				t.Error(task)
			}
		})
	}
}
