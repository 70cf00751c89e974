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

// misshapen finds the first value, by name, that is not of the kind that the
// definition wants. It is asked about what the decoder has refused only.
func misshapen(b []byte, d protoreflect.MessageDescriptor) *fault {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return nil
	}
	return shapeOf(v, d)
}

func shapeOf(v any, d protoreflect.MessageDescriptor) *fault {
	if d.ParentFile().Package() == "google.protobuf" {
		return wellKnown(v, d)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return &fault{problem: "must be an object"}
	}
	set := map[protoreflect.FullName]bool{}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fd := fieldOf(d, name)
		if fd == nil || object[name] == nil && !isValue(fd) {
			continue
		}
		if f := again(fd, set); f != nil {
			return f
		}
		if f := shapeOfField(object[name], fd); f != nil {
			return f.in("." + fd.JSONName())
		}
	}
	return nil
}

// again finds what may be there once and is there a second time; set are the
// fields and choices so far.
func again(fd protoreflect.FieldDescriptor, set map[protoreflect.FullName]bool) *fault {
	if set[fd.FullName()] {
		return (&fault{problem: "is there twice"}).in("." + fd.JSONName())
	}
	set[fd.FullName()] = true
	o := fd.ContainingOneof()
	if o == nil {
		return nil
	}
	if set[o.FullName()] {
		return &fault{problem: "has more than one of " + choices(o)}
	}
	set[o.FullName()] = true
	return nil
}

// fieldOf finds a field by either of its names in JSON, nil without.
func fieldOf(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := d.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return d.Fields().ByTextName(name)
}

// wellKnown judges types of the library that have a JSON form of their own.
func wellKnown(v any, d protoreflect.MessageDescriptor) *fault {
	_, object := v.(map[string]any)
	_, list := v.([]any)
	text, _ := v.(string)
	switch {
	case d.Name() == "Struct" && !object:
		return &fault{problem: "must be an object"}
	case d.Name() == "ListValue" && !list:
		return &fault{problem: "must be a list"}
	case d.Name() == "Timestamp" && !isTime(text):
		return &fault{problem: "must be a time such as 2006-01-02T15:04:05Z"}
	case d.Name() == "Duration" && !isDuration(text):
		return &fault{problem: "must be seconds such as 600s"}
	}
	return nil
}

func shapeOfField(v any, fd protoreflect.FieldDescriptor) *fault {
	switch {
	case fd.IsMap():
		object, ok := v.(map[string]any)
		if !ok {
			return &fault{problem: "must be an object"}
		}
		for _, k := range slices.Sorted(maps.Keys(object)) {
			if f := shapeOfValue(object[k], fd.MapValue()); f != nil {
				return f.in("." + k)
			}
		}
		return nil
	case fd.IsList():
		list, ok := v.([]any)
		if !ok {
			return &fault{problem: "must be a list"}
		}
		for i, v := range list {
			if f := shapeOfValue(v, fd); f != nil {
				return f.in(fmt.Sprintf("[%d]", i))
			}
		}
		return nil
	}
	return shapeOfValue(v, fd)
}

func shapeOfValue(v any, fd protoreflect.FieldDescriptor) *fault {
	words, text := v.(string)
	_, number := v.(float64)
	_, truth := v.(bool)
	switch kind := fd.Kind(); {
	case fd.Message() != nil:
		return shapeOf(v, fd.Message())
	case kind == protoreflect.StringKind && !text:
		return &fault{problem: "must be a string"}
	case kind == protoreflect.BytesKind && (!text || !isBase64(words)):
		return &fault{problem: "must be bytes in base64"}
	case kind == protoreflect.BoolKind && !truth:
		return &fault{problem: "must be true or false"}
	case kind == protoreflect.EnumKind && !text && !number:
		return &fault{problem: "must be one of " + enumNames(fd.Enum())}
	case isNumber(kind) && !number && !json.Valid([]byte(words)): // a number may be written as a string
		return &fault{problem: "must be a number"}
	case kind == protoreflect.Int32Kind && !isInt32(v):
		return &fault{problem: "must be a whole number of 32 bits"}
	}
	return nil
}

// isInt32 reports whether a number, or the text of one, is whole and not too large.
func isInt32(v any) bool {
	n, ok := v.(float64)
	if text, is := v.(string); is {
		var err error
		n, err = strconv.ParseFloat(text, 64)
		ok = err == nil
	}
	return ok && n == math.Trunc(n) && n >= math.MinInt32 && n <= math.MaxInt32
}

// isBase64 reports whether a text is bytes as ProtoJSON takes them: either alphabet,
// with padding or without.
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

// isValue reports whether null is a value of a field.
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
