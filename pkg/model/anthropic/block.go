package anthropic

import (
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/model"
)

// block is a part of a turn: text, a tool call, or thinking with its signature. Turns with thinking
// are sent back to the provider block by block, unchanged.
type block struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Input     string `json:"input,omitempty"` // the arguments as the model wrote them
}

// call converts a block of type tool_use.
func (b *block) call() *teamv1.ToolCall {
	c := &teamv1.ToolCall{Id: b.ID, Name: b.Name, Arguments: b.Input}
	if strings.TrimSpace(c.Arguments) == "" {
		c.Arguments = "{}"
	}
	return c
}

// content returns the block for a request. ok is false for text without content, which the provider
// rejects.
func (b *block) content() (content any, ok bool) {
	switch b.Type {
	case "text":
		return textBlock{Type: b.Type, Text: b.Text}, strings.TrimSpace(b.Text) != ""
	case "thinking":
		return thinkingBlock{b.Type, b.Thinking, b.Signature}, true
	case "redacted_thinking":
		return redactedThinkingBlock{b.Type, b.Data}, true
	case "tool_use":
		return toolUseBlock{b.Type, b.ID, b.Name, model.Arguments(b.Input)}, true
	}
	return nil, false
}
