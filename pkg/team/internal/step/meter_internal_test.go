package step

import (
	"slices"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMeter(t *testing.T) {
	for _, tt := range []struct {
		name string
		req  agent.ModelRequest
		want int64
	}{
		{"a request", agent.ModelRequest{Instructions: "iii", Force: "ff"}, perRequest + 5},
		{"a tool", agent.ModelRequest{Tools: []agent.ToolSpec{{Name: "n", Description: "dd", Parameters: []byte("{ }")}}}, perRequest + withTools + perTool + 6},
		{"a message", agent.ModelRequest{Messages: []agent.ModelMessage{{Text: "t", CallID: "cc", Tool: "ooo", State: []byte("ssss")}}}, perRequest + perMessage + 10},
		{"a call", agent.ModelRequest{Messages: []agent.ModelMessage{{ToolCalls: []*teamv1.ToolCall{{Id: "i", Name: "nn", Arguments: "{ }"}}}}}, perRequest + 2*perMessage + 6},
	} {
		t.Run("C-07 every byte counts: "+tt.name, func(t *testing.T) {
			if got := new(meter).bound(agent.Files{}, &tt.req); got != tt.want {
				t.Errorf("%d tokens, want %d", got, tt.want)
			}
		})
	}
	req := &agent.ModelRequest{Instructions: strings.Repeat("i", 300), Messages: []agent.ModelMessage{{Role: agent.RoleUser, Text: strings.Repeat("u", 1000)}}}
	var m meter
	if got := m.bound(agent.Files{}, req); got < 1300 || got > 1400 {
		t.Error(got)
	}
	m.learn(req, 320)
	more := *req
	more.Messages = append(slices.Clip(req.Messages), agent.ModelMessage{Role: agent.RoleAssistant, Text: strings.Repeat("a", 100)})
	if got := m.bound(agent.Files{}, &more); got < 420 || got > 450 {
		t.Error("only what is new is bounded by its bytes:", got)
	}
	other := more
	other.Instructions = "x" + more.Instructions[1:]
	if got := m.bound(agent.Files{}, &other); got < 1400 {
		t.Error("another prompt is bounded as a whole:", got)
	}
	without := more
	withTool := *req
	withTool.Tools = []agent.ToolSpec{{Name: "n", Description: strings.Repeat("d", 500)}}
	var final meter
	final.learn(&withTool, 470)
	if got := final.bound(agent.Files{}, &without); got < 570 || got > 600 {
		t.Error("without the tools the prompt is no longer than with them:", got)
	}
	if m.learn(&more, 0); m.tokens != 320 {
		t.Error("nothing was counted")
	}
}
