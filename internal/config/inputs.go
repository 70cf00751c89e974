package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/guard"
	"github.com/agentteams/team-server/pkg/team/inputs"
)

// Inputs returns the inputs that an agent or team of a valid file declares, ordered by name.
func Inputs(declared map[string]*structpb.Struct) (inputs.List, error) {
	var all inputs.List
	for _, name := range sorted(declared) {
		in, err := input(name, declared[name])
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", name, err)
		}
		all = append(all, in)
	}
	return all, nil
}

// input returns an input. The error is of type guard.Faults if the schema is wrong.
func input(name string, schema *structpb.Struct) (inputs.Input, error) {
	data, err := json.Marshal(schema.AsMap())
	if err != nil {
		return inputs.Input{}, err
	}
	s, err := guard.ParseSchema(name, data)
	if err != nil {
		return inputs.Input{}, err
	}
	in := inputs.Input{Name: name, Schema: schema, Default: schema.GetFields()["default"], Check: s.Check}
	if in.Default != nil {
		if err := in.Check(in.Default.AsInterface()); err != nil {
			return in, fmt.Errorf("the default %s", strings.TrimPrefix(err.Error(), "at the top "))
		}
	}
	return in, nil
}

// checkInputs reports what is wrong with the inputs that an agent or team declares.
func checkInputs(at source.Place, declared map[string]*structpb.Struct) {
	for _, name := range sorted(declared) {
		at := at.At("inputs", name)
		if misread(at, declared[name]) {
			continue
		}
		_, err := input(name, declared[name])
		var faults guard.Faults
		switch {
		case errors.As(err, &faults):
			at.Fault(fmt.Sprintf("the schema of input %q: %s", name, faults[0].Message), faults[0].Hint)
		case err != nil:
			at.At("default").Fault(fmt.Sprintf("input %q: %s", name, err), "correct default, or the schema")
		}
	}
}

// misread reports what people write in the schema of an input and what JSON Schema says otherwise, at its key.
func misread(at source.Place, schema *structpb.Struct) bool {
	kinds := []string{"array", "boolean", "integer", "null", "number", "object", "string"}
	others := map[string]string{
		"str": "string", "text": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean", "list": "array", "dict": "object", "map": "object",
	}
	if kind := schema.GetFields()["type"].GetStringValue(); kind != "" && !slices.Contains(kinds, kind) {
		hint := source.Suggest(kind, kinds)
		if others[kind] != "" {
			hint = fmt.Sprintf("did you mean %q?", others[kind])
		}
		at.At("type").Fault(fmt.Sprintf("%q is not the type of an input", kind), hint)
		return true
	}
	if _, is := schema.GetFields()["required"].GetKind().(*structpb.Value_BoolValue); is {
		at.At("required").KeyFault("inputs are required unless they have a default", "remove it, or write default: VALUE in place of required: false")
		return true
	}
	return false
}
