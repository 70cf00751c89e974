package team_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// transfer is a tool that needs approval from 100 on, and keeps what it was called with.
type transfer struct {
	description string
	got         []string
}

func (c *transfer) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "transfer", Description: c.description, Effect: agent.EffectUnsafe}
}

func (c *transfer) Approvers(arguments json.RawMessage) *agent.Approvers {
	var a struct{ Amount int }
	if err := json.Unmarshal(arguments, &a); err == nil && a.Amount < 100 {
		return nil
	}
	return &agent.Approvers{Roles: []string{"boss"}, Expires: time.Hour}
}

func (c *transfer) Call(_ context.Context, arguments json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	c.got = append(c.got, string(arguments))
	return &teamv1.ToolResult{Text: "done with " + string(arguments)}, nil
}

func TestApproval(t *testing.T) {
	// The arguments have spaces and an order that JSON does not keep when it is read and written.
	const arguments = `{ "to":"ann",  "amount": 1e2 }`
	agentWith := func(t *testing.T, c *transfer, args ...string) (agent.Agent, *priced) {
		t.Helper()
		m := &priced{}
		for _, a := range args {
			m.turns = append(m.turns, calls(tool("transfer", a)))
		}
		m.turns = append(m.turns, says("finished"))
		a, err := leader.NewAgent(leader.AgentConfig{ID: "root", Model: m, Tools: []agent.Tool{c}})
		if err != nil {
			t.Fatal(err)
		}
		return a, m
	}
	open := func(w *world) (list []*teamv1.Event) {
		closed := map[string]bool{}
		for _, ev := range w.events {
			closed[ev.GetAnswered().GetQuestion()] = true
		}
		for _, ev := range w.events {
			if q := ev.GetAsked(); q != nil && !closed[q.GetQuestion()] {
				list = append(list, ev)
			}
		}
		return list
	}
	heardOf := func(m *priced) string { return strings.Join(heard(m.requests[len(m.requests)-1]), "\n") }

	t.Run("a call below the amount needs none", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, _ := agentWith(t, c, `{"amount":99}`)
		if park := w.process(a, nil); !park.Done || len(c.got) != 1 {
			t.Error(park, c.got)
		}
	})
	t.Run("what was approved is called, byte for byte, by another process", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, _ := agentWith(t, c, arguments)
		if park := w.process(a, nil); park.Done || len(c.got) != 0 {
			t.Fatal(park, c.got)
		}
		q := open(w)[0].GetAsked()
		r := q.GetApproval()
		if q.GetKind() != teamv1.Asked_KIND_APPROVAL || q.GetRoles()[0] != "boss" || r.GetTool() != "transfer" || r.GetArguments() != arguments || r.GetHash() != agent.HashOf(arguments) {
			t.Fatal(q)
		}
		if life := time.Until(q.GetExpires().AsTime()).Round(time.Minute); life != time.Hour {
			t.Error(life)
		}
		w.reply(open(w)[0], "approve")
		a, _ = agentWith(t, c)
		if park := w.process(a, nil); !park.Done || len(c.got) != 1 || c.got[0] != arguments {
			t.Error(park, c.got)
		}
	})
	t.Run("edited arguments are called, and the model is told", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, m := agentWith(t, c, arguments)
		w.process(a, nil)
		w.reply(open(w)[0], `edit: {"to":  "ann", "amount": 5}`)
		w.process(a, nil)
		if len(c.got) != 1 || c.got[0] != `{"to":  "ann", "amount": 5}` || !strings.Contains(heardOf(m), `A person changed the arguments of this call to {"to":  "ann", "amount": 5}`) {
			t.Error(c.got, heardOf(m))
		}
	})
	t.Run("a rejected call does not begin, and the model is told why", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, m := agentWith(t, c, arguments)
		w.process(a, nil)
		w.reply(open(w)[0], "reject: ann has left")
		if park := w.process(a, nil); !park.Done || len(c.got) != 0 || !strings.Contains(heardOf(m), "ann has left") {
			t.Error(park, c.got, heardOf(m))
		}
	})
	t.Run("a call that nobody decides about is rejected", func(t *testing.T) {
		c, w, now := &transfer{}, newWorld(t), time.Now()
		w.clock = func() time.Time { return now }
		a, m := agentWith(t, c, arguments)
		w.process(a, w.clock)
		now = now.Add(2 * time.Hour)
		if park := w.process(a, w.clock); !park.Done || len(c.got) != 0 || !strings.Contains(heardOf(m), "not approved in time") {
			t.Error(park, c.got, heardOf(m))
		}
	})
	t.Run("approve all covers later calls of the tool in the task", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, _ := agentWith(t, c, arguments, `{"amount":200}`)
		w.process(a, nil)
		w.reply(open(w)[0], "approve all")
		if park := w.process(a, nil); !park.Done || len(c.got) != 2 {
			t.Error(park, c.got)
		}
	})
	t.Run("approve covers one call", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, _ := agentWith(t, c, arguments, `{"amount":200}`)
		w.process(a, nil)
		w.reply(open(w)[0], "approve")
		if park := w.process(a, nil); park.Done || len(c.got) != 1 || len(open(w)) != 1 {
			t.Error(park, c.got)
		}
	})
	t.Run("a tool that has changed is asked about again, also after approve all", func(t *testing.T) {
		c, w := &transfer{}, newWorld(t)
		a, _ := agentWith(t, c, arguments)
		w.process(a, nil)
		w.reply(open(w)[0], "approve all")
		changed := &transfer{description: "moves all money"}
		b, _ := agentWith(t, changed)
		if park := w.process(b, nil); park.Done || len(changed.got) != 0 || len(open(w)) != 1 || !strings.Contains(agent.Text(open(w)[0].GetAsked().GetMessage()), "has changed") {
			t.Fatal(park, changed.got, open(w))
		}
		w.reply(open(w)[0], "approve")
		if park := w.process(b, nil); !park.Done || len(changed.got) != 1 {
			t.Error(park, changed.got)
		}
	})
}

