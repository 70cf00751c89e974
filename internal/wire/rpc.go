package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/status"
)

// Codes of JSON-RPC itself.
const (
	RPCParse          = -32700
	RPCInvalidRequest = -32600
	RPCMethodNotFound = -32601
	RPCInvalidParams  = -32602
	RPCInternal       = -32603
)

// maxRPCID bounds an id: it is sent back with every event of a stream.
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

// ParseRPC reads a request. The id of the result is set as far as it could be
// read, so that an error can carry it; missing is null. The error is the one to
// answer with; batches are refused.
func ParseRPC(b []byte) (RPCRequest, *RPCError) {
	req := RPCRequest{ID: json.RawMessage("null")}
	if err := ScanJSON(b); err != nil {
		return req, rpcFault(RPCInvalidRequest, "", err.Error())
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(b, &members) != nil || members == nil {
		if problem := syntax(b); problem != "" {
			return req, rpcFault(RPCParse, "", problem)
		}
		return req, rpcFault(RPCInvalidRequest, "", "must be one JSON object; batches are not supported")
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

// rpcFault is an INVALID_REQUEST under one of JSON-RPC's own codes.
func rpcFault(code int, field, problem string) *RPCError {
	e := RPCErrorOf(Status(Invalid(field, problem)))
	e.Code = code
	return e
}

// RPCErrorOf is the JSON-RPC form of a status.
func RPCErrorOf(st *status.Status) *RPCError {
	return &RPCError{Code: classOf(st).rpc, Message: st.Message(), Data: encodeDetails(st)}
}

// RPCResult is a response with a result that is rendered already: it is not parsed
// again. id is the request's, as ParseRPC read it.
func RPCResult(id, result json.RawMessage) []byte {
	before, after := RPCEnvelope(id)
	return slices.Concat(before, result, after)
}

// RPCEnvelope is what stands before and after a result that is rendered already.
// id is the request's, as ParseRPC read it.
func RPCEnvelope(id json.RawMessage) (before, after []byte) {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":`, id), []byte("}")
}

// RPCFailure renders a response with an error.
func RPCFailure(id json.RawMessage, e *RPCError) ([]byte, error) {
	return json.Marshal(RPCResponse{JSONRPC: "2.0", ID: id, Error: e})
}

// RPCStatus is the HTTP status that carries a JSON-RPC error: 200, except where
// clients and proxies act on the status alone.
func RPCStatus(st *status.Status) int {
	switch code := HTTPStatus(st); code {
	case 401, 403, 413, 415, 429, 503:
		return code
	}
	return 200
}
