// Package tracing makes the spans of a server: of the requests that it answers, of the runs that it drives, and of
// the push notifications that it delivers. The spans of runs are made from the events that are appended to their
// journals, when what they stand for has ended; names.go has their names, and docs/tracing.md describes them.
package tracing

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/secret"
)

// Config says where the traces of a server go. The zero value traces nothing.
type Config struct {
	// Provider makes the spans; nil makes none. It must use IDs as its generator of ids:
	// sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(IDs{}), …).
	Provider trace.TracerProvider
	// Secrets returns what is replaced in the texts of spans; nil means nothing. It is called for each text, and must be safe
	// for concurrent use.
	Secrets func() []secret.Secret
}

// Tracer makes spans. A nil *Tracer makes none. It is safe for concurrent use.
type Tracer struct {
	tracer  trace.Tracer
	trusted map[string]bool
	content *content // nil without content
	clock   func() time.Time
}

// scopeName is the name of the instrumentation scope.
const scopeName = "github.com/agentteams/team-server"

// New returns a tracer with some settings, or nil if c has no provider. clock is the clock of the events in journals. The error says
// that the provider does not use IDs.
func New(c Config, s *teamv1.TracingSettings, version string, clock func() time.Time) (*Tracer, error) {
	if c.Provider == nil {
		return nil, nil //nolint:nilnil // no traces
	}
	t := &Tracer{tracer: c.Provider.Tracer(scopeName, trace.WithInstrumentationVersion(version)), trusted: map[string]bool{}, clock: clock}
	for _, who := range s.GetTrustCallers() {
		t.trusted[who] = true
	}
	if s.GetContent() {
		t.content = &content{secrets: c.Secrets}
		if c.Secrets == nil {
			t.content.secrets = func() []secret.Secret { return nil }
		}
	}
	want := ids{traceID("probe"), spanID("probe", "", 0)}
	_, span := t.tracer.Start(withIDs(context.Background(), want), "probe", trace.WithNewRoot()) // never ended, so never exported
	if sc := span.SpanContext(); sc.TraceID() != want.trace || sc.SpanID() != want.span {
		return nil, errors.New("the tracer provider does not use server.TraceIDs; make it with sdktrace.WithIDGenerator(server.TraceIDs{})")
	}
	return t, nil
}

// trusts reports whether a caller may say which trace its requests continue.
func (t *Tracer) trusts(c *identity.Caller) bool {
	return c != nil && (t.trusted["*"] || t.trusted[c.Account] || t.trusted[c.Account+"/"+c.Principal])
}

// fields returns the fields of lines of a log that name a span.
func fields(sc trace.SpanContext) []zap.Field {
	if !sc.IsValid() {
		return nil
	}
	return []zap.Field{zap.String("trace_id", sc.TraceID().String()), zap.String("span_id", sc.SpanID().String())}
}

// name returns the name of a span: what it is, and of what.
func name(what, of string) string { return strings.TrimSpace(what + " " + of) }
