package fakeagent

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
)

// oldCard returns a card with only the fields of A2A 0.3.
func oldCard(card *a2av1.AgentCard) ([]byte, error) {
	b, err := a2av03.WriteCard(card)
	if err != nil {
		return nil, err
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, err
	}
	for _, new := range []string{"supportedInterfaces", "securityRequirements", "additionalInterfaces"} {
		delete(o, new)
	}
	return json.Marshal(o)
}

// oldMethods maps the methods of 0.3 to those of 1.0.
var oldMethods = map[string]string{
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/resubscribe": "SubscribeToTask",
	"tasks/get": "GetTask", "tasks/cancel": "CancelTask",
}

// rpcOld serves JSON-RPC in 0.3.
func (a *Agent) rpcOld(w http.ResponseWriter, r *http.Request, req wire.RPCRequest) {
	fail := func(w http.ResponseWriter, err error) {
		b, _ := wire.RPCFailure(req.ID, a2av03.Error(wire.Status(err)))
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.WriteHeader(wire.RPCStatus(wire.Status(err)))
		_, _ = w.Write(b)
	}
	op := a.operation(oldMethods[req.Method])
	if op == nil {
		fail(w, status.Error(codes.Unimplemented, "unknown method"))
		return
	}
	if err := readOld(a2av03.RPC, req.Params, op.body); err != nil {
		fail(w, err)
		return
	}
	a.record(op.method, op.body, headers(r))
	if err := a.authorize(r.Header.Values("Authorization")); err != nil {
		fail(w, err)
		return
	}
	if op.stream != nil {
		serveStream(w, r, op, func(r *a2av1.StreamResponse) ([]byte, error) {
			b, err := a2av03.RPC.WriteEvent(r, false)
			if err != nil {
				return nil, err
			}
			return wire.RPCResult(req.ID, b), nil
		}, fail)
		return
	}
	out, err := op.unary(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	b, _ := writeOld(a2av03.RPC, out)
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, _ = w.Write(wire.RPCResult(req.ID, b))
}

func readOld(form a2av03.Form, params []byte, into proto.Message) error {
	var from proto.Message
	var err error
	switch into.(type) {
	case *a2av1.SendMessageRequest:
		from, err = form.ReadSend(params)
	case *a2av1.GetTaskRequest:
		from, err = a2av03.ReadTaskQuery(params)
	case *a2av1.CancelTaskRequest:
		from, err = a2av03.ReadCancel(params)
	case *a2av1.SubscribeToTaskRequest:
		from, err = a2av03.ReadResubscribe(params)
	}
	if err == nil {
		proto.Merge(into, from)
	}
	return err
}

func writeOld(form a2av03.Form, m proto.Message) ([]byte, error) {
	if r, ok := m.(*a2av1.SendMessageResponse); ok {
		return form.WriteAnswer(r)
	}
	t, _ := m.(*a2av1.Task)
	return form.WriteTask(t)
}

// restOld serves REST in 0.3.
func (a *Agent) restOld(w http.ResponseWriter, r *http.Request) {
	fail := func(w http.ResponseWriter, err error) {
		st := wire.Status(err)
		b, _ := a2av03.RESTError(st, wire.HTTPStatus(st))
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.WriteHeader(wire.HTTPStatus(st))
		_, _ = w.Write(b) //nolint:gosec // JSON of a test
	}
	method, id := a.route(r)
	op := a.operation(method)
	if op == nil || !strings.HasPrefix(r.URL.Path, "/v1/") {
		fail(w, status.Error(codes.Unimplemented, "unknown path"))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if method == "SendMessage" || method == "SendStreamingMessage" {
		err = readOld(a2av03.REST, body, op.body)
		r.Body = http.NoBody
	}
	if err == nil {
		err = a.decode(r, op, id)
	}
	if err != nil {
		fail(w, err)
		return
	}
	if op.stream != nil {
		serveStream(w, r, op, func(r *a2av1.StreamResponse) ([]byte, error) { return a2av03.REST.WriteEvent(r, false) }, fail)
		return
	}
	out, err := op.unary(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	b, _ := writeOld(a2av03.REST, out)
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, _ = w.Write(b)
}
