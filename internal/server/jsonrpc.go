package server

import (
	"context"
	"net/http"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// serveRPC answers one JSON-RPC request: the methods of the A2A service, under
// their own names.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, params map[string]string) {
	b, _ := readAll(r.Body) // it is in memory
	req, fault := wire.ParseRPC(b)
	if fault != nil {
		s.writeFault(w, req, fault)
		return
	}
	switch method, ok := s.rpc[req.Method]; {
	case s.methodV03(req.Method) || inboundOf(r.Context()).wantsV03() && !s.config.NoV03:
		s.serveRPCV03(w, r, req, params)
	case ok:
		s.callRPC(w, r, req, method, params)
	case req.Method == "SendStreamingMessage":
		in := &a2av1.SendMessageRequest{}
		s.streamRPC(w, r, req, in, params, func(ctx context.Context, begin func(), send eventFunc) error {
			return s.sendStreaming(ctx, in, begin, s.updates(send))
		})
	case req.Method == "SubscribeToTask":
		in := &a2av1.SubscribeToTaskRequest{}
		s.streamRPC(w, r, req, in, params, func(ctx context.Context, begin func(), send eventFunc) error {
			return s.subscribe(ctx, in, begin, s.updates(send))
		})
	default:
		s.failRPC(w, req, wire.NotServed("there is no method %.64q", req.Method))
	}
}

// rpcMethods are the methods that have one answer, as gRPC knows them.
func rpcMethods() map[string]grpc.MethodHandler {
	methods := map[string]grpc.MethodHandler{}
	for _, m := range a2av1.A2AService_ServiceDesc.Methods {
		methods[m.MethodName] = m.Handler
	}
	return methods
}

func (s *Server) callRPC(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, method grpc.MethodHandler, params map[string]string) {
	resp, err := method(s, r.Context(), func(v any) error { return readParams(req, v, params) }, nil)
	if err != nil {
		s.failRPC(w, req, wire.Status(err))
		return
	}
	b, err := rpcResult(req, resp)
	if err != nil {
		s.failRPC(w, req, wire.Status(err))
		return
	}
	s.writeRPC(w, b)
}

func (s *Server) streamRPC(w http.ResponseWriter, r *http.Request, req wire.RPCRequest, in proto.Message, params map[string]string,
	run streamFunc,
) {
	if err := readParams(req, in, params); err != nil {
		s.failRPC(w, req, wire.Status(err))
		return
	}
	before, after := wire.RPCEnvelope(req.ID)
	s.serveEvents(w, r, framing{
		before: before, after: after,
		failure: func(st *status.Status) ([]byte, error) { return wire.RPCFailure(req.ID, wire.RPCErrorOf(st)) },
		refuse:  func(st *status.Status) { s.failRPC(w, req, st) },
	}, run)
}

func readParams(req wire.RPCRequest, v any, params map[string]string) error {
	m, ok := v.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "decoding into %T", v)
	}
	if err := wire.Unmarshal(req.Params, m); err != nil {
		return err
	}
	setTenant(m, params)
	return nil
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

func (s *Server) failRPC(w http.ResponseWriter, req wire.RPCRequest, st *status.Status) {
	b, err := wire.RPCFailure(req.ID, wire.RPCErrorOf(st))
	if err != nil {
		s.log.Error("rendering an error", zap.Error(err))
	}
	writeError(w, st, wire.RPCStatus(st), wire.TypeJSON, b)
}

// writeFault answers what is no proper request.
func (s *Server) writeFault(w http.ResponseWriter, req wire.RPCRequest, fault *wire.RPCError) {
	b, err := wire.RPCFailure(req.ID, fault)
	if err != nil {
		s.log.Error("rendering an error", zap.Error(err))
	}
	s.writeRPC(w, b)
}

// rpcRefusal is what comes before a request is read, so that its id is not known.
func rpcRefusal(st *status.Status, _ int) ([]byte, error) {
	e := wire.RPCErrorOf(st)
	if st.Code() == codes.Unimplemented {
		e.Code = wire.RPCInvalidRequest
	}
	return wire.RPCFailure([]byte("null"), e)
}

func (s *Server) writeRPC(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.Header().Set("Cache-Control", "private, no-store")
	soon(w)
	_, _ = w.Write(b) // the caller may have left
}
