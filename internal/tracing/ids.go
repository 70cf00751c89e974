package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

// IDs is the generator of ids that the provider of Config must use. The ids of the spans of a run are computed
// from its task, so that each process that drives the run, and each call that it makes, names the same spans.
// All other ids are random. IDs implements the interface IDGenerator of the SDK.
type IDs struct{}

// ids are those of a span that is about to be started.
type ids struct {
	trace trace.TraceID // of a span without a parent
	span  trace.SpanID
}

type idsKey struct{}

// withIDs returns a context in which the next span gets these ids.
func withIDs(ctx context.Context, i ids) context.Context { return context.WithValue(ctx, idsKey{}, i) }

// NewIDs returns the ids of a span without a parent.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if i, ok := ctx.Value(idsKey{}).(ids); ok && i.trace.IsValid() {
		return i.trace, i.span
	}
	var id trace.TraceID
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64()) //nolint:gosec // an id, not a secret
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // an id, not a secret
	}
	return id, randomSpan()
}

// NewSpanID returns the id of a span with a parent.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if i, ok := ctx.Value(idsKey{}).(ids); ok {
		return i.span
	}
	return randomSpan()
}

func randomSpan() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // an id, not a secret
	}
	return id
}

// spanID returns the id of the n-th span of a kind in a run.
func spanID(root, kind string, n int64) (id trace.SpanID) {
	sum := digest(root, kind, n)
	copy(id[:], sum[:])
	return id
}

// traceID returns the id of the trace of a run that no request has recorded.
func traceID(root string) (id trace.TraceID) {
	sum := digest(root, "trace", 0)
	copy(id[:], sum[:])
	return id
}

func digest(root, kind string, n int64) [sha256.Size]byte {
	return sha256.Sum256([]byte(root + "\x00" + kind + "\x00" + strconv.FormatInt(n, 10)))
}
