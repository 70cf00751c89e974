package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
)

// serveRPC serves a JSON-RPC request: the methods of A2A 1.0 and, unless protocol.v0_3 is false,
// those of 0.3.
func (s *API) serveRPC(w http.ResponseWriter, r *http.Request, params map[string]string) {
	b, _ := readAll(r.Body) // the body is in memory
	req, fault := wire.ParseRPC(b)
	if fault != nil && req.Notification {
		call.LimitWrite(w)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if fault != nil {
		write(w, wire.TypeJSON, private, s.rpcFailure(r, req, wire.Status(wire.Invalid("", fault.Message)), fault))
		return
	}
	switch {
	case req.Notification:
		s.serveNotification(w, r, req, params)
	case s.methodV03(req.Method) || call.InboundOf(r.Context()).WantsV03() && !call.InboundOf(r.Context()).NoV03():
		s.serveRPCV03(w, r, req, params)
	case s.table.Known(service.A2APrefix + req.Method):
		s.callRPC(w, r, req, params)
	case s.table.Streamed(service.A2APrefix + req.Method):
		s.streamRPC(w, r, req, params)
	default:
		s.failRPC(w, r, req, service.NoMethod(req.Method))
	}
}

// withAnswer maps a streaming method to the method with one response that runs the same
// checks.
var withAnswer = map[string]string{
	"SendStreamingMessage": "SendMessage", "SubscribeToTask": "GetTask",
	"message/stream": "message/send", "tasks/resubscribe": "tasks/get",
}

// serveNotification carries out a request without an id. The caller gets no JSON-RPC
// response; only the HTTP status says whether the request was accepted. A send does not
// wait for its task, and no stream is opened.
func (s *API) serveNotification(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, params map[string]string) {
	code := http.StatusAccepted
	if err := s.notified(r.Context(), req, params); err != nil {
		code = wire.HTTPStatus(wire.Status(err))
	}
	call.LimitWrite(w)
	w.WriteHeader(code)
}

func (s *API) notified(ctx context.Context, req wire.RPCRequest, params map[string]string) error {
	in := *call.InboundOf(ctx)
	in.Notified = true
	ctx = call.WithInbound(ctx, &in)
	name := cmp.Or(withAnswer[req.Method], req.Method)
	if s.methodV03(req.Method) || in.WantsV03() && !in.NoV03() {
		if st := s.refusedV03(&in, req.Method); st != nil {
			return st.Err()
		}
		_, err := s.v03[name](s, asV03(ctx), req.Params, params)
		return err
	}
	_, err := s.table.Invoke(ctx, service.A2APrefix+name, func(v any) error { return readParams(req, v, params) })
	return err
}

// agentPath and rpcPath match paths to which some clients post JSON-RPC instead of /rpc: the path
// of an agent, the root path for the default agent, and /rpc with a trailing slash or with the
// tenant after it, which clients add to the URL of an interface that has a tenant.
var (
	agentPath = regexp.MustCompile(`^(/[^/:%]+)?/?$`)
	rpcPath   = regexp.MustCompile(`^(/[^/]+)?/rpc(?:(/[^/]+)/?|/)$`)
)

// notAgents are first path segments that belong to other handlers.
var notAgents = []string{
	"/tasks", "/extendedAgentCard", "/rpc", "/v1", "/team", "/assets", "/docs", "/openapi.json", "/healthz", "/readyz", "/.well-known",
}

// rpcAt returns the path of an agent to which a request posts JSON-RPC at a path that agentPath or
// rpcPath matches, and not at one of notAgents. It is empty for the default agent.
func rpcAt(r *http.Request) (agent string, ok bool) {
	if r.Method != http.MethodPost {
		return "", false
	}
	if m := agentPath.FindStringSubmatch(r.URL.Path); m != nil && !slices.Contains(notAgents, m[1]) {
		return m[1], true
	}
	m := rpcPath.FindStringSubmatch(r.URL.Path)
	if m == nil || m[1] != "" && m[2] != "" && m[1] != m[2] {
		return "", false
	}
	return cmp.Or(m[1], m[2]), true
}

// urlRPC returns the URL of the request. If rpcAt finds an agent, it sets in.AtAgent, and the path
// of the URL is that of the agent followed by /rpc.
func urlRPC(r *http.Request, in *call.Inbound) *url.URL {
	agent, ok := rpcAt(r)
	if !ok {
		return r.URL
	}
	in.AtAgent = true
	to := *r.URL
	to.Path, to.RawPath = agent+"/rpc", ""
	return &to
}

func (s *API) callRPC(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, params map[string]string) {
	resp, err := s.table.Invoke(r.Context(), service.A2APrefix+req.Method, func(v any) error { return readParams(req, v, params) })
	if err != nil {
		s.failRPC(w, r, req, wire.Status(err))
		return
	}
	b, err := rpcResult(req, resp)
	if err != nil {
		s.failRPC(w, r, req, wire.Status(err))
		return
	}
	write(w, wire.TypeJSON, private, b)
}

func (s *API) streamRPC(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, params map[string]string) {
	before, after := wire.RPCEnvelope(req.ID)
	s.serveEvents(w, r, service.A2APrefix+req.Method, &eventStream{
		receive: func(m any) error { return readParams(req, m, params) }, encode: encodeJSON,
		before: before, after: after,
		failure: func(st *status.Status) ([]byte, error) { return wire.RPCFailure(req.ID, wire.RPCErrorOf(st)) },
		refuse:  func(st *status.Status) { s.failRPC(w, r, req, st) },
	})
}

func readParams(req wire.RPCRequest, v any, params map[string]string) error {
	m, ok := v.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "decoding into %T", v)
	}
	if err := wire.Unmarshal(req.Params, m); err != nil {
		return err
	}
	return setTenant(m, params)
}

func rpcResult(req wire.RPCRequest, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "rendering %T", v)
	}
	result, err := wire.Marshal(m)
	if err != nil {
		return nil, err
	}
	return wire.RPCResult(req.ID, result), nil
}

// failRPC answers with an error.
func (s *API) failRPC(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, st *status.Status) {
	writeError(w, st, wire.RPCStatus(st), wire.TypeJSON, s.rpcFailure(r, req, st, wire.RPCErrorOf(st)))
}

// rpcFailure renders an error, and records it for a request that reaches no method: its HTTP status is mostly 200.
func (s *API) rpcFailure(r *http.Request, req wire.RPCRequest, st *status.Status, e *wire.RPCError) []byte {
	call.InboundOf(r.Context()).Record.SetRefusal(st)
	b, err := wire.RPCFailure(req.ID, e)
	if err != nil {
		s.log.Error("rendering an error", zap.Error(err))
	}
	return b
}
