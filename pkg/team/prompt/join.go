package prompt

import (
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Joiner builds a message from sections. The zero value is ready to use. Consecutive plain texts
// become one part; other parts are added unchanged and shared with their source.
type Joiner struct {
	parts []*a2av1.Part
	text  []string // paragraphs; they are copied once, because they may be large
}

// Section adds parts under a heading.
func (j *Joiner) Section(title string, parts []*a2av1.Part) {
	j.Write("## " + title)
	j.Add(parts)
}

// Add adds parts.
func (j *Joiner) Add(parts []*a2av1.Part) {
	for _, p := range parts {
		if isPlainText(p) {
			j.Write(p.GetText())
			continue
		}
		j.flush()
		j.parts = append(j.parts, p)
	}
}

// Write adds a paragraph of text.
func (j *Joiner) Write(text string) {
	if text != "" || len(j.text) > 0 {
		j.text = append(j.text, text)
	}
}

func (j *Joiner) flush() {
	if len(j.text) > 0 {
		j.parts = append(j.parts, agent.TextParts(strings.Join(j.text, "\n\n"))...)
		j.text = nil
	}
}

// Message returns what was added as a message of an agent.
func (j *Joiner) Message() *a2av1.Message {
	j.flush()
	return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: j.parts}
}

// isPlainText reports whether a part has text and nothing else.
func isPlainText(p *a2av1.Part) bool {
	_, text := p.GetContent().(*a2av1.Part_Text)
	return text && p.GetMetadata() == nil && p.GetFilename() == "" &&
		(p.GetMediaType() == "" || p.GetMediaType() == "text/plain")
}

// OnlyText reports whether all parts of a message are text.
func OnlyText(m *a2av1.Message) bool {
	for _, part := range m.GetParts() {
		if _, ok := part.GetContent().(*a2av1.Part_Text); !ok {
			return false
		}
	}
	return true
}

// Blank reports whether a message has no content: only text, and that is blank.
func Blank(m *a2av1.Message) bool { return strings.TrimSpace(agent.Text(m)) == "" && OnlyText(m) }
