package anthropic

import (
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/model"
)

// block is a piece of a turn: a text, a call, or thoughts with their signature.
// Turns with thoughts go back to the provider block by block, as they came.
type block struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Input     string `json:"input,omitempty"` // as the model wrote it
}

// call is a block of type tool_use.
func (b *block) call() *teamv1.ToolCall {
	c := &teamv1.ToolCall{Id: b.ID, Name: b.Name, Arguments: b.Input}
	if strings.TrimSpace(c.Arguments) == "" {
		c.Arguments = "{}"
	}
	return c
}

// param is the block as it goes back; false for a text without content, which
// the provider refuses.
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
