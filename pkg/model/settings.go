package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// lacking are the settings that a provider's API does not have.
var lacking = map[string][]string{
	"anthropic": {"seed"},
	"gemini":    {"parallel_tool_calls"},
}

// reserved are the fields of requests that only the server sets: what it sends, how it reads the answer, and
// the limits that budgets rely on.
var reserved = [][]string{
	{"model"}, {"messages"}, {"system"}, {"tools"}, {"stream"}, {"stream_options"}, {"n"}, {"max_tokens"}, {"max_completion_tokens"},
	{"contents"}, {"systemInstruction"}, {"generationConfig", "maxOutputTokens"}, {"generationConfig", "candidateCount"},
}

// Unsupported returns the keys of settings that a provider cannot apply, each with the reason.
func Unsupported(provider string, s *teamv1.ModelSettings) map[string]string {
	faults := map[string]string{}
	s.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if name := f.TextName(); slices.Contains(lacking[provider], name) {
			faults[name] = fmt.Sprintf("models of the provider %q have no %s", provider, name)
		}
		return true
	})
	for _, path := range reserved {
		fields := s.GetExtraBody().GetFields()
		for i, name := range path {
			v, set := fields[name]
			if set && i == len(path)-1 {
				faults["extra_body"] = fmt.Sprintf("extra_body must not set %s, which the server sets", name)
			}
			fields = v.GetStructValue().GetFields()
		}
	}
	return faults
}

// MergeSettings returns the settings of a model in which those of an agent replace it, one by one. Either may
// be nil.
func MergeSettings(model, agent *teamv1.ModelSettings) *teamv1.ModelSettings {
	if agent == nil {
		return model
	}
	merged := &teamv1.ModelSettings{}
	if model != nil {
		merged = proto.CloneOf(model)
	}
	if len(agent.GetStop()) > 0 {
		merged.Stop = nil // Merge would append
	}
	proto.Merge(merged, agent)
	return merged
}

// WithExtra returns the body of a request with the fields of extra_body, which replace those with the same
// name; objects are merged, and null removes a field (RFC 7396).
func WithExtra(body any, s *teamv1.ModelSettings) any {
	extra := s.GetExtraBody()
	if len(extra.GetFields()) == 0 {
		return body
	}
	data, err := json.Marshal(body)
	if err != nil {
		return body // fails again when it is sent
	}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&object) != nil {
		return body
	}
	patch(object, extra)
	return object
}

// patch applies a JSON merge patch.
func patch(to map[string]any, by *structpb.Struct) {
	for _, name := range slices.Sorted(maps.Keys(by.GetFields())) {
		v := by.GetFields()[name]
		switch k := v.GetKind().(type) {
		case *structpb.Value_NullValue:
			delete(to, name)
		case *structpb.Value_StructValue:
			inner, ok := to[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				to[name] = inner
			}
			patch(inner, k.StructValue)
		default:
			to[name] = v.AsInterface()
		}
	}
}

// Path returns the path that the package of a provider appends to a base URL; "" for other providers.
func Path(provider string) string {
	return map[string]string{"openai": "/chat/completions", "anthropic": "/v1/messages", "gemini": "/v1beta"}[provider]
}
