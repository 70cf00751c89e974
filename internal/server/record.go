package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// record is what is measured of a request at its end. A nil *record records nothing.
type record struct {
	start    time.Time
	method   string         // the method that was called; "" if the request reached none
	status   *status.Status // of the call, or of the refusal before it; nil if there was none
	received atomic.Int64   // bytes of the body
	sent     atomic.Int64   // bytes of the answer, without headers
}

// records reports whether requests are measured.
func (s *Server) records() bool { return s.config.Metrics != nil }

// newRecord returns the record of a request, nil if requests are not measured.
func (s *Server) newRecord() *record {
	if !s.records() {
		return nil
	}
	return &record{start: time.Now()}
}

// called notes how a call has ended.
func (r *record) called(method string, st *status.Status) {
	if r != nil {
		r.method, r.status = method, st
	}
}

// refused notes the error of a request that reaches no call, unless one has been noted.
func (r *record) refused(st *status.Status) {
	if r != nil && r.status == nil {
		r.status = st
	}
}

// finish measures a request that has ended.
func (s *Server) finish(ctx context.Context, in *inbound) {
	r := in.record
	if r == nil {
		return
	}
	s.config.Metrics.Ended(ctx, r.method, in.binding, r.status.Code().String(), time.Since(r.start))
	if limit := wire.InfoOf(r.status).GetMetadata()[agent.DetailLimit]; limit != "" && r.status.Code() == codes.ResourceExhausted {
		s.config.Metrics.LimitHit(ctx, limit)
	}
}

// answer is a ResponseWriter that counts what is sent.
type answer struct {
	http.ResponseWriter
	record *record
	code   int // the HTTP status; 0 until it is sent
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	n, err := a.ResponseWriter.Write(b)
	a.record.sent.Add(int64(n))
	return n, err
}

// Unwrap returns the ResponseWriter below, for an http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// recordHTTP returns a ResponseWriter that counts what is sent, and a function that measures the request when
// it has been answered.
func (s *Server) recordHTTP(w http.ResponseWriter, r *http.Request, in *inbound) (http.ResponseWriter, func()) {
	if in.record == nil {
		return w, func() {}
	}
	a := &answer{ResponseWriter: w, record: in.record}
	return a, func() {
		in.record.refused(status.New(codeOf(a.code), ""))
		s.finish(r.Context(), in)
	}
}

// codeOf returns the gRPC code for the HTTP status of a request that reached no call.
func codeOf(httpStatus int) codes.Code {
	switch {
	case httpStatus < http.StatusBadRequest:
		return codes.OK
	case httpStatus == http.StatusUnauthorized:
		return codes.Unauthenticated
	case httpStatus == http.StatusForbidden:
		return codes.PermissionDenied
	case httpStatus == http.StatusNotFound, httpStatus == http.StatusMethodNotAllowed:
		return codes.Unimplemented
	case httpStatus == http.StatusTooManyRequests, httpStatus == http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted
	case httpStatus == http.StatusServiceUnavailable:
		return codes.Unavailable
	case httpStatus < http.StatusInternalServerError:
		return codes.InvalidArgument
	}
	return codes.Internal
}

// grpcRecorder measures calls over gRPC that tap has let in.
type grpcRecorder struct{ s *Server }

// TagRPC implements stats.Handler.
func (grpcRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (g grpcRecorder) HandleRPC(ctx context.Context, event stats.RPCStats) {
	in := inboundOf(ctx)
	if in.record == nil {
		return
	}
	switch e := event.(type) {
	case *stats.InPayload:
		in.record.received.Add(int64(e.Length))
	case *stats.OutPayload:
		in.record.sent.Add(int64(e.Length))
	case *stats.End:
		in.record.refused(status.Convert(e.Error))
		g.s.finish(ctx, in)
	}
}

// TagConn implements stats.Handler.
func (grpcRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (grpcRecorder) HandleConn(context.Context, stats.ConnStats) {}

// refuseGRPC measures a call that tap refuses, and returns the error for it.
func (s *Server) refuseGRPC(ctx context.Context, in *inbound, err error) error {
	st := wire.Status(err)
	in.record.refused(st)
	s.finish(ctx, in)
	return st.Err()
}

// signInRefused measures a request whose credentials were refused.
func (s *Server) signInRefused(ctx context.Context, err error) {
	if s.config.Metrics != nil {
		s.config.Metrics.SignInRefused(ctx, whyRefused(err))
	}
}
