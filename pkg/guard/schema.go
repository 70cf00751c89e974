package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxSchema bounds a schema file, in bytes.
const maxSchema = 256 << 10

// Schema is a JSON Schema of the draft 2020-12 or 07. format and the content
// keywords are not looked at. Safe for concurrent use.
type Schema struct{ root *node }

// ParseSchema reads a schema file; file is its name in faults. The error is
// Faults: all of them at once. A $ref names a schema below $defs of the same
// file, and no schema contains itself.
func ParseSchema(file string, data []byte) (*Schema, error) {
	var faults Faults
	report := func(offset int, message, hint string) {
		line, col := place(data, offset)
		faults = append(faults, Fault{File: file, Line: line, Col: col, Message: message, Hint: hint})
	}
	s := parse(data, report)
	if len(faults) > 0 {
		faults.sort()
		return nil, faults
	}
	return s, nil
}

// parse returns a schema, or reports what is wrong with it.
func parse(data []byte, report func(offset int, message, hint string)) *Schema {
	if len(data) > maxSchema {
		report(0, fmt.Sprintf("the file has %d bytes, a schema has at most %d", len(data), maxSchema), "")
		return nil
	}
	root, err := read(data)
	var p *placed
	if errors.As(err, &p) {
		report(p.offset, p.message, p.hint)
		return nil
	}
	sound := true
	k := &checker{root: root, report: func(offset int, message, hint string) {
		sound = false
		report(offset, message, hint)
	}}
	if k.check(); sound {
		if k.count(root) > maxCost {
			k.fault(root, "make it simpler", "to look at one value takes more than %d schemas", maxCost)
		}
	}
	if !sound {
		return nil
	}
	n, err := compile(root)
	if err != nil {
		k.fault(root, "correct the schema", "this is no JSON Schema: %s", plain(err))
		return nil
	}
	return &Schema{root: n}
}

// compile makes a node of each schema that has its own place in the data.
func compile(root *value) (*node, error) {
	return (&compiler{root: root, left: maxNodes}).node(root)
}

// plain is an error of the library without its name.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "jsonschema: ") }

// Fit returns the data of an answer: its first data part, or its text where that
// is JSON, also between the marks of a block of code. The error lists what does
// not fit, in words for the model that wrote it.
func (s *Schema) Fit(m *a2av1.Message) (*structpb.Value, error) {
	data, err := dataOf(m, true)
	if err != nil {
		return nil, err
	}
	if vs := s.root.violations(data, ""); len(vs) > 0 {
		return nil, errors.New(list10(vs, func(v violation) string { return v.where() + " " + v.text }))
	}
	value, err := structpb.NewValue(data)
	if err != nil {
		return nil, errors.New("the answer holds no JSON data")
	}
	return value, nil
}

// unfit says where the data of a message does not fit, without the words that
// are there: whom it is told must not learn them.
func (s *Schema) unfit(m *a2av1.Message) string {
	data, err := dataOf(m, false)
	if err != nil {
		return "it holds no JSON data; send some"
	}
	vs := s.root.violations(data, "")
	if len(vs) == 0 {
		return ""
	}
	return "its data does not fit " + list10(vs, func(v violation) string { return v.where() + " (" + v.keyword + ")" }) + "; correct it"
}

// list10 joins the first ten violations.
func list10(vs []violation, word func(violation) string) string {
	var words []string
	for i, v := range vs {
		if i == 10 {
			words = append(words, fmt.Sprintf("and %d more", len(vs)-i))
			break
		}
		words = append(words, word(v))
	}
	return strings.Join(words, ", ")
}

// dataOf returns the data of a message as encoding/json has it; fenced allows
// JSON in a block of code.
func dataOf(m *a2av1.Message, fenced bool) (any, error) {
	data, ok := agent.Data(m)
	if !ok && fenced {
		ok = json.Unmarshal([]byte(agent.Unfenced(agent.Text(m))), &data) == nil
	}
	if !ok {
		return nil, errors.New("the answer is no JSON")
	}
	return data, nil
}
