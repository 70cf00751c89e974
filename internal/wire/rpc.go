package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/inflight"
)

// Error codes that the JSON-RPC 2.0 specification defines.
const (
	RPCParse          = -32700
	RPCInvalidRequest = -32600
	RPCMethodNotFound = -32601
	RPCInvalidParams  = -32602
	RPCInternal       = -32603
)

// maxRPCID is the maximum size of an id, in bytes. It is limited because the id is sent with
// every event of a stream.
const maxRPCID = 256

// RPCRequest is a JSON-RPC 2.0 request.
type RPCRequest struct {
	ID     json.RawMessage `json:"id,omitempty"` // a string, a number or null, as it came
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
	// Notification reports that the request has no id: the caller wants no response.
	Notification bool `json:"-"`
}

// RPCError is the error of a JSON-RPC response.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"` // an array of objects with "@type"
}

// RPCResponse is a JSON-RPC 2.0 response: a result or an error.
type RPCResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *RPCError       `json:"error,omitempty"`
}

// ParseRPCResponse parses a response. Its result is a part of b and is not checked: it may be large, and decoding it checks
// that it is JSON.
func ParseRPCResponse(b []byte) (r RPCResponse, err error) {
	defer inflight.Turn(int64(len(b)))()
	all, err := members(b)
	if err != nil {
		return r, err
	}
	for name, to := range map[string]any{"jsonrpc": &r.JSONRPC, "id": &r.ID, "error": &r.Error} {
		if raw, ok := all[name]; ok {
			err = errors.Join(err, json.Unmarshal(raw, to))
		}
	}
	r.Result = all["result"]
	return r, err
}

// ParseRPC parses a request. If the request is invalid, it returns the error to respond with;
// the ID of the request is then the valid id that was found, or null. Batches are rejected.
func ParseRPC(b []byte) (RPCRequest, *RPCError) {
	req := RPCRequest{ID: json.RawMessage("null")}
	defer inflight.Turn(int64(len(b)))()
	sent, err := scanJSON(b)
	if err != nil {
		return req, rpcFault(RPCInvalidRequest, "", err.Error())
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(b, &members) != nil || members == nil {
		if problem := syntax(b); problem != "" {
			return req, rpcFault(RPCParse, "", problem)
		}
		return req, rpcFault(RPCInvalidRequest, "", "must be one JSON object; batches are not supported")
	}
	if sent != len(members) {
		return req, rpcFault(RPCInvalidRequest, "", "has a key more than once; send each of jsonrpc, id, method and params once")
	}
	if id, ok := members["id"]; ok {
		if !utf8.Valid(id) {
			return req, rpcFault(RPCParse, "", syntax(b))
		}
		if !validID(id) {
			return req, rpcFault(RPCInvalidRequest, "id", fmt.Sprintf("must be a string, a number or null of at most %d bytes", maxRPCID))
		}
		req.ID = id
	}
	if string(members["jsonrpc"]) != `"2.0"` {
		return req, rpcFault(RPCInvalidRequest, "jsonrpc", `must be "2.0"`)
	}
	if json.Unmarshal(members["method"], &req.Method) != nil || req.Method == "" {
		return req, rpcFault(RPCInvalidRequest, "method", "must be a string")
	}
	req.Params = members["params"]
	if len(req.Params) == 0 || string(req.Params) == "null" {
		req.Params = json.RawMessage("{}")
	}
	_, answered := members["id"]
	req.Notification = !answered
	if bytes.TrimLeft(req.Params, " \t\r\n")[0] != '{' {
		return req, rpcFault(RPCInvalidParams, "params", "must be an object")
	}
	return req, nil
}

func validID(id json.RawMessage) bool {
	if len(id) == 0 || len(id) > maxRPCID {
		return false
	}
	return id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9' || string(id) == "null"
}

// rpcFault returns an INVALID_REQUEST error with a code of the JSON-RPC specification.
func rpcFault(code int, field, problem string) *RPCError {
	e := RPCErrorOf(Status(Invalid(field, problem)))
	e.Code = code
	return e
}

// RPCErrorOf converts a status to a JSON-RPC error.
func RPCErrorOf(st *status.Status) *RPCError {
	return &RPCError{Code: classOf(st).rpc, Message: st.Message(), Data: encodeDetails(st)}
}

// RPCResult returns a response with a result that is JSON already, without parsing it again. id
// is the ID that ParseRPC returned.
func RPCResult(id, result json.RawMessage) []byte {
	before, after := RPCEnvelope(id)
	return slices.Concat(before, result, after)
}

// RPCEnvelope returns the text of a response before and after its result. id is the ID that
// ParseRPC returned.
func RPCEnvelope(id json.RawMessage) (before, after []byte) {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":`, id), []byte("}")
}

// RPCFailure encodes a response with an error.
func RPCFailure(id json.RawMessage, e *RPCError) ([]byte, error) {
	return json.Marshal(RPCResponse{JSONRPC: "2.0", ID: id, Error: e})
}

// RPCStatus returns the HTTP status of the response with a JSON-RPC error: 200, except for
// errors that clients and proxies recognize by the HTTP status alone.
func RPCStatus(st *status.Status) int {
	switch code := HTTPStatus(st); code {
	case 401, 403, 413, 415, 429, 503:
		return code
	}
	return 200
}
