package wire

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unknownEnum finds the first enum value, by name, that the definition lacks.
// It leaves every other fault to the decoder.
func unknownEnum(b []byte, d protoreflect.MessageDescriptor) *fault {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return nil
	}
	return enumIn(v, d)
}

func enumIn(v any, d protoreflect.MessageDescriptor) *fault {
	object, ok := v.(map[string]any)
	if !ok || d.ParentFile().Package() == "google.protobuf" {
		return nil
	}
	for name, v := range object {
		fd := fieldOf(d, name)
		if fd == nil {
			continue
		}
		if f := enumInField(v, fd); f != nil {
			return f.in("." + fd.JSONName())
		}
	}
	return nil
}

func enumInField(v any, fd protoreflect.FieldDescriptor) *fault {
	switch v := v.(type) {
	case []any:
		for i, v := range v {
			if f := enumInValue(v, fd); f != nil {
				return f.in(fmt.Sprintf("[%d]", i))
			}
		}
		return nil
	case map[string]any:
		if fd.IsMap() {
			for k, v := range v {
				if f := enumInValue(v, fd.MapValue()); f != nil {
					return f.in("." + k)
				}
			}
			return nil
		}
	}
	return enumInValue(v, fd)
}

func enumInValue(v any, fd protoreflect.FieldDescriptor) *fault {
	switch {
	case fd.Message() != nil:
		return enumIn(v, fd.Message())
	case fd.Enum() == nil:
		return nil
	}
	if name, ok := v.(string); ok && fd.Enum().Values().ByName(protoreflect.Name(name)) == nil {
		return &fault{problem: fmt.Sprintf("must be one of %s, not %.40q", enumNames(fd.Enum()), name)}
	}
	return nil
}
