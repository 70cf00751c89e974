package team

import (
	"regexp"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Template is a text with placeholders: {{input}}, {{steps.ID.text}},
// {{context.KEY}}, {{brief.task_description}}, {{brief.expected_output}}, and nothing else. What is put in stays as it is: braces in it
// mean nothing. What is not there yet is empty. Safe for concurrent use.
type Template struct {
	pieces []piece
}

// piece is literal text, or a placeholder with what it names.
type piece struct {
	kind   pieceKind
	text   string // the literal; the step's id; the context's key
	offset int
}

type pieceKind int

const (
	pieceLiteral pieceKind = iota
	pieceInput
	pieceStep
	pieceContext
	pieceBrief
)

var (
	stepPlaceholder    = regexp.MustCompile(`^steps\.([^\s.{}]+)\.text$`)
	contextPlaceholder = regexp.MustCompile(`^context\.([^\s{}]+)$`)
	briefPlaceholder   = regexp.MustCompile(`^brief\.(task_description|expected_output)$`)
)

// CompileTemplate compiles a step's task. stepIDs are the steps it may name.
// The error is an *ExprError.
func CompileTemplate(text string, stepIDs []string) (*Template, error) {
	t := &Template{}
	for at := 0; at < len(text); {
		open := strings.Index(text[at:], "{{")
		if open < 0 {
			t.literal(text[at:])
			break
		}
		t.literal(text[at : at+open])
		at += open
		end := strings.Index(text[at:], "}}")
		if end < 0 {
			return nil, &ExprError{Message: "the placeholder is not closed with }}", Offset: at}
		}
		p, err := placeholder(text[at+2:at+end], at, stepIDs)
		if err != nil {
			return nil, err
		}
		t.pieces = append(t.pieces, p)
		at += end + 2
	}
	return t, nil
}

func (t *Template) literal(text string) {
	if text != "" {
		t.pieces = append(t.pieces, piece{kind: pieceLiteral, text: text})
	}
}

// placeholder reads what stands between the braces that open at offset.
func placeholder(inner string, offset int, stepIDs []string) (piece, error) {
	name := strings.TrimSpace(inner)
	if name == "input" {
		return piece{kind: pieceInput, offset: offset}, nil
	}
	if m := contextPlaceholder.FindStringSubmatch(name); m != nil {
		return piece{kind: pieceContext, text: m[1], offset: offset}, nil
	}
	if m := briefPlaceholder.FindStringSubmatch(name); m != nil {
		return piece{kind: pieceBrief, text: m[1], offset: offset}, nil
	}
	if m := stepPlaceholder.FindStringSubmatch(name); m != nil && slices.Contains(stepIDs, m[1]) {
		return piece{kind: pieceStep, text: m[1], offset: offset}, nil
	}
	known := []string{"brief.expected_output", "brief.task_description", "context.KEY", "input"}
	for _, id := range stepIDs {
		known = append(known, "steps."+id+".text")
	}
	slices.Sort(known)
	return piece{}, UnknownName(offset, name, known, "no such placeholder {{%s}}", name)
}

// render fills the template for a state; text finds a step's result.
func (t *Template) render(s *State, text func(step string) string) string {
	var b strings.Builder
	for _, p := range t.pieces {
		switch p.kind {
		case pieceLiteral:
			b.WriteString(p.text)
		case pieceInput:
			b.WriteString(agent.Text(s.Input))
		case pieceStep:
			b.WriteString(text(p.text))
		case pieceContext:
			b.WriteString(agent.ValueText(s.Context[p.text]))
		case pieceBrief:
			b.WriteString(briefText(s.Brief, p.text))
		}
	}
	return b.String()
}

// message is the rendered template as a user's message. Where it has the input's
// text, the input's other content follows.
func (t *Template) message(s *State, text func(step string) string) *a2av1.Message {
	m := agent.UserMessage("", t.render(s, text))
	if !t.has(pieceInput, "") {
		return m
	}
	for _, p := range s.Input.GetParts() {
		if _, ok := p.GetContent().(*a2av1.Part_Text); !ok {
			m.Parts = append(m.Parts, p)
		}
	}
	return m
}

// has reports whether the template has a placeholder.
func (t *Template) has(kind pieceKind, text string) bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool { return p.kind == kind && p.text == text })
}

// briefText is what a placeholder names of a brief; empty without one.
func briefText(b *teamv1.Brief, name string) string {
	if name == "expected_output" {
		return b.GetExpectedOutput()
	}
	return b.GetTaskDescription()
}
