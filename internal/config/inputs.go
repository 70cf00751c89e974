package config

import (
	"encoding/json"
	"errors"
	"fmt"

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
			return in, fmt.Errorf("the default does not fit: %w", err)
		}
	}
	return in, nil
}

// checkInputs reports what is wrong with the inputs that an agent or team declares.
func checkInputs(at source.Place, declared map[string]*structpb.Struct) {
	for _, name := range sorted(declared) {
		at := at.At("inputs", name)
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
