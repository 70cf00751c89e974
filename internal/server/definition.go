package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// definitions are the messages that define teams and agents. Unknown keys in them are
// faults, as they are in files; all other JSON may have some (A2A).
var definitions = map[protoreflect.FullName]bool{
	(&teamv1.TeamConfig{}).ProtoReflect().Descriptor().FullName():   true,
	(&teamv1.AgentConfig{}).ProtoReflect().Descriptor().FullName():  true,
	(&teamv1.ContractTeam{}).ProtoReflect().Descriptor().FullName(): true,
}

// maxUnknown is how many unknown keys are named.
const maxUnknown = 20

// knownKeys finds unknown keys in the definitions that the JSON of a request holds. The
// error is INVALID_TEAM_CONFIG.
func knownKeys(b []byte, m proto.Message) error {
	d := m.ProtoReflect().Descriptor()
	u := &unknown{fields: jsonNames}
	var object map[string]any
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.Message() == nil || !definitions[fd.Message().FullName()] {
			continue
		}
		if object == nil {
			_ = json.Unmarshal(b, &object) // it has been read before
		}
		for _, name := range slices.Compact([]string{fd.JSONName(), fd.TextName()}) {
			u.in(object[name], fd.JSONName(), fd.Message())
		}
	}
	return u.err()
}

// unknown gathers keys that are no fields.
type unknown struct {
	// fields are those of a message by the keys that are taken for them, and the keys
	// to name.
	fields func(protoreflect.MessageDescriptor) (by map[string]protoreflect.FieldDescriptor, named []string)
	found  []a2a.Violation
}

// jsonNames are the keys of ProtoJSON: camel case, and as in the proto.
func jsonNames(d protoreflect.MessageDescriptor) (by map[string]protoreflect.FieldDescriptor, named []string) {
	by, _ = protoNames(d)
	for _, fd := range slices.Collect(maps.Values(by)) {
		by[fd.JSONName()] = fd
		named = append(named, fd.JSONName())
	}
	return by, named
}

// protoNames are the keys of the contract: those of the proto alone.
func protoNames(d protoreflect.MessageDescriptor) (by map[string]protoreflect.FieldDescriptor, named []string) {
	by = map[string]protoreflect.FieldDescriptor{}
	for i := range d.Fields().Len() {
		by[d.Fields().Get(i).TextName()] = d.Fields().Get(i)
	}
	return by, slices.Collect(maps.Keys(by))
}

// in looks into a value of a field, which is at a path; other kinds of values than
// objects and lists hold no keys.
func (u *unknown) in(v any, at string, d protoreflect.MessageDescriptor) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			u.in(item, fmt.Sprintf("%s[%d]", at, i), d)
		}
	case map[string]any:
		u.object(v, at, d)
	}
}

func (u *unknown) object(o map[string]any, at string, d protoreflect.MessageDescriptor) {
	if at != "" {
		at += "."
	}
	by, named := u.fields(d)
	for _, key := range slices.Sorted(maps.Keys(o)) {
		fd := by[key]
		switch {
		case len(u.found) == maxUnknown:
			return
		case fd == nil:
			key = fmt.Sprintf("%.64s", key)
			u.found = append(u.found, a2a.Violation{Field: at + key, Description: "is unknown; " + config.Suggest(key, named)})
		case fd.Message() != nil && !fd.IsMap() && fd.Message().ParentFile().Package() != "google.protobuf":
			u.in(o[key], at+key, fd.Message())
		}
	}
}

func (u *unknown) err() error {
	if len(u.found) == 0 {
		return nil
	}
	e := a2a.Invalid(u.found...)
	e.Reason = agent.ReasonInvalidTeamConfig
	return e
}
