package mcp

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of a result, in bytes.
const (
	maxText  = 256 << 10 // text that is passed to a model
	maxFiles = 8 << 20   // all files together
)

// Results says what models get of a result that has structured content.
type Results int

// The values of Results. Structured content always takes the place of a text that is blank, and an error that has a text
// keeps it.
const (
	ResultsText       Results = iota // the text
	ResultsStructured                // the structured content in place of the text
	ResultsBoth                      // the text, and the structured content unless the text is the same JSON
)

// result converts the result of a call.
func (s *Server) result(r *mcp.CallToolResult) *teamv1.ToolResult {
	out := s.converted(s.contents(r))
	out.IsError = r.IsError
	out.Text += s.askingHint(r, out.GetText())
	return out
}

// contents returns what models get of a result, as Config.Results says.
func (s *Server) contents(r *mcp.CallToolResult) []mcp.Content {
	data := jsonOf(r.StructuredContent)
	blank := !slices.ContainsFunc(r.Content, func(c mcp.Content) bool { return strings.TrimSpace(textOf(c)) != "" })
	which := s.config.Results
	if r.IsError {
		which = ResultsText
	}
	switch {
	case data == "", which == ResultsText && !blank:
		return r.Content
	case which == ResultsBoth && !blank:
		if slices.ContainsFunc(r.Content, func(c mcp.Content) bool { return isSame(textOf(c), data) }) {
			return r.Content
		}
		return append(slices.Clip(r.Content), &mcp.TextContent{Text: data})
	}
	rest := slices.DeleteFunc(slices.Clone(r.Content), func(c mcp.Content) bool { _, is := c.(*mcp.TextContent); return is })
	return append([]mcp.Content{&mcp.TextContent{Text: data}}, rest...)
}

// jsonOf returns structured content as JSON; "" if there is none.
func jsonOf(v any) string {
	if v == nil {
		return ""
	}
	text, _ := exactJSON(v) // it comes from JSON
	return text
}

// textOf returns the text of a piece of content; "" for other kinds.
func textOf(c mcp.Content) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.EmbeddedResource:
		if c.Resource != nil {
			return c.Resource.Text
		}
	}
	return ""
}

// converted returns the text and the files of contents. The text has a line for each image, audio and binary resource,
// which are the files. Those beyond maxFiles are left out, as the line then says.
func (s *Server) converted(contents []mcp.Content) *teamv1.ToolResult {
	out := &teamv1.ToolResult{}
	var texts []string
	size := 0
	for _, c := range contents {
		text, f := s.content(c)
		switch {
		case f == nil:
		case size+len(f.GetRaw()) > maxFiles:
			text = fmt.Sprintf("%s, left out: the files of a result may have %d bytes together]", strings.TrimSuffix(text, "]"), maxFiles)
		default:
			size += len(f.GetRaw())
			out.Files = append(out.Files, f)
		}
		texts = append(texts, text)
	}
	out.Text = cut(s.hide(strings.Join(texts, "\n")))
	return out
}

// askingHint says which key lets a server ask people, after a call that has failed because it could not; "" for others.
// Servers report this in words of their own.
func (s *Server) askingHint(r *mcp.CallToolResult, text string) string {
	if !r.IsError || !strings.Contains(strings.ToLower(text), "elicit") {
		return ""
	}
	hint := ""
	switch s.mu.Lock(); {
	case s.config.Elicit == nil:
		hint = fmt.Sprintf("(The server may not ask people. Its operator can allow it: set elicit of tool %q.)", s.config.Name)
	case s.live != nil && s.live.InitializeResult().ProtocolVersion >= continuing:
		hint = fmt.Sprintf("(The server asks people while it works on a call, which this version of MCP does not allow: set protocol_version: \"2025-11-25\" of tool %q.)", s.config.Name)
	}
	s.mu.Unlock()
	if hint == "" {
		return ""
	}
	s.config.Log.Warn("an MCP server could not ask people", zap.String("tool", s.config.Name), zap.String("hint", hint))
	return "\n" + hint
}

// failed returns the result of a call that failed.
func failed(format string, args ...any) *teamv1.ToolResult {
	return &teamv1.ToolResult{Text: cut(fmt.Sprintf(format, args...)), IsError: true}
}

// content returns the text for a piece of content, and the file that it is; nil if it is none.
func (s *Server) content(c mcp.Content) (text string, f *a2av1.Part) {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text, nil
	case *mcp.ImageContent:
		return fmt.Sprintf("[image of type %s, %d bytes]", c.MIMEType, len(c.Data)), file(c.Data, c.MIMEType, "")
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio of type %s, %d bytes]", c.MIMEType, len(c.Data)), file(c.Data, c.MIMEType, "")
	case *mcp.ResourceLink:
		return s.link(c), nil
	case *mcp.EmbeddedResource:
		switch {
		case c.Resource == nil:
			return "[resource without content]", nil
		case c.Resource.Text != "":
			return c.Resource.Text, nil
		case agent.MatchesMedia(c.Resource.MIMEType, agent.TextFiles):
			return strings.ToValidUTF8(string(c.Resource.Blob), "\uFFFD"), nil
		}
		name := ""
		if c.Resource.URI != "" {
			name = path.Base(c.Resource.URI)
		}
		text := fmt.Sprintf("[resource %s of type %s, %d bytes]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))
		return text, file(c.Resource.Blob, c.Resource.MIMEType, name)
	}
	return "[content that cannot be shown]", nil
}

// file returns a file as a part; nil if it is empty.
func file(data []byte, media, name string) *a2av1.Part {
	if len(data) == 0 {
		return nil
	}
	return &a2av1.Part{
		Content: &a2av1.Part_Raw{Raw: data}, MediaType: strings.ToValidUTF8(media, "\uFFFD"), Filename: strings.ToValidUTF8(name, "\uFFFD"),
	}
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
