package a2av03

import (
	"encoding/json"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
)

// data is what an error of 0.3 says besides its text: an object, since clients of
// 0.3 can read no list.
type data struct {
	Reason  string          `json:"reason,omitempty"`
	Domain  string          `json:"domain,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Error is the JSON-RPC form of a status.
func Error(st *status.Status) *wire.RPCError {
	return Plain(st, wire.RPCErrorOf(st))
}

// Plain is an error of 1.0 as 0.3 has it.
func Plain(st *status.Status, e *wire.RPCError) *wire.RPCError {
	info := wire.InfoOf(st)
	if info == nil && len(e.Data) == 0 {
		return e
	}
	b, err := json.Marshal(data{info.GetReason(), info.GetDomain(), e.Data})
	if err != nil {
		b = nil
	}
	return &wire.RPCError{Code: e.Code, Message: e.Message, Data: b}
}

// ReadError is the status that an error of 0.3 stands for.
func ReadError(e *wire.RPCError) *status.Status {
	var d data
	if json.Unmarshal(e.Data, &d) == nil && d.Details != nil {
		return wire.ParseRPCError(&wire.RPCError{Code: e.Code, Message: e.Message, Data: d.Details})
	}
	return wire.ParseRPCError(&wire.RPCError{Code: code(e.Code), Message: e.Message})
}

// ReadRESTError is the status that an answer or an event below /v1 stands for: it
// holds the error of 1.0, the one of JSON-RPC, bare or as its member, a message
// alone, or says no more than its HTTP status.
func ReadRESTError(httpStatus int, body []byte) *status.Status {
	st := wire.ParseRESTError(httpStatus, body)
	var e wire.RPCError
	switch {
	case wire.InfoOf(st) != nil:
		return st
	case json.Unmarshal(body, &e) != nil || e.Message == "":
		return readMember(body, st)
	case e.Code < 0:
		return ReadError(&e)
	}
	return status.New(st.Code(), e.Message)
}

// readMember is the status of an error of JSON-RPC that is a member of the body, st
// where there is none.
func readMember(body []byte, st *status.Status) *status.Status {
	var e wire.RPCResponse
	if json.Unmarshal(body, &e) == nil && e.Error != nil && e.Error.Code < 0 && e.Error.Message != "" {
		return ReadError(e.Error)
	}
	return st
}

// code is what the official Go SDK's own codes mean.
func code(rpc int) int {
	switch rpc {
	case -31401:
		return -32024 // unauthenticated
	case -31403:
		return -32025 // permission denied
	}
	return rpc
}

// className is what clients in Python call an error of the protocol, in the type of
// an answer: TaskNotFoundError for TASK_NOT_FOUND; nothing for errors of our own.
func className(st *status.Status) string {
	info := wire.InfoOf(st)
	if info.GetDomain() != wire.DomainA2A || info.GetReason() == "" {
		return ""
	}
	name := ""
	for word := range strings.FieldsFuncSeq(info.GetReason(), func(c rune) bool { return c == '_' }) {
		name += word[:1] + strings.ToLower(word[1:])
	}
	return name + "Error"
}

// RESTError renders st as the body of an answer below /v1: the error that
// clients of JSON-RPC know, and beside it the one of 1.0 for those that look there,
// and the type for those that know errors by their class.
func RESTError(st *status.Status, httpStatus int) ([]byte, error) {
	b, err := wire.RESTError(st, httpStatus)
	if err != nil {
		return nil, err
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(b, &body); err != nil {
		return nil, err
	}
	e, err := json.Marshal(struct {
		*wire.RPCError
		Type string `json:"type,omitempty"`
	}{Error(st), className(st)})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(e, &body); err != nil {
		return nil, err
	}
	return json.Marshal(body)
}
