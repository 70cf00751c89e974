package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxSchema is the maximum size of a schema file, in bytes.
const maxSchema = 256 << 10

// Schema is a JSON Schema of draft 2020-12 or 07. The keyword format and the content keywords are
// ignored. A Schema is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	source   json.RawMessage
}

// ParseSchema parses a schema file; file is its name in faults. The error is of type Faults and
// holds all faults. A $ref must refer to a schema below $defs of the same file, and no schema may
// contain itself.
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

// parse returns a schema, or reports its faults and returns nil.
func parse(data []byte, report func(offset int, message, hint string)) *Schema {
	if len(data) > maxSchema {
		report(0, fmt.Sprintf("the file has %d bytes, a schema has at most %d", len(data), maxSchema), "")
		return nil
	}
	root, err := read(data)
	var p *positionError
	if errors.As(err, &p) {
		report(p.offset, p.message, p.hint)
		return nil
	}
	sound := true
	k := &checker{root: root, report: func(offset int, message, hint string) {
		sound = false
		report(offset, message, hint)
	}}
	if k.check(); sound && k.count(root) > maxCost {
		k.fault(root, "make it simpler", "checking a value evaluates more than %d schemas", maxCost)
	}
	if !sound {
		return nil
	}
	compiled, err := compile(root)
	if err == nil {
		return &Schema{compiled: compiled, source: compact(data)}
	}
	var invalid *jsonschema.SchemaValidationError
	var violations *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &violations) {
		for _, v := range sorted(flatten(nil, violations)) {
			k.fault(root.find(v.at), "correct the schema", "%s", v.text)
		}
	}
	if sound {
		k.fault(root, "correct the schema", "not a valid JSON Schema: %s", err)
	}
	return nil
}

// compact returns JSON without blanks between its values.
func compact(data []byte) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return data
	}
	return b.Bytes()
}

// JSON returns the schema itself. The caller must not modify it.
func (s *Schema) JSON() json.RawMessage { return s.source }

// Fit returns the data of an answer: of its [agent.Values] the first that conforms to the schema. The
// error lists the violations of the likeliest one, for the model that wrote the answer.
func (s *Schema) Fit(m *a2av1.Message) (*structpb.Value, error) {
	values := agent.Values(m)
	if len(values) == 0 {
		return nil, errNoData
	}
	data := values[0]
	for _, v := range values {
		if len(violations(s.compiled, v)) == 0 {
			data = v
			break
		}
	}
	if err := s.Check(data); err != nil {
		return nil, err
	}
	value, err := structpb.NewValue(data)
	if err != nil {
		return nil, errNoData
	}
	return value, nil
}

// Check returns the violations of a value, as encoding/json decodes it; nil if it conforms to the schema.
func (s *Schema) Check(v any) error {
	vs := violations(s.compiled, v)
	if len(vs) == 0 {
		return nil
	}
	return errors.New(formatViolations(vs, func(v violation) string { return v.where() + " " + v.text }))
}

var errNoData = errors.New("the answer contains no JSON")

// describeViolations describes where the data of a message violates the schema, or returns "". It does not
// quote the data, because its readers may not be allowed to see the message.
func (s *Schema) describeViolations(m *a2av1.Message) string {
	data, ok := agent.Data(m)
	if !ok {
		return "it contains no JSON data; add some"
	}
	vs := violations(s.compiled, data)
	if len(vs) == 0 {
		return ""
	}
	return "its data violates the schema " + formatViolations(vs, func(v violation) string { return v.where() + " (" + v.keyword + ")" }) + "; correct it"
}

// formatViolations joins up to ten violations.
func formatViolations(vs []violation, word func(violation) string) string {
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
