package wire

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agentteams/team-server/internal/nesting"
	"github.com/agentteams/team-server/pkg/agent"
)

// Check rejects messages that not every encoding can carry: those with unknown enum
// numbers, numbers that are not finite, values without a kind, times out of range or
// deep nesting. A message that passes can be encoded for every binding and stored. The
// error is INVALID_REQUEST and has the JSON name of the field.
func Check(m proto.Message) error {
	c := &checker{}
	if f := c.message(m.ProtoReflect(), 1); f != nil {
		return f.invalid()
	}
	return nil
}

// Invalid returns an INVALID_REQUEST error for a field, or for the whole request if field
// is empty. problem is the predicate of a sentence whose subject is the field.
func Invalid(field, problem string) error {
	if field == "" {
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "the request %s", problem)
	}
	e := agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "%s %s", field, problem)
	e.Violations = []agent.Violation{{Field: field, Description: problem}}
	return e
}

// fault is a problem with the path of its field. Each caller on the way back adds its part to
// the front of the path.
type fault struct{ path, problem string }

func (f *fault) invalid() error { return Invalid(strings.TrimPrefix(f.path, "."), f.problem) }

func (f *fault) in(prefix string) *fault {
	if f != nil {
		f.path = prefix + f.path
	}
	return f
}

type checker struct{ values int }

func (c *checker) message(m protoreflect.Message, depth int) *fault {
	if depth > maxDepth {
		return &fault{problem: errDeep.Error()}
	}
	switch v := m.Interface().(type) {
	case *structpb.Value:
		if nesting.TooDeep(v) {
			return &fault{problem: nesting.Text}
		}
		return c.value(v, depth)
	case *structpb.Struct:
		if nesting.TooDeepStruct(v) {
			return &fault{problem: nesting.Text}
		}
		return c.object(v, depth)
	case *structpb.ListValue:
		return c.array(v, depth)
	case *timestamppb.Timestamp:
		if !v.IsValid() {
			return &fault{problem: "is not a time between the years 1 and 9999"}
		}
	case *durationpb.Duration:
		if !v.IsValid() {
			return &fault{problem: "is not a valid duration"}
		}
	default:
		return c.fields(m, depth)
	}
	return nil
}

func (c *checker) fields(m protoreflect.Message, depth int) (f *fault) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		f = c.field(fd, v, depth).in("." + fd.JSONName())
		return f == nil
	})
	return f
}

func (c *checker) field(fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) (f *fault) {
	switch {
	case fd.IsMap():
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			f = c.single(fd.MapValue(), v, depth+2).in("." + k.String())
			return f == nil
		})
		return f
	case fd.IsList():
		for i := range v.List().Len() {
			if f := c.single(fd, v.List().Get(i), depth+2); f != nil {
				return f.in(fmt.Sprintf("[%d]", i))
			}
		}
		return nil
	}
	return c.single(fd, v, depth+1)
}

func (c *checker) single(fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) *fault {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		if fd.Enum().Values().ByNumber(v.Enum()) == nil {
			return &fault{problem: fmt.Sprintf("must be one of %s, not %d", enumNames(fd.Enum()), v.Enum())}
		}
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return finite(v.Float())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return c.message(v.Message(), depth)
	}
	return nil
}

func (c *checker) value(v *structpb.Value, depth int) *fault {
	if depth > maxDepth {
		return &fault{problem: errDeep.Error()}
	}
	if c.values++; c.values > maxValues {
		return &fault{problem: errWide.Error()}
	}
	switch k := v.GetKind().(type) {
	case nil:
		return &fault{problem: "is a Value without a kind"}
	case *structpb.Value_NumberValue:
		return finite(k.NumberValue)
	case *structpb.Value_StructValue:
		return c.object(k.StructValue, depth)
	case *structpb.Value_ListValue:
		return c.array(k.ListValue, depth)
	}
	return nil
}

func (c *checker) object(s *structpb.Struct, depth int) *fault {
	for k, v := range s.GetFields() {
		if f := c.value(v, depth+1); f != nil {
			return f.in("." + k)
		}
	}
	return nil
}

func (c *checker) array(l *structpb.ListValue, depth int) *fault {
	for i, v := range l.GetValues() {
		if f := c.value(v, depth+1); f != nil {
			return f.in(fmt.Sprintf("[%d]", i))
		}
	}
	return nil
}

func finite(n float64) *fault {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return &fault{problem: "is not a finite number"}
	}
	return nil
}

// enumNames lists the values of an enum that can be sent.
func enumNames(e protoreflect.EnumDescriptor) string {
	var names []string
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	return strings.Join(names, ", ")
}
