package expr

import (
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Template is a text with placeholders: {{input}}, {{steps.ID.text}},
// {{context.KEY}}, {{brief.task_description}}, {{brief.expected_output}}, and nothing else.
// What is put in stays as it is: braces in it mean nothing. What is not there yet is empty.
// Safe for concurrent use.
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
// The error is an *Error.
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
			return nil, &Error{Message: "the placeholder is not closed with }}", Offset: at}
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
	return piece{}, Unknown(offset, name, known, "no such placeholder {{%s}}", name)
}

// Given is what the placeholders of a template stand for.
type Given struct {
	// Input is {{input}}: the message of the run.
	Input *a2av1.Message
	// Context is {{context.KEY}}.
	Context map[string]*structpb.Value
	// Brief is {{brief.…}}; nil is none.
	Brief *teamv1.Brief
	// Step returns {{steps.ID.text}}; empty where there is no result yet.
	Step func(id string) string
}

// Names returns the steps that the template names, in the order of its text.
func (t *Template) Names() []Name {
	var names []Name
	for _, p := range t.pieces {
		if p.kind == pieceStep {
			names = append(names, Name{p.text, p.offset})
		}
	}
	return names
}

// Text returns the template filled in.
func (t *Template) Text(g *Given) string {
	var b strings.Builder
	for _, p := range t.pieces {
		switch p.kind {
		case pieceLiteral:
			b.WriteString(p.text)
		case pieceInput:
			b.WriteString(agent.Text(g.Input))
		case pieceStep:
			b.WriteString(g.Step(p.text))
		case pieceContext:
			b.WriteString(agent.ValueText(g.Context[p.text]))
		case pieceBrief:
			b.WriteString(briefText(g.Brief, p.text))
		}
	}
	return b.String()
}

// Message returns the template filled in, as a user's message. Where it has the input's
// text, the input's other content follows.
func (t *Template) Message(g *Given) *a2av1.Message {
	m := agent.UserMessage("", t.Text(g))
	if !t.has(pieceInput) {
		return m
	}
	for _, p := range g.Input.GetParts() {
		if _, ok := p.GetContent().(*a2av1.Part_Text); !ok {
			m.Parts = append(m.Parts, p)
		}
	}
	return m
}

// has reports whether the template has a placeholder of a kind.
func (t *Template) has(kind pieceKind) bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool { return p.kind == kind })
}

// briefText is what a placeholder names of a brief; empty without one.
func briefText(b *teamv1.Brief, name string) string {
	if name == "expected_output" {
		return b.GetExpectedOutput()
	}
	return b.GetTaskDescription()
}
