package anthropic

import (
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go"

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

// param returns the block for a request. ok is false for text without content, which the provider
// rejects.
func (b *block) param() (anthropic.ContentBlockParamUnion, bool) {
	switch b.Type {
	case "text":
		return anthropic.NewTextBlock(b.Text), strings.TrimSpace(b.Text) != ""
	case "thinking":
		return anthropic.NewThinkingBlock(b.Signature, b.Thinking), true
	case "redacted_thinking":
		return anthropic.NewRedactedThinkingBlock(b.Data), true
	case "tool_use":
		return anthropic.NewToolUseBlock(b.ID, model.Arguments(b.Input), b.Name), true
	}
	return anthropic.ContentBlockParamUnion{}, false
}
