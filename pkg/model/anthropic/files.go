package anthropic

import (
	"encoding/base64"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// contents converts the parts of a message with files.
func contents(parts []*a2av1.Part) []any {
	out := make([]any, 0, len(parts))
	for _, p := range parts {
		if agent.IsFile(p) {
			out = append(out, file(p))
			continue
		}
		out = append(out, text(p.GetText()))
	}
	return out
}

// text returns a block with text; the provider rejects blank ones.
func text(s string) textBlock { return textBlock{Type: "text", Text: model.Text(s)} }

// toolResult converts the result of a tool, with its files.
func toolResult(msg agent.ModelMessage) toolResultBlock {
	out := toolResultBlock{Type: "tool_result", ToolUseID: msg.CallID, Content: []any{text(msg.Text)}}
	for _, p := range msg.Parts {
		if agent.IsFile(p) { // texts are part of msg.Text
			out.Content = append(out.Content, file(p))
		}
	}
	return out
}

// file converts an image or a PDF document.
func file(p *a2av1.Part) fileBlock {
	out := fileBlock{Type: "image", Source: source{Type: "base64", MediaType: agent.MediaType(p)}}
	if !strings.HasPrefix(agent.MediaType(p), "image/") {
		out.Type, out.Title = "document", agent.Excerpt(p.GetFilename(), 255)
		out.Source.MediaType = "application/pdf" // the only type of documents that the provider takes
	}
	if url := p.GetUrl(); url != "" {
		out.Source = source{Type: "url", URL: url}
		return out
	}
	out.Source.Data = base64.StdEncoding.EncodeToString(p.GetRaw())
	return out
}
