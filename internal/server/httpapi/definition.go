package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// definitions lists the messages that define teams and agents. Unknown keys in them are
// errors, as they are in files. Everywhere else unknown JSON fields are ignored, as A2A
// requires.
var definitions = map[protoreflect.FullName]bool{
	(&teamv1.TeamConfig{}).ProtoReflect().Descriptor().FullName():   true,
	(&teamv1.AgentConfig{}).ProtoReflect().Descriptor().FullName():  true,
	(&teamv1.ContractTeam{}).ProtoReflect().Descriptor().FullName(): true,
}

// maxUnknown is the maximum number of unknown keys in one error.
const maxUnknown = 20

// checkKeys looks for unknown keys in the definitions within b, the JSON of request m. The
// error is INVALID_TEAM_CONFIG and names each key with its path.
func checkKeys(b []byte, m proto.Message) error {
	d := m.ProtoReflect().Descriptor()
	u := &unknownKeys{fields: jsonNames}
	var object map[string]any
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.Message() == nil || !definitions[fd.Message().FullName()] {
			continue
		}
		if object == nil {
			_ = json.Unmarshal(b, &object) // it was valid when the request was decoded
		}
		for _, name := range slices.Compact([]string{fd.JSONName(), fd.TextName()}) {
			u.check(object[name], fd.JSONName(), fd.Message())
		}
	}
	return u.err()
}

// unknownKeys collects the keys of a JSON object that are not fields of its message.
type unknownKeys struct {
	// fields returns the fields of a message by accepted key, and the keys to suggest in
	// errors.
	fields func(protoreflect.MessageDescriptor) (by map[string]protoreflect.FieldDescriptor, named []string)
	found  []agent.Violation
}

// jsonNames returns the keys of ProtoJSON: each field in camel case and as in the proto
// file. It suggests those in camel case.
func jsonNames(d protoreflect.MessageDescriptor) (by map[string]protoreflect.FieldDescriptor, named []string) {
	by, _ = protoNames(d)
	for _, fd := range slices.Collect(maps.Values(by)) {
		by[fd.JSONName()] = fd
		named = append(named, fd.JSONName())
	}
	return by, named
}

// protoNames returns the keys of contract calls: only the names in the proto file.
func protoNames(d protoreflect.MessageDescriptor) (by map[string]protoreflect.FieldDescriptor, named []string) {
	by = map[string]protoreflect.FieldDescriptor{}
	for i := range d.Fields().Len() {
		by[d.Fields().Get(i).TextName()] = d.Fields().Get(i)
	}
	return by, slices.Collect(maps.Keys(by))
}

// check looks for unknown keys in v, the value of a field at path at. Values that are neither
// objects nor lists contain no keys.
func (u *unknownKeys) check(v any, at string, d protoreflect.MessageDescriptor) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			u.check(item, fmt.Sprintf("%s[%d]", at, i), d)
		}
	case map[string]any:
		u.object(v, at, d)
	}
}

func (u *unknownKeys) object(o map[string]any, at string, d protoreflect.MessageDescriptor) {
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
			u.found = append(u.found, agent.Violation{Field: at + key, Description: "is unknown; " + source.Suggest(key, named)})
		case fd.Message() != nil && !fd.IsMap() && fd.Message().ParentFile().Package() != "google.protobuf":
			u.check(o[key], at+key, fd.Message())
		}
	}
}

func (u *unknownKeys) err() error {
	if len(u.found) == 0 {
		return nil
	}
	e := a2aerror.Invalid(u.found...)
	e.Reason = agent.ReasonInvalidTeamConfig
	return e
}
