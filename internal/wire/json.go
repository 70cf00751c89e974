// Package wire encodes and decodes requests, answers, events and errors for the server and
// for the clients of other servers: JSON, server-sent events, the JSON-RPC envelope, and
// the table of errors.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
)

// Media types of JSON bodies.
const (
	TypeA2A  = "application/a2a+json"
	TypeJSON = "application/json"
)

// Marshal encodes m as ProtoJSON on one line. Fields that are not set are left out, except
// the required fields of a ListTasksResponse or an AgentCard.
func Marshal(m proto.Message) ([]byte, error) {
	defer inflight.Turn(int64(proto.Size(m)))()
	b, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	switch m.(type) {
	case *a2av1.ListTasksResponse:
		return complete(b, m.ProtoReflect().Descriptor(), false)
	case *a2av1.AgentCard:
		return complete(b, m.ProtoReflect().Descriptor(), true)
	}
	return b, nil
}

// complete adds the required fields of a message of type d that ProtoJSON leaves out. raw is the
// message as JSON. If deep is true, complete does so in the messages that it contains as well.
// The keys of the result are sorted.
func complete(raw json.RawMessage, d protoreflect.MessageDescriptor, deep bool) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.FullName(), err)
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		v, ok := object[fd.JSONName()]
		if !ok && !required(fd) {
			continue
		}
		if !ok {
			v = zero(fd)
		}
		if deep {
			var err error
			if v, err = completeField(v, fd); err != nil {
				return nil, err
			}
		}
		object[fd.JSONName()] = v
	}
	return json.Marshal(object)
}

func completeField(raw json.RawMessage, fd protoreflect.FieldDescriptor) (json.RawMessage, error) {
	value := fd
	if fd.IsMap() {
		value = fd.MapValue()
	}
	d := value.Message()
	switch {
	case d == nil || d.ParentFile().Package() == "google.protobuf":
		return raw, nil
	case fd.IsMap():
		return each(raw, map[string]json.RawMessage{}, d)
	case fd.IsList():
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("reading %s: %w", fd.FullName(), err)
		}
		for i := range list {
			var err error
			if list[i], err = complete(list[i], d, true); err != nil {
				return nil, err
			}
		}
		return json.Marshal(list)
	}
	return complete(raw, d, true)
}

func each(raw json.RawMessage, m map[string]json.RawMessage, d protoreflect.MessageDescriptor) (json.RawMessage, error) {
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("reading a map of %s: %w", d.FullName(), err)
	}
	for k := range m {
		var err error
		if m[k], err = complete(m[k], d, true); err != nil {
			return nil, err
		}
	}
	return json.Marshal(m)
}

// required reports whether the proto definition marks a field as required.
func required(fd protoreflect.FieldDescriptor) bool {
	behaviors, _ := proto.GetExtension(fd.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(behaviors, annotations.FieldBehavior_REQUIRED)
}

func zero(fd protoreflect.FieldDescriptor) json.RawMessage {
	switch {
	case fd.IsList():
		return json.RawMessage(`[]`)
	case fd.IsMap(), fd.Message() != nil:
		return json.RawMessage(`{}`)
	case fd.Kind() == protoreflect.StringKind, fd.Kind() == protoreflect.BytesKind:
		return json.RawMessage(`""`)
	case fd.Kind() == protoreflect.BoolKind:
		return json.RawMessage(`false`)
	}
	return json.RawMessage(`0`)
}

// Unmarshal decodes ProtoJSON into m. It accepts names in camelCase and snake_case, ignores
// unknown fields, and rejects unknown enum values. The error is INVALID_REQUEST.
func Unmarshal(b []byte, m proto.Message) error {
	defer inflight.Turn(int64(len(b)))()
	if err := ScanJSON(b); err != nil {
		return Invalid("", err.Error())
	}
	strict := protojson.UnmarshalOptions{RecursionLimit: scanWireDepth}
	if strict.Unmarshal(b, m) == nil {
		return nil
	}
	if problem := syntax(b); problem != "" {
		return Invalid("", problem)
	}
	// An unknown name or a real fault. Lenient decoding drops unknown enum
	// values too, so these are looked for first.
	found := misshapen(b, m.ProtoReflect().Descriptor())
	if len(found.enums) > 0 {
		return found.enums[0].invalid()
	}
	lenient := strict
	lenient.DiscardUnknown = true
	err := lenient.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	if len(found.other) > 0 {
		return found.other[0].invalid()
	}
	return Invalid("", place(err))
}

// Mismatch returns the field of JSON that encoding/json could not decode, "" for the whole, and what is wrong with it, in
// words for the author of the JSON.
func Mismatch(err error) (field, what string) {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return wrong.Field, "has the wrong type: " + wrong.Value
	}
	return "", fmt.Sprintf("cannot be read: %.200s", strings.TrimPrefix(err.Error(), "json: "))
}
