package team_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
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

func (c *transfer) Approval(arguments json.RawMessage) *agent.Approval {
	var a struct{ Amount int }
	if err := json.Unmarshal(arguments, &a); err == nil && a.Amount < 100 {
		return nil
	}
	return &agent.Approval{Roles: []string{"boss"}, Expires: time.Hour}
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
		if life := q.GetExpires().AsTime().Sub(time.Now()).Round(time.Minute); life != time.Hour {
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
		if park := w.process(a, w.clock); !park.Done || len(c.got) != 0 || !strings.Contains(heardOf(m), "nobody decided in time") {
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

func TestApproval_Answers(t *testing.T) {
	r := &teamv1.ApprovalRequest{Tool: "transfer", Arguments: `{"a":1}`}
	for _, tt := range []struct{ text, want string }{
		{"maybe", "is no decision"}, {"approved", "is no decision"}, {"edit:", "has no arguments"}, {"edit: [1]", "no JSON object"}, {"edit: {", "no JSON object"},
		{"edit: null", "no JSON object"}, {"reject: " + strings.Repeat("x", 1001), "at most 1000"}, {"", "is no decision"},
	} {
		if a, err := agent.ReadApproval(r, agent.NewMessage(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, %v", tt.text, a, err)
		}
	}
	for text, want := range map[string]teamv1.Approval_Decision{
		" Approve ": teamv1.Approval_DECISION_APPROVE, "yes": teamv1.Approval_DECISION_APPROVE, "APPROVE ALL": teamv1.Approval_DECISION_APPROVE_ALL,
		"no": teamv1.Approval_DECISION_REJECT, "reject: because: so": teamv1.Approval_DECISION_REJECT, `edit: {"a": ": "}`: teamv1.Approval_DECISION_APPROVE,
	} {
		a, err := agent.ReadApproval(r, agent.NewMessage(text))
		if err != nil || a.GetDecision() != want {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
}
