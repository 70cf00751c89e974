package fakeagent

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// handler returns the handler of the card, REST and JSON-RPC.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/agent-card.json", a.card)
	mux.HandleFunc("POST /rpc", a.rpc)
	rest := http.HandlerFunc(a.rest)
	if a.cfg.Old {
		rest = a.restOld
	}
	mux.Handle("/rest/", http.StripPrefix("/rest", rest))
	return mux
}

func headers(r *http.Request) map[string][]string {
	h := map[string][]string{}
	for k, v := range r.Header {
		h[strings.ToLower(k)] = v
	}
	return h
}

func (a *Agent) card(w http.ResponseWriter, r *http.Request) {
	a.record("Card", nil, headers(r))
	card := a.buildCard()
	if a.cfg.Card != nil {
		a.cfg.Card(card)
	}
	b, err := wire.Marshal(card)
	if a.cfg.Old {
		b, err = oldCard(card)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, _ = w.Write(b)
}

func (a *Agent) buildCard() *a2av1.AgentCard {
	bindings := a.cfg.Bindings
	if bindings == nil {
		bindings = []string{"GRPC", "JSONRPC", "HTTP+JSON"}
	}
	version := a.cfg.Version
	if version == "" {
		version = "1.0"
	}
	card := &a2av1.AgentCard{
		Name: "Fake", Description: "follows its script", Version: "1",
		Capabilities:      &a2av1.AgentCapabilities{Streaming: proto.Bool(!a.cfg.NoStream), Extensions: a.cfg.Extensions},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
	}
	urls := map[string]string{"GRPC": a.grpcAddr, "JSONRPC": a.URL() + "/rpc", "HTTP+JSON": a.URL() + "/rest"}
	for _, b := range bindings {
		card.SupportedInterfaces = append(card.SupportedInterfaces, &a2av1.AgentInterface{
			Url: urls[b], ProtocolBinding: b, ProtocolVersion: version, Tenant: a.cfg.Tenant,
		})
	}
	for _, s := range a.cfg.Skills {
		card.Skills = append(card.Skills, &a2av1.AgentSkill{Id: s.GetId(), Name: s.GetName(), Description: s.GetDescription(), Tags: s.GetTags()})
	}
	return card
}

// operation is a call in any binding. Either unary or stream is set.
type operation struct {
	method string
	body   proto.Message
	unary  func(ctx context.Context) (proto.Message, error)
	stream func(ctx context.Context, send func(*a2av1.StreamResponse) error) error
}

// operation returns the operation of a method, nil for an unknown one.
func (a *Agent) operation(method string) *operation {
	s := a2aService{agent: a}
	switch method {
	case "SendMessage":
		req := &a2av1.SendMessageRequest{}
		return &operation{method: method, body: req, unary: func(ctx context.Context) (proto.Message, error) { return s.send(ctx, req) }}
	case "SendStreamingMessage":
		req := &a2av1.SendMessageRequest{}
		return &operation{method: method, body: req, stream: func(ctx context.Context, send func(*a2av1.StreamResponse) error) error {
			return s.streaming(ctx, req, send)
		}}
	case "SubscribeToTask":
		req := &a2av1.SubscribeToTaskRequest{}
		return &operation{method: method, body: req, stream: func(ctx context.Context, send func(*a2av1.StreamResponse) error) error {
			return s.subscribe(ctx, req, send)
		}}
	case "GetTask":
		req := &a2av1.GetTaskRequest{}
		return &operation{method: method, body: req, unary: func(context.Context) (proto.Message, error) { return s.get(req) }}
	case "CancelTask":
		req := &a2av1.CancelTaskRequest{}
		return &operation{method: method, body: req, unary: func(ctx context.Context) (proto.Message, error) { return s.stop(ctx, req) }}
	}
	return nil
}

// rest serves REST.
func (a *Agent) rest(w http.ResponseWriter, r *http.Request) {
	method, id := a.route(r)
	op := a.operation(method)
	if op == nil {
		restError(w, status.Error(codes.Unimplemented, "unknown path"))
		return
	}
	if err := a.decode(r, op, id); err != nil {
		restError(w, err)
		return
	}
	if op.stream != nil {
		serveStream(w, r, op, func(r *a2av1.StreamResponse) ([]byte, error) { return wire.Marshal(r) }, restError)
		return
	}
	out, err := op.unary(r.Context())
	if err != nil {
		restError(w, err)
		return
	}
	write(w, wire.TypeA2A, out)
}

// route returns the method and the task ID of a path.
func (a *Agent) route(r *http.Request) (method, id string) {
	path := strings.TrimPrefix(r.URL.Path, "/v1") // of 0.3
	path = strings.TrimPrefix(path, "/"+a.cfg.Tenant)
	path = strings.TrimPrefix(path, "/")
	switch path {
	case "message:send":
		return "SendMessage", ""
	case "message:stream":
		return "SendStreamingMessage", ""
	}
	id, ok := strings.CutPrefix(path, "tasks/")
	id, verb, _ := strings.Cut(id, ":")
	switch {
	case !ok:
		return "", ""
	case verb == "cancel":
		return "CancelTask", id
	case verb == "subscribe":
		return "SubscribeToTask", id
	}
	return "GetTask", id
}

func (a *Agent) decode(r *http.Request, op *operation, id string) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if err := wire.Unmarshal(b, op.body); err != nil {
			return err
		}
	}
	switch req := op.body.(type) {
	case *a2av1.GetTaskRequest:
		req.Id = id
		if n, err := strconv.ParseInt(r.URL.Query().Get("historyLength"), 10, 32); err == nil {
			req.HistoryLength = proto.Int32(int32(n))
		}
	case *a2av1.CancelTaskRequest:
		req.Id = id
	case *a2av1.SubscribeToTaskRequest:
		req.Id = id
	}
	a.record(op.method, op.body, headers(r))
	return a.authorize(r.Header.Values("Authorization"))
}

