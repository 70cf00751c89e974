package journaltest

import (
	"context"
	"encoding/json"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// payment is a tool that must not be called twice. Its connection breaks: nobody
// knows whether it did something.
type payment struct{ cast *cast }

func (payment) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "pay", Effect: agent.EffectUnsafe, Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (p payment) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	p.cast.paid.Add(1)
	return nil, &agent.Error{Reason: agent.ReasonUnavailable, Message: "the connection broke", Retry: true}
}

// payer is an agent that pays once, and tells what it heard of it.
func (c *cast) payer(id string) {
	c.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Tools: []agent.Tool{payment{c}}, Model: model{c, func(req *agent.ModelRequest) (*teamv1.Turn, error) {
		if last := req.Messages[len(req.Messages)-1]; last.Role == agent.RoleTool {
			return &teamv1.Turn{Text: "I have heard: " + last.Text}, nil
		}
		return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "call", Name: "pay", Arguments: `{"euro": 100}`}}}, nil
	}}})
	c.must(err)
	c.must(c.Register(id, a))
}

// unsafe are runs with a tool whose outcome is not known, by a broken connection or
// by a crash: people are asked, and it is not called again.
func unsafe() []scenario {
	return []scenario{
		{name: "unsafe_tool_alone", anywhere: true, agents: func(c *cast) { c.payer("root") }, after: paidOnce, alike: why},
		{name: "unsafe_tool_in_a_team", anywhere: true, agents: func(c *cast) {
			c.payer("a")
			c.add(leaves["echo"](c, "b"))
			c.workflow("root", workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b", After: []string{"1"}})
		}, after: paidOnce, alike: why},
	}
}

// why the question is asked: after a crash, and after a broken connection.
var why = [2]string{"this server stopped before it ended", "it ended without a result: the connection broke"}

// paidOnce: whatever was on record when the run went on, the tool is called where
// its call had not begun, and never where it had.
func paidOnce(t *testing.T, c *cast, recorded, all []*teamv1.Event) {
	t.Helper()
	want := int64(1)
	for _, ev := range recorded {
		if tool := ev.GetStarted(); tool != nil && paying(recorded, ev.GetScope()) {
			want = 0
		}
	}
	if got := c.paid.Load(); got != want {
		t.Errorf("from event %d: it was paid %d times, want %d", len(recorded), got, want)
	}
	asked := 0
	for _, ev := range all {
		if ev.GetAsked().GetKind() == teamv1.Asked_KIND_OUTCOME {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("from event %d: %d questions what became of it", len(recorded), asked)
	}
}

// paying: the scope is that of the tool's call.
func paying(events []*teamv1.Event, scope string) bool {
	for _, ev := range events {
		for _, st := range ev.GetDecided().GetSteps() {
			if st.GetKind() == teamv1.Step_KIND_TOOL && agent.Scope(ev.GetScope(), st.GetId()) == scope {
				return true
			}
		}
	}
	return false
}
