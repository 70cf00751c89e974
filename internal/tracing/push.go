package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// Pushes makes the spans of push notifications. A nil *Pushes makes none.
type Pushes struct {
	*Tracer
	first func(ctx context.Context, run runs.Key) (*teamv1.Event, error)
}

// NewPushes returns nil if t is nil. first reads the first event of a run.
func NewPushes(t *Tracer, first func(ctx context.Context, run runs.Key) (*teamv1.Event, error)) *Pushes {
	if t == nil {
		return nil
	}
	return &Pushes{t, first}
}

// Within returns a context with the span of the run of a task; ctx itself if that cannot be read.
func (p *Pushes) Within(ctx context.Context, task runs.Key) context.Context {
	if p == nil {
		return ctx
	}
	root, _ := agent.SplitTask(task.ID)
	ev, err := p.first(ctx, runs.Key{Owner: task.Owner, ID: root})
	if err != nil || ev.GetAccepted() == nil { // the delivery itself reports errors of the store
		return ctx
	}
	self, _ := p.runSpan(root, ev.GetAccepted())
	return trace.ContextWithSpanContext(ctx, self)
}

// Attempt begins the span of an attempt to deliver a notification, below that of the run in ctx. receiver is
// the origin of the webhook, and failed the number of attempts that have failed before. The caller must call
// end with why the attempt failed, "" on success.
func (p *Pushes) Attempt(ctx context.Context, task, receiver, notification string, failed int) (_ context.Context, end func(why string)) {
	if p == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, func(string) {}
	}
	attrs := []attribute.KeyValue{taskKey.String(task), receiverKey.String(receiver), noticeKey.String(notification), httpMethodKey.String("POST")}
	if failed > 0 {
		attrs = append(attrs, httpResendKey.Int(failed))
	}
	ctx, span := p.tracer.Start(ctx, namePush, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, func(why string) {
		if why != "" {
			span.SetAttributes(errorTypeKey.String(why))
			span.SetStatus(codes.Error, why)
		}
		span.End()
	}
}
