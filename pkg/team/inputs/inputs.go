// Package inputs reads the values that callers give to an agent or team by name, in data parts of their messages.
package inputs

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Input is a value that callers give by name.
type Input struct {
	// Name of the value. Required.
	Name string
	// Schema is the JSON Schema of the value, which callers are shown.
	Schema *structpb.Struct
	// Default is the value if the caller gives none; nil means that callers must give one.
	Default *structpb.Value
	// Check returns why a value, as encoding/json decodes it, is wrong. It is a pure function and safe for concurrent use.
	// nil accepts every value.
	Check func(v any) error
}

// List is all inputs of an agent or team.
type List []Input

// Names returns the names of the inputs.
func (l List) Names() []string {
	names := make([]string, len(l))
	for i := range l {
		names[i] = l[i].Name
	}
	return names
}

// Schema returns the JSON Schema of an object with the inputs; nil without inputs.
func (l List) Schema() *structpb.Struct {
	if len(l) == 0 {
		return nil
	}
	properties := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	required := &structpb.ListValue{}
	for _, in := range l {
		properties.Fields[in.Name] = structpb.NewStructValue(in.Schema)
		if in.Default == nil {
			required.Values = append(required.Values, structpb.NewStringValue(in.Name))
		}
	}
	s := &structpb.Struct{Fields: map[string]*structpb.Value{
		"type": structpb.NewStringValue("object"), "properties": structpb.NewStructValue(properties),
	}}
	if len(required.GetValues()) > 0 {
		s.Fields["required"] = structpb.NewListValue(required)
	}
	return s
}

// Read returns the values of a message by name, with defaults for those that it lacks. Each fault names an input that is
// missing or wrong, and what was expected; it continues a sentence about the message.
func (l List) Read(m *a2av1.Message) (values map[string]*structpb.Value, faults []string) {
	if len(l) == 0 {
		return nil, nil
	}
	given := givenIn(m)
	values = make(map[string]*structpb.Value, len(l))
	for _, in := range l {
		v, ok := given[in.Name]
		switch {
		case !ok && in.Default == nil:
			faults = append(faults, fmt.Sprintf("lacks the input %q; add a data part with {%q: VALUE}; expected: %s", in.Name, in.Name, in.expected()))
			continue
		case !ok:
			v = in.Default
		}
		var err error
		if values[in.Name], err = in.fit(v); err != nil {
			faults = append(faults, fmt.Sprintf("has a wrong value for the input %q: %s; expected: %s", in.Name, strings.Replace(err.Error(), "at the top", "it", 1), in.expected()))
		}
	}
	return values, faults
}

// givenIn returns the members of the objects in the data parts of a message. The first one with a name counts.
func givenIn(m *a2av1.Message) map[string]*structpb.Value {
	given := map[string]*structpb.Value{}
	for _, p := range m.GetParts() {
		for name, v := range p.GetData().GetStructValue().GetFields() {
			if _, ok := given[name]; !ok {
				given[name] = v
			}
		}
	}
	return given
}

// maxExpected is the maximum length of a schema in a fault, in bytes.
const maxExpected = 500

// expected describes the value for people.
func (in *Input) expected() string {
	return agent.Excerpt(agent.ValueText(structpb.NewStructValue(in.Schema)), maxExpected)
}

// fit returns the value as the schema wants it. Where the value itself does not fit, but the JSON in its text does, or its
// JSON as a text, that is the value: forms and command lines know texts only.
func (in *Input) fit(v *structpb.Value) (*structpb.Value, error) {
	if in.Check == nil {
		return v, nil
	}
	err := in.Check(v.AsInterface())
	if err == nil {
		return v, nil
	}
	if other := otherForm(v); other != nil && in.Check(other.AsInterface()) == nil {
		return other, nil
	}
	return nil, err
}

// otherForm returns the value in a text, or the text of a number or a truth value; nil for others.
func otherForm(v *structpb.Value) *structpb.Value {
	switch v.GetKind().(type) {
	case *structpb.Value_NumberValue, *structpb.Value_BoolValue:
		return structpb.NewStringValue(agent.ValueText(v))
	case *structpb.Value_StringValue:
		var decoded any
		if json.Unmarshal([]byte(v.GetStringValue()), &decoded) != nil {
			return nil
		}
		other, err := structpb.NewValue(decoded)
		if err != nil {
			return nil
		}
		return other
	}
	return nil
}

// Part returns a data part with values.
func Part(values map[string]*structpb.Value) *a2av1.Part {
	return agent.DataPart(structpb.NewStructValue(&structpb.Struct{Fields: values}))
}

// Fill returns a message with a data part for the values that schema, as Schema returns it, asks for and the message lacks.
// It returns the message itself if it lacks none of them. The message is not changed.
func Fill(m *a2av1.Message, schema *structpb.Struct, values map[string]*structpb.Value) *a2av1.Message {
	asked := schema.GetFields()["properties"].GetStructValue().GetFields()
	if len(asked) == 0 || len(values) == 0 {
		return m
	}
	given := givenIn(m)
	missing := maps.Clone(values)
	maps.DeleteFunc(missing, func(name string, _ *structpb.Value) bool { return asked[name] == nil || given[name] != nil })
	if len(missing) == 0 {
		return m
	}
	return &a2av1.Message{
		MessageId: m.GetMessageId(), ContextId: m.GetContextId(), TaskId: m.GetTaskId(), Role: m.GetRole(), Metadata: m.GetMetadata(),
		Parts:      append(append([]*a2av1.Part{}, m.GetParts()...), Part(missing)),
		Extensions: m.GetExtensions(), ReferenceTaskIds: m.GetReferenceTaskIds(),
	}
}
