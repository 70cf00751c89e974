package tracing

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// TestT_51_Texts: texts have no secrets, also where they are cut, are valid, and have a limit; and of a prompt the
// newest messages are kept.
func TestT_51_Texts(t *testing.T) {
	c := &content{secrets: func() []secret.Secret { return []secret.Secret{secret.New("sk-canary-secret")} }}
	edge := strings.Repeat("x", maxText-5) + "sk-canary-secret"
	for _, text := range []string{edge, strings.Repeat("ä", maxText), "sk-canary-secret", "a\xffb"} {
		got := c.text(text)
		if strings.Contains(got, "sk-c") || !utf8.ValidString(got) || len(got) > maxText+len("…") {
			t.Errorf("%.20q: %d bytes, %q", text, len(got), got[max(len(got)-20, 0):])
		}
	}
	var messages []agent.ModelMessage
	for range 100 {
		messages = append(messages, agent.ModelMessage{Role: agent.RoleUser, Text: strings.Repeat("old", 300)})
	}
	messages = append(messages, agent.ModelMessage{Role: agent.RoleAssistant, ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "height", Arguments: `{"key":"sk-canary-secret"}`}}},
		agent.ModelMessage{Role: agent.RoleTool, CallID: "1", Text: "newest"})
	given := c.given(agent.Given{Prompt: &agent.ModelRequest{Instructions: edge, Messages: messages}})
	size := 0
	for _, kv := range given {
		value := kv.Value.AsString()
		size += len(value)
		if !json.Valid([]byte(value)) || strings.Contains(value, "sk-c") {
			t.Errorf("%s: %s", kv.Key, value)
		}
	}
	text := given[0].Value.AsString()
	var list []message
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if last := list[len(list)-1]; last.Role != "tool" || last.Parts[0].Result != "newest" || last.Parts[0].ID != "1" || len(list) < 3 {
		t.Errorf("the messages are %s", text)
	}
	if size > 2*(maxPrompt+maxText) || len(given) != 2 {
		t.Errorf("%d attributes with %d bytes", len(given), size)
	}
	if got := (*content)(nil).given(agent.Given{Arguments: "x"}); got != nil {
		t.Errorf("without content: %v", got)
	}
}
