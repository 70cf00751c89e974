package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// eventStream is a streaming call over HTTP as its service sees it. It sends server-sent events, in the form that a binding
// encodes. It implements grpc.ServerStream.
type eventStream struct {
	// receive decodes the request.
	receive func(request any) error
	// encode encodes a message of the stream, and waits for the memory to send it.
	encode        func(ctx context.Context, message any) ([]byte, error)
	before, after []byte // put around the JSON of a message
	// failure encodes an error that ends the stream, which is sent as an event of this kind.
	failure func(*status.Status) ([]byte, error)
	kind    string
	// refuse answers a call that fails before its stream begins.
	refuse func(*status.Status)

	ctx    context.Context //nolint:containedctx // that of the call, as in every grpc.ServerStream
	begin  func() *wire.EventWriter
	events *wire.EventWriter // nil until the stream begins
}

// Context implements grpc.ServerStream.
func (e *eventStream) Context() context.Context { return e.ctx }

// SetHeader implements grpc.ServerStream. Headers are those of every answer over HTTP.
func (*eventStream) SetHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (*eventStream) SetTrailer(metadata.MD) {}

// SendHeader begins the stream.
func (e *eventStream) SendHeader(metadata.MD) error {
	e.events = e.begin()
	return nil
}

// RecvMsg decodes the request.
func (e *eventStream) RecvMsg(request any) error { return e.receive(request) }

// SendMsg sends a message as an event. The error is SLOW_READER if the reader stalled, context.Canceled if it has
// disconnected.
func (e *eventStream) SendMsg(message any) error {
	data, err := e.encode(e.ctx, message)
	if err != nil {
		return err
	}
	if w, ok := message.(*teamv1.WatchTeamResponse); ok {
		err = e.events.EventAt(w.GetCursor(), "", e.before, data, e.after)
	} else {
		err = e.events.Event(call.SeqOf(message), "", e.before, data, e.after)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return call.SlowReader().Because(err)
	}
	return fmt.Errorf("%w: %w", context.Canceled, err)
}

// serveEvents serves a streaming method. An error before the stream begins is answered as for other calls; a later one is
// the last event.
func (s *API) serveEvents(w http.ResponseWriter, r *http.Request, name string, to *eventStream) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	to.ctx, to.begin = ctx, func() *wire.EventWriter { return wire.NewEventWriter(w, s.config.StallTime, cancel) }
	err := s.table.Stream(name, to)
	if to.events == nil {
		to.refuse(wire.Status(err))
		return
	}
	defer to.events.Close()
	if err == nil {
		return
	}
	data, err := to.failure(wire.Status(err))
	if err == nil {
		err = to.events.Event(0, to.kind, data)
	}
	if err != nil {
		s.log.Debug("ending a stream", zap.Error(err))
	}
}

// restStream returns the handler of a streaming method over REST, whose messages are events as they are. The request is in
// the body; set adds what is in the path and the query.
func restStream[Req proto.Message](s *API, name string, set func(req Req, params map[string]string, query url.Values) error) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		s.serveEvents(w, r, name, &eventStream{
			receive: func(request any) error {
				req, ok := request.(Req)
				if !ok {
					return fmt.Errorf("decoding into %T", request)
				}
				if err := decode(r, req, params); err != nil {
					return err
				}
				return set(req, params, r.URL.Query())
			},
			encode:  encodeJSON,
			failure: func(st *status.Status) ([]byte, error) { return wire.RESTError(st, wire.HTTPStatus(st)) },
			kind:    "error",
			refuse:  func(st *status.Status) { s.fail(w, r, st) },
		})
	}
}

// encodeJSON encodes a message of a stream as JSON.
func encodeJSON(ctx context.Context, message any) ([]byte, error) {
	switch m := message.(type) {
	case feed.Update:
		return call.EncodeUpdate(ctx, m, feed.FormJSON, wire.Marshal)
	case *teamv1.WatchTaskResponse:
		return wire.Marshal(call.Reduced(ctx, m))
	case proto.Message:
		return wire.Marshal(m)
	}
	return nil, fmt.Errorf("rendering %T", message)
}

// decode decodes the body, unless it is empty, and the tenant of the path into a request.
func decode(r *http.Request, req proto.Message, params map[string]string) error {
	b, err := readAll(r.Body) // the body is in memory
	if err == nil && len(b) > 0 {
		err = wire.Unmarshal(b, req)
	}
	if err != nil {
		return err
	}
	return setTenant(req, params)
}

// setTenant sets the tenant of a request to that of its path. The error is INVALID_REQUEST
// if the body names another one.
func setTenant(req proto.Message, params map[string]string) error {
	m := req.ProtoReflect()
	fd := m.Descriptor().Fields().ByName("tenant")
	tenant, ok := params["tenant"]
	if !ok || fd == nil {
		return nil
	}
	if in := m.Get(fd).String(); in != "" && in != tenant {
		return otherTenant(in, "body", tenant, "path")
	}
	m.Set(fd, protoreflect.ValueOfString(tenant))
	return nil
}

// oneTenant adds the tenant of a query to the parameters of a path without one, so that all
// calls find it there. The error is INVALID_REQUEST if the query names two tenants, or
// another one than the path.
func oneTenant(query url.Values, params map[string]string) error {
	before := "path"
	for _, tenant := range query["tenant"] {
		switch in, ok := params["tenant"]; {
		case tenant == "" || tenant == in:
		case ok:
			return otherTenant(tenant, "query", in, before)
		default:
			params["tenant"], before = tenant, "query"
		}
	}
	return nil
}

func otherTenant(tenant, part, other, before string) error {
	return wire.Invalid("tenant", fmt.Sprintf("is %.64q in the %s and %.64q in the %s; name one, preferably in the path", tenant, part, other, before))
}
