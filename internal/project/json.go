package project

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

// structOf returns the Struct that results from parsing a message's JSON form, without fields that
// hold messages of ours in which nothing is set: a2a-java 0.3.3 cannot read empty objects in
// metadata. It returns false if there is no such form, for example if a text is not valid UTF-8.
func structOf(m protoreflect.Message) (s *structpb.Struct, ok bool) {
	s, ok = &structpb.Struct{Fields: map[string]*structpb.Value{}}, true
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		var value *structpb.Value
		if value, ok = fieldValue(fd, v); ok && !isEmpty(fd, value) {
			s.Fields[fd.JSONName()] = value
		}
		return ok
	})
	return s, ok
}

// isEmpty reports whether the value of a field is a message of ours in which nothing is set.
func isEmpty(fd protoreflect.FieldDescriptor, v *structpb.Value) bool {
	return fd.Message() != nil && !fd.IsList() && !fd.IsMap() && fd.Message().ParentFile().Package() != "google.protobuf" &&
		len(v.GetStructValue().GetFields()) == 0
}

// fieldValue returns the value of a field, which may be a list or a map.
func fieldValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) (_ *structpb.Value, ok bool) {
	switch {
	case fd.IsList():
		list := v.List()
		values := make([]*structpb.Value, list.Len())
		for i := range values {
			if values[i], ok = jsonValue(fd, list.Get(i)); !ok {
				return nil, false
			}
		}
		return structpb.NewListValue(&structpb.ListValue{Values: values}), true
	case fd.IsMap():
		fields := make(map[string]*structpb.Value, v.Map().Len())
		ok = true
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			if ok = utf8.ValidString(k.String()); ok {
				fields[k.String()], ok = jsonValue(fd.MapValue(), v)
			}
			return ok
		})
		return structpb.NewStructValue(&structpb.Struct{Fields: fields}), ok
	}
	return jsonValue(fd, v)
}

// jsonValue returns a single value of a field, list or map.
func jsonValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) (_ *structpb.Value, ok bool) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return structpb.NewBoolValue(v.Bool()), true
	case protoreflect.StringKind:
		return structpb.NewStringValue(v.String()), utf8.ValidString(v.String())
	case protoreflect.BytesKind:
		return structpb.NewStringValue(base64.StdEncoding.EncodeToString(v.Bytes())), true
	case protoreflect.EnumKind:
		return enumValue(fd.Enum(), v.Enum()), true
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return structpb.NewNumberValue(float64(v.Int())), true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return structpb.NewNumberValue(float64(v.Uint())), true
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return structpb.NewStringValue(strconv.FormatInt(v.Int(), 10)), true
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return structpb.NewStringValue(strconv.FormatUint(v.Uint(), 10)), true
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return floatValue(v.Float()), true
	case protoreflect.MessageKind, protoreflect.GroupKind:
	}
	if fd.Message().ParentFile().Package() == "google.protobuf" {
		return wellKnownValue(v.Message())
	}
	s, ok := structOf(v.Message())
	return structpb.NewStructValue(s), ok
}

// floatValue returns a number, or a string for values that JSON numbers cannot represent.
func floatValue(f float64) *structpb.Value {
	switch {
	case math.IsNaN(f):
		return structpb.NewStringValue("NaN")
	case math.IsInf(f, 1):
		return structpb.NewStringValue("Infinity")
	case math.IsInf(f, -1):
		return structpb.NewStringValue("-Infinity")
	}
	return structpb.NewNumberValue(f)
}

// enumValue returns the name of an enum value, or its number if it has no name.
func enumValue(ed protoreflect.EnumDescriptor, n protoreflect.EnumNumber) *structpb.Value {
	if value := ed.Values().ByNumber(n); value != nil {
		return structpb.NewStringValue(string(value.Name()))
	}
	return structpb.NewNumberValue(float64(n))
}

// wellKnownValue returns the value of a message of package google.protobuf, whose JSON form may be
// other than an object with its fields.
func wellKnownValue(m protoreflect.Message) (*structpb.Value, bool) {
	b, err := protojson.Marshal(m.Interface())
	if err != nil {
		return nil, false
	}
	v := &structpb.Value{}
	return v, protojson.Unmarshal(b, v) == nil
}