// lastAsked returns the event of the last question.
func lastAsked(w *world) *teamv1.Event {
	for _, ev := range slices.Backward(w.events) {
		if ev.GetAsked() != nil {
			return ev
		}
	}
	return nil
}

// plainTool is a tool that needs no approval.
type plainTool struct{ *transfer }

func (plainTool) Approvers(json.RawMessage) *agent.Approvers { return nil }

func TestApproval_RulesThatChange(t *testing.T) {
	build := func(t *testing.T, tl agent.Tool, turns ...*teamv1.Turn) agent.Agent {
		t.Helper()
		a, err := leader.NewAgent(leader.AgentConfig{ID: "root", Model: &priced{turnsOf: turnsOf{turns: append(turns, says("finished"))}}, Tools: []agent.Tool{tl}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ask := func(t *testing.T) (*transfer, *world, *teamv1.Event) {
		t.Helper()
		c, w := &transfer{}, newWorld(t)
		w.process(build(t, c, calls(tool("transfer", `{"amount":500}`))), nil)
		return c, w, lastAsked(w)
	}
	t.Run("a call that was rejected does not begin when approval is no longer needed", func(t *testing.T) {
		c, w, q := ask(t)
		w.reply(q, "no")
		if park := w.process(build(t, plainTool{c}), nil); !park.Done || len(c.got) != 0 {
			t.Error(park, c.got)
		}
	})
	t.Run("nor are the approved arguments forgotten", func(t *testing.T) {
		c, w, q := ask(t)
		w.reply(q, `edit: {"amount":5}`)
		if park := w.process(build(t, plainTool{c}), nil); !park.Done || len(c.got) != 1 || c.got[0] != `{"amount":5}` {
			t.Error(park, c.got)
		}
	})
	t.Run("a tool that changes after an edit is asked about with the edited arguments", func(t *testing.T) {
		_, w, q := ask(t)
		w.reply(q, `edit: {"amount":5}`)
		changed := &transfer{description: "new"}
		w.process(build(t, changed), nil)
		again := lastAsked(w)
		if got := again.GetAsked().GetApproval().GetArguments(); got != `{"amount":5}` {
			t.Fatal(got)
		}
		w.reply(again, "approve")
		if park := w.process(build(t, changed), nil); !park.Done || len(changed.got) != 1 || changed.got[0] != `{"amount":5}` {
			t.Error(park, changed.got)
		}
	})
	t.Run("a leader is told that the task of a member was changed", func(t *testing.T) {
		var d diary
		lead := leads(t, calls(give("a", "tides")), says("done"))
		top := ledBy(t, lead, d.crew("a"), func(c *leader.CoordinatorConfig, cfg *team.Config) {
			cfg.ID, c.Members = "root", members("a")
			c.Members[0].Approve = func(*a2av1.Message) *agent.Approvers { return &agent.Approvers{} }
		})
		w := newWorld(t)
		w.process(top, nil)
		w.reply(lastAsked(w), "edit: the tides of Venus")
		if park := w.process(top, nil); !park.Done {
			t.Fatal(park)
		}
		has(t, strings.Join(heard(lead.all()[1]), "\n"), "a: succeeded", "a person changed its task to: the tides of Venus", "a(the tides of Venus)")
	})
	t.Run("a task with a file can be approved, and keeps the file when its text is changed", func(t *testing.T) {
		png := &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte("\x89PNG\xff\xfe" + strings.Repeat("\xff", 300))}, MediaType: "image/png", Filename: "cat.png"}
		var got *a2av1.Message
		a := &agent.Func{ID: "a", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			got = m
			return agent.NewMessage("seen"), nil
		}}
		all := members("a")
		all[0].Approve = func(*a2av1.Message) *agent.Approvers { return &agent.Approvers{} }
		top := newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a"), Members: all, Registry: registry{"a": a}})
		w := newWorld(t)
		w.events[0].GetAccepted().Message.Parts = append(w.events[0].GetAccepted().GetMessage().GetParts(), png)
		w.process(top, nil)
		q := lastAsked(w)
		if _, err := proto.Marshal(q); err != nil || !strings.Contains(q.GetAsked().GetApproval().GetArguments(), "cat.png") {
			t.Fatal(q, err)
		}
		w.reply(q, "edit: look at this cat")
		if park := w.process(top, nil); !park.Done || agent.Text(got) != "look at this cat" || len(got.GetParts()) != 2 || len(got.GetParts()[1].GetRaw()) != 306 {
			t.Error(park, got)
		}
	})
}

