package source

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// IsSecret reports whether the definition marks a field as a secret.
func IsSecret(f protoreflect.FieldDescriptor) bool {
	o, _ := f.Options().(*descriptorpb.FieldOptions)
	return o.GetDebugRedact()
}

// secretKind is what the values of a key with secrets are.
type secretKind int

const (
	secretText secretKind = 1 + iota
	secretMap             // a mapping of names to secrets
)

// secretFields returns the keys of the configuration file whose values are secrets.
var secretFields = sync.OnceValue(func() map[string]secretKind {
	names := map[string]secretKind{}
	eachField(func(f protoreflect.FieldDescriptor) {
		switch {
		case IsSecret(f) && f.IsMap():
			names[f.TextName()] = secretMap
		case IsSecret(f) && !f.ContainingMessage().IsMapEntry():
			names[f.TextName()] = secretText
		}
	})
	return names
})

// isSecretPath reports whether the value at a path of the file is a secret, such as api_key, or part of one,
// such as a variable of env.
func isSecretPath(path []any) bool {
	message := (&teamv1.ServerConfig{}).ProtoReflect().Descriptor()
	var f protoreflect.FieldDescriptor
	entry := false // the step before was a key of the map f
	for _, step := range path {
		key, ok := step.(string)
		switch {
		case !ok: // an index
		case f != nil && f.IsMap() && !entry:
			message, entry = f.MapValue().Message(), true
		case message == nil:
			return false
		default:
			if f, entry = message.Fields().ByTextName(key), false; f == nil {
				return false
			}
			message = f.Message()
		}
	}
	return f != nil && IsSecret(f)
}

// eachField calls visit for each field of the messages of configuration files and test files.
func eachField(visit func(protoreflect.FieldDescriptor)) {
	seen := map[protoreflect.FullName]bool{}
	var message func(m protoreflect.MessageDescriptor)
	message = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			visit(f)
			if f.IsMap() {
				f = f.MapValue()
				visit(f)
			}
			if f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "team.") {
				message(f.Message())
			}
		}
	}
	message((&teamv1.ServerConfig{}).ProtoReflect().Descriptor())
	message((&teamv1.ScenarioFile{}).ProtoReflect().Descriptor())
}
