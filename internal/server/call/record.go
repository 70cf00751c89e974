package call

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// Record is what is logged and measured of a request at its end. A nil *record records nothing. It is safe for
// concurrent use: a stream whose reader has stalled ends after its call over gRPC.
type Record struct {
	start    time.Time
	received atomic.Int64 // bytes of the body
	sent     atomic.Int64 // bytes of the answer, without headers

	mu      sync.Mutex
	outcome // guarded by mu
}

// outcome is what a request has called, and how that has ended.
type outcome struct {
	method string         // the method that was called; "" if the request reached none
	status *status.Status // of the call, or of the refusal before it; nil if there was none
	err    error          // of the call, with what its caller must not see
	agent  string         // the agent that the request names
	task   string         // the task that the request names, or that it has begun
	span   *tracing.Request
}

// ObservesRequests reports whether requests are logged, measured or traced.
func (s *Chain) ObservesRequests() bool {
	return s.config.Metrics != nil || s.config.Traces != nil || s.log.Core().Enabled(zap.ErrorLevel)
}

// newRecord returns the record of a request, nil if requests are neither logged, measured nor traced.
func (s *Chain) newRecord() *Record {
	if !s.ObservesRequests() {
		return nil
	}
	return &Record{start: time.Now()}
}

// setCall sets the method that is called, and the span of the call.
func (r *Record) setCall(method string, span *tracing.Request) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.method, r.span = method, span
}

// setResult sets how a call has ended.
func (r *Record) setResult(err error, st *status.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.status = err, st
}

// setNames sets which agent and task a request, a response or an update of a stream names.
func (r *Record) setNames(m any) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m := m.(type) {
	case interface{ GetTenant() string }:
		r.agent = cmp.Or(r.agent, m.GetTenant())
	case interface{ GetAgentId() string }:
		r.agent = cmp.Or(r.agent, m.GetAgentId())
	}
	r.task = cmp.Or(r.task, taskOf(m))
}

// soFar returns what has been set until now.
func (r *Record) soFar() outcome {
	if r == nil {
		return outcome{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome
}

// taskOf returns the id of the task that a request, a response or an update names, or "".
func taskOf(m any) string {
	switch m := m.(type) {
	case *a2av1.Task:
		return m.GetId()
	case *a2av1.SendMessageRequest:
		return m.GetMessage().GetTaskId()
	case *a2av1.SendMessageResponse:
		return m.GetTask().GetId()
	case *a2av1.GetTaskRequest:
		return m.GetId()
	case *a2av1.CancelTaskRequest:
		return m.GetId()
	case *a2av1.SubscribeToTaskRequest:
		return m.GetId()
	case feed.Update:
		return cmp.Or(m.Response.GetTask().GetId(), m.Response.GetStatusUpdate().GetTaskId(), m.Response.GetArtifactUpdate().GetTaskId())
	case interface{ GetTaskId() string }:
		return m.GetTaskId()
	}
	return ""
}

// AddReceived adds bytes of the body.
func (r *Record) AddReceived(n int) {
	if r != nil {
		r.received.Add(int64(n))
	}
}

// AddSent adds bytes of the answer.
func (r *Record) AddSent(n int) {
	if r != nil {
		r.sent.Add(int64(n))
	}
}

// SetRefusal sets the error of a request that reaches no call, unless one has been set.
func (r *Record) SetRefusal(st *status.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == nil {
		r.status = st
	}
}

// Finish logs and measures a request that has ended.
func (s *Chain) Finish(ctx context.Context, in *Inbound) {
	r := in.Record
	if r == nil {
		return
	}
	o := r.soFar()
	s.logRequest(in, o)
	s.config.Metrics.Ended(ctx, o.method, in.Binding, o.status.Code().String(), time.Since(r.start))
	if limit := wire.InfoOf(o.status).GetMetadata()[agent.DetailLimit]; limit != "" && o.status.Code() == codes.ResourceExhausted {
		s.config.Metrics.LimitHit(ctx, limit)
	}
}

// logRequest logs a request that has ended. The line has no content of the request. What reaches no method and
// is answered, such as pages and health checks, is logged at the level debug.
func (s *Chain) logRequest(in *Inbound, o outcome) {
	code, log, level := o.status.Code(), s.requestLog(), zap.InfoLevel
	info := wire.InfoOf(o.status)
	switch {
	case isFailure(code):
		log, level = s.log, zap.ErrorLevel
	case info.GetReason() == agent.ReasonStoreUnavailable: // of many requests alike
		level = zap.ErrorLevel
	case code == codes.OK && o.method == "":
		level = zap.DebugLevel
	}
	if !log.Core().Enabled(level) {
		return
	}
	entry := log.Check(level, o.method+" "+code.String()) // the sampler counts by this text
	if entry == nil {
		return
	}
	entry.Message = "request"
	fields := append(make([]zap.Field, 0, 16), zap.String("request_id", in.ID), zap.String("binding", in.Binding), zap.Stringer("code", code),
		zap.Duration("duration", time.Since(in.Record.start)), zap.Int64("bytes_in", in.Record.received.Load()), zap.Int64("bytes_out", in.Record.sent.Load()))
	text := func(key, value string) {
		if value != "" {
			fields = append(fields, zap.String(key, value))
		}
	}
	text("method", o.method)
	if in.Caller != nil {
		text("account", in.Caller.Account)
		text("principal", in.Caller.Principal)
	}
	if namesAreKnown(code) {
		text("agent", o.agent)
		text("task", o.task)
	}
	fields = append(fields, o.span.Fields()...)
	text("reason", info.GetReason())
	text("limit", info.GetMetadata()[agent.DetailLimit])
	if level == zap.ErrorLevel { // other errors may quote the request
		fields = append(fields, zap.Error(o.err))
	}
	entry.Write(fields...)
}

// isFailure reports whether the server is to blame for an error with a code.
func isFailure(code codes.Code) bool {
	return code == codes.Internal || code == codes.DataLoss || code == codes.Unknown
}

// namesAreKnown reports whether a call with a code names an agent and a task that exist. Otherwise the names may be any
// text.
func namesAreKnown(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.Unauthenticated, codes.PermissionDenied:
		return false
	default:
		return true
	}
}

// sampled is the logger of requests that the settings of a snapshot ask for.
type sampled struct {
	*settings.Snapshot
	requests *zap.Logger
}

// requestLog returns the logger of requests that the settings in effect ask for.
func (s *Chain) requestLog() *zap.Logger {
	now, known := s.config.Settings.Load(), s.sampled.Load()
	if known == nil || known.Snapshot != now {
		known = &sampled{now, sample(s.log, now.GetLog().GetSampling())}
		s.sampled.Store(known)
	}
	return known.requests
}

// sample returns a logger that leaves out lines about requests that have the same method and code within a second. Failures
// of the server are always logged.
func sample(log *zap.Logger, p *teamv1.LogSampling) *zap.Logger {
	if !p.GetEnabled() {
		return log
	}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, int(p.GetFirst()), int(p.GetThereafter()))
	}))
}