func TestApproval_Answers(t *testing.T) {
	r := &teamv1.ApprovalRequest{Tool: "transfer", Arguments: `{"a":1}`}
	for _, tt := range []struct{ text, want string }{
		{"maybe", "is not a decision"}, {"approved", "is not a decision"}, {"edit:", "has no arguments"}, {"edit: [1]", "not a JSON object"}, {"edit: {", "not a JSON object"},
		{"edit: null", "not a JSON object"}, {"approve: only 5", "text after the decision"}, {"yes: {}", "text after the decision"}, {"reject: " + strings.Repeat("x", 1001), "at most 1000"}, {"", "is not a decision"},
	} {
		if a, err := forms.ReadApproval(r, agent.NewMessage(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, %v", tt.text, a, err)
		}
	}
	for text, want := range map[string]teamv1.Approval_Decision{
		" Approve ": teamv1.Approval_DECISION_APPROVE, "yes": teamv1.Approval_DECISION_APPROVE, "APPROVE ALL": teamv1.Approval_DECISION_APPROVE_ALL,
		"no": teamv1.Approval_DECISION_REJECT, "reject: because: so": teamv1.Approval_DECISION_REJECT, `edit: {"a": ": "}`: teamv1.Approval_DECISION_APPROVE,
	} {
		a, err := forms.ReadApproval(r, agent.NewMessage(text))
		if err != nil || a.GetDecision() != want {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
}

// TestS_62_AnswersAboutPlans: what people may say of a plan, as text and as data.
func TestS_62_AnswersAboutPlans(t *testing.T) {
	r := &teamv1.ApprovalRequest{Arguments: `{"steps":[]}`, Plan: &teamv1.PlanRules{}}
	data := func(v map[string]any) *a2av1.Message {
		value, err := structpb.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return &a2av1.Message{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: value}}}}
	}
	plan := map[string]any{"steps": []any{map[string]any{"id": "x"}}}
	for _, c := range []struct {
		m         *a2av1.Message
		want      teamv1.Approval_Decision
		arguments string
		err       string
	}{
		{agent.NewMessage("yes"), teamv1.Approval_DECISION_APPROVE, "", ""},
		{agent.NewMessage("reject: too long"), teamv1.Approval_DECISION_REJECT, "", ""},
		{agent.NewMessage(`edit: {"steps": [ ]}`), teamv1.Approval_DECISION_APPROVE, `{"steps": [ ]}`, ""},
		{agent.NewMessage(` {"steps": [ ]}`), teamv1.Approval_DECISION_APPROVE, `{"steps": [ ]}`, ""},
		{data(plan), teamv1.Approval_DECISION_APPROVE, `{"steps":[{"id":"x"}]}`, ""},
		{data(map[string]any{"decision": "edit", "arguments": plan}), teamv1.Approval_DECISION_APPROVE, `{"steps":[{"id":"x"}]}`, ""},
		{data(map[string]any{"decision": "edit", "arguments": `{"steps":1}`}), teamv1.Approval_DECISION_APPROVE, `{"steps":1}`, ""},
		{agent.NewMessage("approve all"), 0, "", `is not a decision; answer "approve", "reject" or "reject: REASON", or "edit: " and the changed plan as JSON`},
		{data(map[string]any{"decision": "approve all"}), 0, "", "is not a decision"},
		{data(map[string]any{"decision": "approve", "arguments": plan}), 0, "", `has arguments, which only the decision "edit" may have`},
		{data(map[string]any{"plan": plan}), 0, "", "is not a decision"},
		{agent.NewMessage("{"), 0, "", "is not a decision"},
		{agent.NewMessage(`{"decision": "reject"}`), 0, "", "is not a decision; answer"},
		{agent.NewMessage(`{"why": "steps"}`), 0, "", "is not a decision; answer"},
		{agent.NewMessage("edit: {"), 0, "", "not a JSON object"},
	} {
		a, err := forms.ReadApproval(r, c.m)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v, want %q", c.m, err, c.err)
			}
			continue
		}
		if err != nil || a.GetDecision() != c.want || a.GetArguments() != c.arguments {
			t.Errorf("%v: %v, %v", c.m, a, err)
		}
	}
	if _, err := forms.ReadApproval(&teamv1.ApprovalRequest{Tool: "t"}, data(plan)); err == nil {
		t.Error("a plan approves a tool call")
	}
}
