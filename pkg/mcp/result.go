package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// maxText is the maximum size of a result that is passed to a model, in bytes.
const maxText = 256 << 10

// result converts the result of a call for a model. Content that is not text is replaced by a note.
func result(r *mcp.CallToolResult) *teamv1.ToolResult {
	var texts []string
	for _, c := range r.Content {
		texts = append(texts, text(c))
	}
	if len(texts) == 0 && r.StructuredContent != nil {
		if b, err := json.Marshal(r.StructuredContent); err == nil {
			texts = append(texts, string(b))
		}
	}
	return &teamv1.ToolResult{Text: cut(strings.Join(texts, "\n")), IsError: r.IsError}
}

func text(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image of type %s, %d bytes; not shown]", c.MIMEType, len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio of type %s, %d bytes; not shown]", c.MIMEType, len(c.Data))
	case *mcp.ResourceLink:
		return fmt.Sprintf("[resource %s at %s]", c.Name, c.URI)
	case *mcp.EmbeddedResource:
		switch {
		case c.Resource == nil:
			return "[resource without content]"
		case c.Resource.Text != "":
			return c.Resource.Text
		}
		return fmt.Sprintf("[resource %s of type %s, %d bytes; not shown]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))
	}
	return "[content that cannot be shown]"
}

// cut truncates a text to maxText and makes it valid UTF-8.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s\n[cut: %d more bytes]", s[:end], len(s)-end)
}
