// Package traceparent passes trace contexts on in the form of the W3C Trace Context: as the header traceparent,
// and as metadata of gRPC with the same name. It neither sends nor reads tracestate and baggage.
package traceparent

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Key is the name of the header and of the metadata.
const Key = "traceparent"

// Of returns the value for calls that are made with ctx. It is empty if ctx has no span.
func Of(ctx context.Context) string { return Format(trace.SpanContextFromContext(ctx)) }

// Format returns the value for a span, empty if sc is not valid. Of the flags it has only whether the trace is
// sampled.
func Format(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + (sc.TraceFlags() & trace.FlagsSampled).String()
}

// Parse returns the span that a value names, a context that is not valid if it names none.
func Parse(value string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{Key: value})
	return trace.SpanContextFromContext(ctx)
}

// Set sets the header for a request that is made with ctx. Without a span it changes nothing.
func Set(ctx context.Context, h http.Header) {
	if value := Of(ctx); value != "" {
		h.Set(Key, value)
	}
}
