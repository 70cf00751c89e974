// Package a2av03 converts between the messages of A2A 1.0, which the server uses, and the
// two JSON forms of A2A 0.3. It checks the encoding only; the handler of 1.0 checks the
// content.
//
// Fields that 0.3 does not have are dropped: the tenant, and the media type and file name
// of text and data parts. Data that is not an object is wrapped in the way of the official
// SDKs.
package a2av03

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Version is the protocol version in A2A-Version.
const Version = "0.3"

// RESTBase returns the base URL of REST, which ends with /v1. Some cards include /v1 in the
// address, most do not.
func RESTBase(address string) string {
	return strings.TrimSuffix(strings.TrimSuffix(address, "/"), "/v1") + "/v1"
}

// Form is one of the JSON forms of 0.3.
type Form int

// The two forms of 0.3.
const (
	// RPC is the form of JSON-RPC: objects have a kind, and enum values are in lower case.
	RPC Form = iota
	// REST is the form below /v1: the ProtoJSON of package a2a.v1.
	REST
	// mixed accepts both and the form of 1.0, see ReadMixed. It is never written.
	mixed
)

// words are the names that differ between the forms.
type words struct {
	user, agent string
	parts       string // the field for the parts of a message
	push        string // the field for the webhook in the configuration of a send
	states      map[a2av1.TaskState]string
}

func (f Form) words() words {
	if f == REST {
		return words{user: "ROLE_USER", agent: "ROLE_AGENT", parts: "content", push: "pushNotification", states: protoStates}
	}
	return words{user: "user", agent: "agent", parts: "parts", push: "pushNotificationConfig", states: kebabStates}
}

var kebabStates = map[a2av1.TaskState]string{
	a2av1.TaskState_TASK_STATE_UNSPECIFIED:    "unknown",
	a2av1.TaskState_TASK_STATE_SUBMITTED:      "submitted",
	a2av1.TaskState_TASK_STATE_WORKING:        "working",
	a2av1.TaskState_TASK_STATE_COMPLETED:      "completed",
	a2av1.TaskState_TASK_STATE_FAILED:         "failed",
	a2av1.TaskState_TASK_STATE_CANCELED:       "canceled",
	a2av1.TaskState_TASK_STATE_INPUT_REQUIRED: "input-required",
	a2av1.TaskState_TASK_STATE_REJECTED:       "rejected",
	a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:  "auth-required",
}

// protoStates are the names in a2a.v1, which spells CANCELLED with two l.
var protoStates = map[a2av1.TaskState]string{
	a2av1.TaskState_TASK_STATE_UNSPECIFIED:    "TASK_STATE_UNSPECIFIED",
	a2av1.TaskState_TASK_STATE_SUBMITTED:      "TASK_STATE_SUBMITTED",
	a2av1.TaskState_TASK_STATE_WORKING:        "TASK_STATE_WORKING",
	a2av1.TaskState_TASK_STATE_COMPLETED:      "TASK_STATE_COMPLETED",
	a2av1.TaskState_TASK_STATE_FAILED:         "TASK_STATE_FAILED",
	a2av1.TaskState_TASK_STATE_CANCELED:       "TASK_STATE_CANCELLED",
	a2av1.TaskState_TASK_STATE_INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
	a2av1.TaskState_TASK_STATE_REJECTED:       "TASK_STATE_REJECTED",
	a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:  "TASK_STATE_AUTH_REQUIRED",
}

// wrapped is the metadata key of a part whose data is not an object and is therefore stored
// under "value". The official SDKs define it.
const wrapped = "data_part_compat"

// parse decodes a JSON object; an empty text counts as an empty object. The error is
// INVALID_REQUEST.
func parse(f Form, b []byte) (node, error) {
	s := &structpb.Struct{}
	if len(b) > 0 {
		if err := wire.Unmarshal(b, s); err != nil {
			return node{}, err
		}
	}
	return node{reader: &reader{form: f}, fields: s.GetFields()}, nil
}

// render encodes an object as JSON on one line.
func render(o object) ([]byte, error) { return wire.Marshal(&structpb.Struct{Fields: o}) }