// rpc serves JSON-RPC.
func (a *Agent) rpc(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, fault := wire.ParseRPC(b)
	fail := func(w http.ResponseWriter, err error) {
		b, _ := wire.RPCFailure(req.ID, wire.RPCErrorOf(wire.Status(err)))
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.WriteHeader(wire.RPCStatus(wire.Status(err)))
		_, _ = w.Write(b)
	}
	if a.cfg.Old {
		a.rpcOld(w, r, req)
		return
	}
	op := a.operation(req.Method)
	if fault != nil || op == nil {
		fail(w, status.Error(codes.Unimplemented, "unknown method"))
		return
	}
	if err := wire.Unmarshal(req.Params, op.body); err != nil {
		fail(w, err)
		return
	}
	a.record(op.method, op.body, headers(r))
	if err := a.authorize(r.Header.Values("Authorization")); err != nil {
		fail(w, err)
		return
	}
	wrap := func(m proto.Message) ([]byte, error) {
		b, err := wire.Marshal(m)
		if err != nil {
			return nil, err
		}
		return wire.RPCResult(req.ID, b), nil
	}
	if op.stream != nil {
		serveStream(w, r, op, func(r *a2av1.StreamResponse) ([]byte, error) { return wrap(r) }, fail)
		return
	}
	out, err := op.unary(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	result, _ := wrap(out)
	w.Header().Set("Content-Type", wire.TypeJSON)
	_, _ = w.Write(result)
}

// serveStream writes a stream as server-sent events. An error before the first event is
// written as a plain response.
func serveStream(w http.ResponseWriter, r *http.Request, op *operation, render func(*a2av1.StreamResponse) ([]byte, error), fail func(http.ResponseWriter, error)) {
	var events *wire.EventWriter
	err := op.stream(r.Context(), func(resp *a2av1.StreamResponse) error {
		if events == nil {
			events = wire.NewEventWriter(w, 10*time.Second, func(error) {})
		}
		b, err := render(resp)
		if err != nil {
			return err
		}
		return events.Event(0, "", b)
	})
	switch {
	case events == nil && err != nil:
		fail(w, err)
	case events != nil:
		events.Close()
		if status.Code(err) == codes.Unavailable {
			panic(http.ErrAbortHandler) // close the connection
		}
	}
}

func restError(w http.ResponseWriter, err error) {
	st := wire.Status(err)
	b, _ := wire.RESTError(st, wire.HTTPStatus(st))
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.WriteHeader(wire.HTTPStatus(st))
	_, _ = w.Write(b) //nolint:gosec // JSON of a test
}

func write(w http.ResponseWriter, kind string, m proto.Message) {
	b, err := wire.Marshal(m)
	if err != nil {
		restError(w, err)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(b)
}
