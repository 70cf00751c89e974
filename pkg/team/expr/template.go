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

// Template is a text with placeholders: {{input}}, {{inputs.NAME}}, {{outputs.NAME}}, {{steps.ID.text}}, {{context.KEY}},
// {{brief.task_description}} and {{brief.expected_output}}. Inserted texts are not interpreted:
// braces in them have no meaning. A missing value is empty. Safe for concurrent use.
type Template struct {
	pieces []piece
}

// piece is literal text or a placeholder.
type piece struct {
	kind   pieceKind
	text   string // the literal text, the id of the step, the key of the context, or the name of the value
	offset int
}

type pieceKind int

const (
	pieceLiteral pieceKind = iota
	pieceInput
	pieceStep
	pieceContext
	pieceBrief
	pieceNamedInput
	pieceOutput
)

var (
	stepPlaceholder    = regexp.MustCompile(`^steps\.([^\s.{}]+)\.text$`)
	contextPlaceholder = regexp.MustCompile(`^context\.([^\s{}]+)$`)
	plannedPlaceholder = regexp.MustCompile(`\{\{\s*(?:input|steps\.([^\s.{}]+)\.text)\s*\}\}`)
	inputPlaceholder   = regexp.MustCompile(`^inputs\.([A-Za-z_][A-Za-z0-9_]*)$`)
	outputPlaceholder  = regexp.MustCompile(`^outputs\.([A-Za-z_][A-Za-z0-9_]*)(?:\.text)?$`)
	readPlaceholder    = regexp.MustCompile(`\{\{\s*inputs\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)
	briefPlaceholder   = regexp.MustCompile(`^brief\.(task_description|expected_output)$`)
)

// CompileTemplate compiles a template. stepIDs are the ids of the steps that it may name, and named are the inputs and
// outputs. The error is an *Error.
func CompileTemplate(text string, stepIDs []string, named Names) (*Template, error) {
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
		p, err := placeholder(text[at+2:at+end], at, stepIDs, named)
		if err != nil {
			return nil, err
		}
		t.pieces = append(t.pieces, p)
		at += end + 2
	}
	return t, nil
}

// CompilePlanned compiles a text that a model or a person has written as a task of a plan. Only
// {{input}} and {{steps.ID.text}} with one of stepIDs are placeholders; everything else is literal
// text. The error is always nil.
func CompilePlanned(text string, stepIDs []string) (*Template, error) {
	t := &Template{}
	rest := 0 // offset of the text that is not part of t yet
	for _, at := range plannedPlaceholder.FindAllStringSubmatchIndex(text, -1) {
		p := piece{kind: pieceInput, offset: at[0]}
		if at[2] >= 0 {
			p.kind, p.text = pieceStep, text[at[2]:at[3]]
			if !slices.Contains(stepIDs, p.text) {
				continue
			}
		}
		t.literal(text[rest:at[0]])
		t.pieces = append(t.pieces, p)
		rest = at[1]
	}
	t.literal(text[rest:])
	return t, nil
}

func (t *Template) literal(text string) {
	if text != "" {
		t.pieces = append(t.pieces, piece{kind: pieceLiteral, text: text})
	}
}

// placeholder parses the text between braces that open at offset.
func placeholder(inner string, offset int, stepIDs []string, named Names) (piece, error) {
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
	if m := inputPlaceholder.FindStringSubmatch(name); m != nil && slices.Contains(named.Inputs, m[1]) {
		return piece{kind: pieceNamedInput, text: m[1], offset: offset}, nil
	}
	if m := outputPlaceholder.FindStringSubmatch(name); m != nil && slices.Contains(named.Outputs, m[1]) {
		return piece{kind: pieceOutput, text: m[1], offset: offset}, nil
	}
	known := []string{"brief.expected_output", "brief.task_description", "context.KEY", "input"}
	for _, id := range named.Inputs {
		known = append(known, "inputs."+id)
	}
	for _, id := range named.Outputs {
		known = append(known, "outputs."+id)
	}
	for _, id := range stepIDs {
		known = append(known, "steps."+id+".text")
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return piece{}, Unknown(offset, name, known, "no such placeholder {{%s}}", name)
}

// CompileInstructions compiles a text for a model, in which only {{inputs.NAME}} is a placeholder; everything else is
// literal text. inputs are the names that it may have. The error is an *Error.
func CompileInstructions(text string, inputs []string) (*Template, error) {
	t := &Template{}
	rest := 0 // offset of the text that is not part of t yet
	for _, at := range readPlaceholder.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		if !slices.Contains(inputs, name) {
			if len(inputs) == 0 {
				return nil, &Error{Message: "no such input \"" + name + "\"; declare it: inputs: {" + name + ": {type: string}}", Offset: at[0]}
			}
			return nil, Unknown(at[0], name, inputs, "no such input %q", name)
		}
		t.literal(text[rest:at[0]])
		t.pieces = append(t.pieces, piece{kind: pieceNamedInput, text: name, offset: at[0]})
		rest = at[1]
	}
	t.literal(text[rest:])
	return t, nil
}

// Given holds the values of a template's placeholders.
type Given struct {
	// Input is the value of {{input}}: the message of the run.
	Input *a2av1.Message
	// Context has the values of {{context.KEY}}.
	Context map[string]*structpb.Value
	// Brief has the values of {{brief.…}}; nil if there is none.
	Brief *teamv1.Brief
	// Step returns the value of {{steps.ID.text}}; empty if the step has no result yet.
	Step func(id string) string
	// Inputs has the values of {{inputs.NAME}}.
	Inputs map[string]*structpb.Value
	// Output returns the value of {{outputs.NAME}}; empty if there is no result yet.
	Output func(name string) string
}

// holders are the variables that the placeholders of a kind are keys of.
var holders = map[pieceKind]string{pieceStep: "steps", pieceNamedInput: "inputs", pieceOutput: "outputs"}

// Names returns the steps, inputs and outputs that the template names, in the order of its text.
func (t *Template) Names() []Name {
	var names []Name
	for _, p := range t.pieces {
		if of := holders[p.kind]; of != "" {
			names = append(names, Name{of, p.text, p.offset})
		}
	}
	return names
}

// Text returns the template with its values. what names it in the error for a text of more than agent.MaxText bytes,
// which is not built.
func (t *Template) Text(what string, g *Given) (string, error) {
	values := map[piece]string{} // by placeholder without its offset
	texts := make([]string, len(t.pieces))
	length := 0
	for i, p := range t.pieces {
		if p.offset = 0; p.kind == pieceLiteral {
			texts[i] = p.text
		} else {
			if _, known := values[p]; !known {
				values[p] = p.value(g)
			}
			texts[i] = values[p]
		}
		length += len(texts[i])
	}
	if length > agent.MaxText {
		return "", agent.TextTooLong(what, length)
	}
	return strings.Join(texts, ""), nil
}

// value returns the text that a placeholder stands for.
func (p piece) value(g *Given) string {
	switch p.kind {
	case pieceInput:
		return agent.Text(g.Input)
	case pieceStep:
		return g.Step(p.text)
	case pieceContext:
		return agent.ValueText(g.Context[p.text])
	case pieceBrief:
		return briefText(g.Brief, p.text)
	case pieceNamedInput:
		return agent.ValueText(g.Inputs[p.text])
	case pieceOutput:
		return g.Output(p.text)
	case pieceLiteral:
	}
	return p.text
}

// Message returns the template with its values as a user's message. If the template uses {{input}},
// the parts of the input that are not text are appended. The error is that of Text.
func (t *Template) Message(what string, g *Given) (*a2av1.Message, error) {
	text, err := t.Text(what, g)
	if err != nil {
		return nil, err
	}
	m := agent.UserMessage("", text)
	if !t.UsesInput() {
		return m, nil
	}
	for _, p := range g.Input.GetParts() {
		if _, ok := p.GetContent().(*a2av1.Part_Text); !ok {
			m.Parts = append(m.Parts, p)
		}
	}
	return m, nil
}

// UsesInput reports whether the template uses {{input}}.
func (t *Template) UsesInput() bool { return t.has(pieceInput) }

// has reports whether the template has a placeholder of a kind.
func (t *Template) has(kind pieceKind) bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool { return p.kind == kind })
}

// briefText returns a field of a brief, which may be nil.
func briefText(b *teamv1.Brief, name string) string {
	if name == "expected_output" {
		return b.GetExpectedOutput()
	}
	return b.GetTaskDescription()
}
