package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// misshapen finds the values in a JSON text that do not have the type that the proto definition
// requires, and the names that are not values of an enum, sorted by the names of the fields.
// It is used for texts that the decoder has rejected, to say what is wrong.
func misshapen(b []byte, d protoreflect.MessageDescriptor) shapes {
	var s shapes
	var v any
	if json.Unmarshal(b, &v) == nil {
		s.message(v, d, "")
	}
	return s
}

// shapes collects the faults of decoded JSON. The parameter at of its methods is the path of the
// value that the method checks.
type shapes struct {
	enums []fault // names that are not values of an enum
	other []fault
}

func (s *shapes) wrong(at, problem string) { s.other = append(s.other, fault{at, problem}) }

func (s *shapes) message(v any, d protoreflect.MessageDescriptor, at string) {
	if d.ParentFile().Package() == "google.protobuf" {
		s.wellKnown(v, d, at)
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		s.wrong(at, "must be an object")
		return
	}
	set := map[protoreflect.FullName]bool{}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fd := fieldOf(d, name)
		if fd == nil || object[name] == nil && !isValue(fd) {
			continue
		}
		if s.again(fd, set, at) {
			continue
		}
		s.field(object[name], fd, at+"."+fd.JSONName())
	}
}

// again reports whether a field of the message at the path at, or another field of its oneof, was
// found before, and then adds a fault. set holds the fields and oneofs found so far.
func (s *shapes) again(fd protoreflect.FieldDescriptor, set map[protoreflect.FullName]bool, at string) bool {
	o := fd.ContainingOneof()
	switch {
	case set[fd.FullName()]:
		s.wrong(at+"."+fd.JSONName(), "is duplicated")
		return true
	case o != nil && set[o.FullName()]:
		s.wrong(at, "has more than one of "+choices(o))
		return true
	case o != nil:
		set[o.FullName()] = true
	}
	set[fd.FullName()] = true
	return false
}

// fieldOf returns the field with a name, in camelCase or snake_case, or nil.
func fieldOf(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := d.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return d.Fields().ByTextName(name)
}

// wellKnown checks a value of a protobuf well-known type that has a special form in JSON.
func (s *shapes) wellKnown(v any, d protoreflect.MessageDescriptor, at string) {
	_, object := v.(map[string]any)
	_, list := v.([]any)
	text, _ := v.(string)
	switch {
	case d.Name() == "Struct" && !object:
		s.wrong(at, "must be an object")
	case d.Name() == "ListValue" && !list:
		s.wrong(at, "must be an array")
	case d.Name() == "Timestamp" && !isTime(text):
		s.wrong(at, "must be a time such as 2006-01-02T15:04:05Z")
	case d.Name() == "Duration" && !isDuration(text):
		s.wrong(at, "must be seconds such as 600s")
	}
}

func (s *shapes) field(v any, fd protoreflect.FieldDescriptor, at string) {
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	switch {
	case fd.IsMap() && !isObject:
		s.wrong(at, "must be an object")
	case fd.IsMap():
		for _, k := range slices.Sorted(maps.Keys(object)) {
			s.value(object[k], fd.MapValue(), at+"."+k)
		}
	case fd.IsList() && !isList:
		s.wrong(at, "must be an array")
	case fd.IsList():
		for i, v := range list {
			s.value(v, fd, fmt.Sprintf("%s[%d]", at, i))
		}
	default:
		s.value(v, fd, at)
	}
}

func (s *shapes) value(v any, fd protoreflect.FieldDescriptor, at string) {
	words, text := v.(string)
	_, number := v.(float64)
	_, truth := v.(bool)
	switch kind := fd.Kind(); {
	case fd.Message() != nil:
		s.message(v, fd.Message(), at)
	case kind == protoreflect.StringKind && !text:
		s.wrong(at, "must be a string")
	case kind == protoreflect.BytesKind && (!text || !isBase64(words)):
		s.wrong(at, "must be a base64 string")
	case kind == protoreflect.BoolKind && !truth:
		s.wrong(at, "must be true or false")
	case kind == protoreflect.EnumKind && text && fd.Enum().Values().ByName(protoreflect.Name(words)) == nil:
		s.enums = append(s.enums, fault{at, fmt.Sprintf("must be one of %s, not %.40q", enumNames(fd.Enum()), words)})
	case kind == protoreflect.EnumKind && !text && !number:
		s.wrong(at, "must be one of "+enumNames(fd.Enum()))
	case isNumber(kind) && !number && !json.Valid([]byte(words)): // a number may be written as a string
		s.wrong(at, "must be a number")
	case kind == protoreflect.Int32Kind && !isInt32(v):
		s.wrong(at, "must be a whole number of 32 bits")
	}
}

// isInt32 reports whether a JSON number, or a string with a number, is an integer of 32 bits.
func isInt32(v any) bool {
	n, ok := v.(float64)
	if text, is := v.(string); is {
		var err error
		n, err = strconv.ParseFloat(text, 64)
		ok = err == nil
	}
	return ok && n == math.Trunc(n) && n >= math.MinInt32 && n <= math.MaxInt32
}

// isBase64 reports whether a text is base64 that ProtoJSON accepts for bytes: in the standard or
// the URL alphabet, with or without padding.
func isBase64(s string) bool {
	enc := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.RawURLEncoding
	}
	_, err := enc.DecodeString(strings.TrimRight(s, "="))
	return err == nil
}

func isTime(s string) bool {
	t, err := time.Parse(time.RFC3339Nano, s)
	return err == nil && t.UTC().Year() >= 1
}

func isDuration(s string) bool {
	return protojson.Unmarshal([]byte(strconv.Quote(s)), &durationpb.Duration{}) == nil
}

func isNumber(k protoreflect.Kind) bool {
	return k != protoreflect.StringKind && k != protoreflect.BytesKind && k != protoreflect.BoolKind && k != protoreflect.EnumKind
}

// isValue reports whether null is a valid value of a field, so that it does not mean unset.
func isValue(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value"
}

// choices lists the fields of a oneof.
func choices(o protoreflect.OneofDescriptor) string {
	names := make([]string, o.Fields().Len())
	for i := range names {
		names[i] = o.Fields().Get(i).JSONName()
	}
	return strings.Join(names, ", ")
}
