package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/traceparent"
)

// Request is the span of a request that this server answers. A nil *Request is that of a server without traces.
type Request struct{ span trace.Span }

// Request begins the span of a request for a method. caller is nil if it is not known; header has the values of the
// header traceparent.
func (t *Tracer) Request(ctx context.Context, method, binding string, caller *identity.Caller, header []string) (context.Context, *Request) {
	if t == nil {
		return ctx, nil
	}
	attrs := []attribute.KeyValue{rpcMethodKey.String(method), bindingKey.String(binding)}
	if caller != nil {
		attrs = append(attrs, accountKey.String(caller.Account))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...)}
	switch theirs := callerSpan(header); {
	case theirs.IsValid() && t.trusts(caller):
		ctx = trace.ContextWithRemoteSpanContext(ctx, theirs)
	case theirs.IsValid():
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: theirs}))
	}
	ctx, span := t.tracer.Start(ctx, method, options...)
	return ctx, &Request{span}
}

// callerSpan returns the span that a header names.
func callerSpan(header []string) trace.SpanContext {
	if len(header) != 1 {
		return trace.SpanContext{}
	}
	return traceparent.Parse(header[0])
}

// Record returns the trace contexts that are recorded with a task that the request begins; see
// team.v1.Accepted.trace. A header that is not a valid trace context is not recorded.
func (r *Request) Record(header []string) map[string]string {
	record := map[string]string{}
	if value := traceparent.Format(callerSpan(header)); value != "" {
		record[traceparent.Key] = value
	}
	if r != nil {
		record[requestOf] = traceparent.Format(r.span.SpanContext())
	}
	if len(record) == 0 {
		return nil
	}
	return record
}

// requestOf is the key in Accepted.trace for the span of the request.
const requestOf = "request"

// Fields returns the fields of lines of a log that name the span.
func (r *Request) Fields() []zap.Field {
	if r == nil {
		return nil
	}
	return fields(r.span.SpanContext())
}

// About notes the agent and the task that the request names or has begun; each may be empty.
func (r *Request) About(agentID, task string) {
	if r == nil {
		return
	}
	if agentID != "" {
		r.span.SetAttributes(agentNameKey.String(agentID))
	}
	if task != "" {
		r.span.SetAttributes(taskKey.String(task))
	}
}

// End ends the span. code is the name of a gRPC code; reason is that of the error, empty without one. failed says
// that the server is to blame for the error.
func (r *Request) End(code, reason string, failed bool) {
	if r == nil {
		return
	}
	r.span.SetAttributes(rpcStatusKey.String(code))
	if reason != "" {
		r.span.SetAttributes(errorTypeKey.String(reason))
	}
	if failed {
		r.span.SetStatus(codes.Error, reason)
	}
	r.span.End()
}
