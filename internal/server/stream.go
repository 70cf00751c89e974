package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/wire"
)

// framing says how a binding encodes results and errors as server-sent events.
type framing struct {
	before, after []byte // put around the JSON of a result
	failure       func(*status.Status) ([]byte, error)
	kind          string // type of the event that carries an error
	refuse        func(*status.Status)
}

// eventFunc sends JSON as an event with a numeric id; 0 means no id.
type eventFunc func(id int64, data []byte) error

// cursorFunc sends JSON as an event with a textual id; "" means no id.
type cursorFunc func(id string, data []byte) error

// framesFunc runs a stream. It calls begin once and then send for each message; it returns
// an error without calling begin to reject the call.
type framesFunc[S any] func(ctx context.Context, begin func(), send S) error

// streamFunc runs a stream of events with numeric ids.
type streamFunc = framesFunc[eventFunc]

// serveEvents writes a stream as server-sent events. If run fails without calling begin, the
// error is answered as for other calls.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, f framing, run streamFunc) {
	serveFrames(s, w, r, f, run, func(to *wire.EventWriter) eventFunc {
		return func(id int64, data []byte) error { return eventError(to.Event(id, "", f.before, data, f.after)) }
	})
}

// serveCursors is like serveEvents, for events with textual ids.
func (s *Server) serveCursors(w http.ResponseWriter, r *http.Request, f framing, run framesFunc[cursorFunc]) {
	serveFrames(s, w, r, f, run, func(to *wire.EventWriter) cursorFunc {
		return func(id string, data []byte) error { return eventError(to.EventAt(id, "", f.before, data, f.after)) }
	})
}

func serveFrames[ID any, S ~func(ID, []byte) error](s *Server, w http.ResponseWriter, r *http.Request, f framing, run framesFunc[S],
	sending func(*wire.EventWriter) S,
) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	var events *wire.EventWriter
	var send S
	begin := func() {
		events = wire.NewEventWriter(w, s.config.StallTime, cancel)
		send = sending(events)
	}
	err := run(ctx, begin, func(id ID, data []byte) error { return send(id, data) })
	if events == nil {
		f.refuse(wire.Status(err))
		return
	}
	defer events.Close()
	if err != nil {
		s.failEvent(events, f, wire.Status(err))
	}
}

// eventError converts the error of writing an event: SLOW_READER if the reader stalled,
// otherwise context.Canceled because the reader has disconnected.
func eventError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return slowReader().Because(err)
	}
	return fmt.Errorf("%w: %w", context.Canceled, err)
}

// failEvent sends the error that ends a stream as its last event.
func (s *Server) failEvent(events *wire.EventWriter, f framing, st *status.Status) {
	data, err := f.failure(st)
	if err == nil {
		err = events.Event(0, f.kind, data)
	}
	if err != nil {
		s.log.Debug("ending a stream", zap.Error(err))
	}
}

// restFraming returns the framing of REST: messages as they are, and an error as an event
// of type "error".
func (s *Server) restFraming(w http.ResponseWriter, r *http.Request) framing {
	return framing{
		failure: func(st *status.Status) ([]byte, error) { return wire.RESTError(st, wire.HTTPStatus(st)) },
		kind:    "error",
		refuse:  func(st *status.Status) { s.fail(w, r, st) },
	}
}

func (s *Server) serveSendStreaming(w http.ResponseWriter, r *http.Request, params map[string]string) {
	req := &a2av1.SendMessageRequest{}
	if !s.decode(w, r, req) {
		return
	}
	if err := setTenant(req, params); err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	s.serveEvents(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send eventFunc) error {
		return s.sendStreaming(ctx, req, begin, updates(ctx, send))
	})
}

func (s *Server) serveSubscribe(w http.ResponseWriter, r *http.Request, params map[string]string) {
	req := &a2av1.SubscribeToTaskRequest{}
	if !s.decode(w, r, req) {
		return
	}
	if err := setTenant(req, params); err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	req.Id = params["id"]
	s.serveEvents(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send eventFunc) error {
		return s.subscribe(ctx, req, begin, updates(ctx, send))
	})
}

func (s *Server) serveProcessStream(w http.ResponseWriter, r *http.Request, params map[string]string) {
	req := &teamv1.ProcessStreamRequest{}
	if !s.decode(w, r, req) {
		return
	}
	if req.GetRequest() == nil {
		req.Request = &teamv1.ProcessRequest{}
	}
	req.Request.AgentId = params["agent_id"]
	s.serveEvents(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send eventFunc) error {
		return s.processStream(ctx, req, begin, func(p *teamv1.ProcessStreamResponse) error {
			data, err := wire.Marshal(p)
			if err != nil {
				return err
			}
			return send(p.GetEvent().GetSeq(), data)
		})
	})
}

// updates returns a function that sends updates to a caller as JSON, see encodeUpdate.
func updates(ctx context.Context, send eventFunc) func(feed.Update) error {
	return func(u feed.Update) error {
		data, err := encodeUpdate(ctx, u, feed.FormJSON, wire.Marshal)
		if err != nil {
			return err
		}
		return send(u.Seq, data)
	}
}

// errReduced says that an update has parts to replace by URLs, which differ between its readers.
var errReduced = errors.New("an update has parts that are replaced")

// encodeUpdate encodes an update in a form, and waits for the memory to send it. Its readers share the result, unless
// Reduce replaces parts by URLs of the server: their readers may see it at different ones. An update that is still too
// large for any binding is an error.
func encodeUpdate(ctx context.Context, u feed.Update, form feed.Form, encode func(proto.Message) ([]byte, error)) ([]byte, error) {
	in := inboundOf(ctx)
	data, err := u.Encoded(form, func(m proto.Message) ([]byte, error) {
		if Reduce(m, "") != m {
			return nil, errReduced
		}
		if _, err := wire.Fits(m); err != nil {
			return nil, err
		}
		return encode(m)
	})
	switch {
	case errors.Is(err, errReduced):
		return encodeReduced(ctx, in, u, encode)
	case err != nil:
		return nil, err
	}
	return data, in.held.sharing(ctx, u, len(data))
}

// encodeReduced encodes an update of which Reduce replaces parts.
func encodeReduced(ctx context.Context, in *inbound, u feed.Update, encode func(proto.Message) ([]byte, error)) ([]byte, error) {
	if err := in.held.updating(ctx, proto.Size(u.Response)); err != nil {
		return nil, err
	}
	m := Reduce(u.Response, in.baseURL())
	if _, err := wire.Fits(m); err != nil {
		return nil, err
	}
	return encode(m)
}

// decode decodes the body into req, unless it is empty. If that fails, decode answers with
// the error and returns false.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, req proto.Message) bool {
	b, err := readAll(r.Body) // the body is in memory
	if err == nil && len(b) > 0 {
		err = wire.Unmarshal(b, req)
	}
	if err != nil {
		s.fail(w, r, wire.Status(err))
	}
	return err == nil
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
