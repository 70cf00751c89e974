package interop

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// facts are what a definition says, each under a name of its own, so that a
// difference names the field and the property. Order, comments and the options
// of code generators are none.
type facts map[string]string

func factsOf(file protoreflect.FileDescriptor) facts {
	f := facts{"package": string(file.Package()), "syntax": file.Syntax().String()}
	f.messages(file.Messages())
	f.enums(file.Enums())
	for s := range all(file.Services()) {
		for m := range all(s.Methods()) {
			f.method(m)
		}
	}
	return f
}

// descriptors is any list of descriptors.
type descriptors[D any] interface {
	Len() int
	Get(i int) D
}

func all[D any](list descriptors[D]) func(yield func(D) bool) {
	return func(yield func(D) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

// say adds a fact about a descriptor.
func (f facts) say(d protoreflect.Descriptor, property string, value any) {
	f[string(d.FullName())+" "+property] = fmt.Sprint(value)
}

func (f facts) messages(list protoreflect.MessageDescriptors) {
	for m := range all(list) {
		f.say(m, "is", "message")
		f.say(m, "map entry", m.IsMapEntry())
		for field := range all(m.Fields()) {
			f.field(field)
		}
		for o := range all(m.Oneofs()) {
			f.say(o, "is", "oneof")
		}
		f.messages(m.Messages())
		f.enums(m.Enums())
	}
}

func (f facts) field(d protoreflect.FieldDescriptor) {
	f.say(d, "number", d.Number())
	f.say(d, "type", d.Kind())
	f.say(d, "label", d.Cardinality())
	f.say(d, "JSON name", d.JSONName())
	f.say(d, "optional", d.HasOptionalKeyword())
	f.say(d, "presence", d.HasPresence())
	f.say(d, "packed", d.IsPacked())
	f.say(d, "behavior", behavior(d))
	switch {
	case d.Message() != nil:
		f.say(d, "message", d.Message().FullName())
	case d.Enum() != nil:
		f.say(d, "enum", d.Enum().FullName())
	}
	if o := d.ContainingOneof(); o != nil {
		f.say(d, "oneof", o.Name())
	}
}

// behavior is what the google.api.field_behavior option says: REQUIRED or nothing.
func behavior(d protoreflect.FieldDescriptor) []string {
	list, ok := proto.GetExtension(d.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	if !ok {
		return nil
	}
	var names []string
	for _, b := range list {
		names = append(names, b.String())
	}
	slices.Sort(names)
	return names
}

func (f facts) enums(list protoreflect.EnumDescriptors) {
	for e := range all(list) {
		f.say(e, "is", "enum")
		for v := range all(e.Values()) {
			f.say(v, "number", v.Number())
		}
	}
}

func (f facts) method(m protoreflect.MethodDescriptor) {
	f.say(m, "request", m.Input().FullName())
	f.say(m, "response", m.Output().FullName())
	f.say(m, "client streams", m.IsStreamingClient())
	f.say(m, "server streams", m.IsStreamingServer())
	f.say(m, "HTTP", httpRules(m))
}

// httpRules are the HTTP rules of a method, the first one first.
func httpRules(m protoreflect.MethodDescriptor) string {
	rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil {
		return "none"
	}
	list := []string{httpRule(rule)}
	for _, more := range rule.GetAdditionalBindings() {
		list = append(list, httpRule(more))
	}
	return strings.Join(list, ", ")
}

func httpRule(r *annotations.HttpRule) string {
	verb, path := "?", ""
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		verb, path = "GET", p.Get
	case *annotations.HttpRule_Post:
		verb, path = "POST", p.Post
	case *annotations.HttpRule_Put:
		verb, path = "PUT", p.Put
	case *annotations.HttpRule_Patch:
		verb, path = "PATCH", p.Patch
	case *annotations.HttpRule_Delete:
		verb, path = "DELETE", p.Delete
	}
	return fmt.Sprintf("%s %s body=%q response_body=%q", verb, path, r.GetBody(), r.GetResponseBody())
}
