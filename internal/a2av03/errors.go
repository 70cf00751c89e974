package a2av03

import (
	"encoding/json"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
)

// data is the data of an error in 0.3. It is an object, because clients of 0.3 cannot
// decode a list.
type data struct {
	Reason  string          `json:"reason,omitempty"`
	Domain  string          `json:"domain,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// Error converts a status to a JSON-RPC error of 0.3.
func Error(st *status.Status) *wire.RPCError {
	return plainError(st, wire.RPCErrorOf(st))
}

// plainError converts a JSON-RPC error of 1.0 for status st to one of 0.3.
func plainError(st *status.Status, e *wire.RPCError) *wire.RPCError {
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

// ReadError converts a JSON-RPC error of 0.3 to a status.
func ReadError(e *wire.RPCError) *status.Status {
	var d data
	if json.Unmarshal(e.Data, &d) == nil && d.Details != nil {
		return wire.ParseRPCError(&wire.RPCError{Code: e.Code, Message: e.Message, Data: d.Details})
	}
	return wire.ParseRPCError(&wire.RPCError{Code: code(e.Code), Message: e.Message})
}

// ReadRESTError converts the error in a response or an event below /v1 to a status. The
// body may be an error of 1.0, a JSON-RPC error, an object with a JSON-RPC error, or an
// object with a message; otherwise the HTTP status decides.
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

// readMember returns the status of the JSON-RPC error that is a member of the body. Without such a member it returns st.
func readMember(body []byte, st *status.Status) *status.Status {
	var e wire.RPCResponse
	if json.Unmarshal(body, &e) == nil && e.Error != nil && e.Error.Code < 0 && e.Error.Message != "" {
		return ReadError(e.Error)
	}
	return st
}

// code maps the error codes that only the official Go SDK uses to ours.
func code(rpc int) int {
	switch rpc {
	case -31401:
		return -32024 // unauthenticated
	case -31403:
		return -32025 // permission denied
	}
	return rpc
}

// className returns the name of the error class in Python clients, which is the type of the
// answer: TaskNotFoundError for TASK_NOT_FOUND. It returns "" for errors that A2A does not
// define.
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

// RESTError encodes a status as the body of a response below /v1. The body has the error
// for clients that expect JSON-RPC errors, the one of 1.0, and the type for clients that
// choose an error class by it.
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
