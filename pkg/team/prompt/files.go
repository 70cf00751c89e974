package prompt

import (
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// User returns a message as a prompt message of the user, with its files.
func User(m *a2av1.Message) agent.ModelMessage {
	m = withoutLong(m)
	out := agent.ModelMessage{Role: agent.RoleUser, Text: agent.Prompt(m)}
	if !slices.ContainsFunc(m.GetParts(), agent.IsFile) {
		return out
	}
	var c content
	var other []*a2av1.Part
	for _, p := range m.GetParts() {
		if agent.IsFile(p) {
			c.text(other...)
			c.parts, other = append(c.parts, p), nil
			continue
		}
		other = append(other, p)
	}
	c.text(other...)
	out.Parts = c.parts
	return out
}

// TurnText returns the text of a turn, with a line for each file that the model has made.
func TurnText(turn *teamv1.Turn) string {
	if len(turn.GetFiles()) == 0 {
		return turn.GetText()
	}
	return strings.TrimPrefix(agent.Prompt(&a2av1.Message{Parts: append(agent.TextParts(turn.GetText()), turn.GetFiles()...)}), "\n")
}

// WithFiles returns the parts of a result for a model: its text, which has a line for each file, and
// the files among parts. It returns nil if there are none.
func WithFiles(text string, parts []*a2av1.Part) []*a2av1.Part {
	if !slices.ContainsFunc(parts, agent.IsFile) {
		return nil
	}
	out := agent.TextParts(text)
	for _, p := range parts {
		if agent.IsFile(p) {
			out = append(out, p)
		}
	}
	return out
}

// Fit returns a request with the files that a model takes. A file that consists of text becomes a
// part of the text, and a line stands in the place of a file that the model does not take: it is
// part of an earlier message, because a message with such a file is refused when it is sent. Fit
// does not change req, and returns it if it has no files.
func Fit(files agent.Files, req *agent.ModelRequest) *agent.ModelRequest {
	if req == nil || !slices.ContainsFunc(req.Messages, func(m agent.ModelMessage) bool { return m.Parts != nil }) {
		return req
	}
	fit := *req
	fit.Messages = slices.Clone(req.Messages)
	for i := range fit.Messages {
		if m := &fit.Messages[i]; m.Parts != nil {
			fitMessage(&files, m)
		}
	}
	return &fit
}

func fitMessage(files *agent.Files, m *agent.ModelMessage) {
	var c content
	var lines []string
	left := false
	for _, p := range m.Parts {
		_, bytes := p.GetContent().(*a2av1.Part_Raw)
		line, isFile := agent.Prompt(&a2av1.Message{Parts: []*a2av1.Part{p}}), agent.IsFile(p)
		if m.Role == agent.RoleTool && isFile {
			line = "" // the text of a result has it
		}
		switch takes := isFile && files.Takes(p); {
		case takes && bytes && agent.MatchesMedia(agent.MediaType(p), agent.TextFiles):
			line = strings.TrimPrefix(line+"\n"+strings.ToValidUTF8(string(p.GetRaw()), "\uFFFD"), "\n")
			c.text(agent.TextParts(line)...)
		case takes:
			left = true
			c.parts = append(c.parts, p)
		default:
			c.text(agent.TextParts(line)...)
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	m.Text, m.Parts = strings.Join(lines, "\n"), nil
	if left {
		m.Parts = c.parts
	}
}

// content collects the parts of a prompt message. Consecutive texts become one part.
type content struct{ parts []*a2av1.Part }

// text adds parts that are not files, as text.
func (c *content) text(parts ...*a2av1.Part) {
	text := agent.Prompt(&a2av1.Message{Parts: parts})
	if text == "" {
		return
	}
	if last := len(c.parts) - 1; last >= 0 && !agent.IsFile(c.parts[last]) {
		text = c.parts[last].GetText() + "\n" + text
		c.parts = c.parts[:last]
	}
	c.parts = append(c.parts, agent.TextParts(text)...)
}
