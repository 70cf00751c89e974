// Package a2av03 translates between A2A 1.0, which the server thinks in, and the
// two JSON forms of A2A 0.3, both ways. It translates and judges the form;
// what a call means is decided where it is for 1.0.
//
// What 0.3 has no place for is left out: the tenant, and the media type and the
// file name of a part that is text or data. Data that is no object is wrapped as
// the official SDKs do it.
package a2av03

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Version is the version of the protocol, as A2A-Version says it.
const Version = "0.3"

// RESTBase is where REST is served at an address: below /v1, which some cards name and
// most do not.
func RESTBase(address string) string {
	return strings.TrimSuffix(strings.TrimSuffix(address, "/"), "/v1") + "/v1"
}

// Form is one of the JSON forms of 0.3.
type Form int

// The forms.
const (
	// RPC is the form of JSON-RPC: objects that say their kind, words in lower case.
	RPC Form = iota
	// REST is the form below /v1: the ProtoJSON of a2a.v1.
	REST
)

// words are what the forms call the same thing by.
type words struct {
	user, agent string
	parts       string // of a message
	push        string // in the configuration of a send
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

// protoStates are the names of a2a.v1, which has two l in one of them.
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

// wrapped marks, in the metadata of a part, data that is no object and stands
// below "value": the word of the official SDKs.
const wrapped = "data_part_compat"

// parse reads a JSON object; nothing is an empty one. The error is INVALID_REQUEST.
func parse(f Form, b []byte) (node, error) {
	s := &structpb.Struct{}
	if len(b) > 0 {
		if err := wire.Unmarshal(b, s); err != nil {
			return node{}, err
		}
	}
	return node{reader: &reader{form: f}, fields: s.GetFields()}, nil
}

// render is the JSON of an object, in one line.
func render(o object) ([]byte, error) { return wire.Marshal(&structpb.Struct{Fields: o}) }
