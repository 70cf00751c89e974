package agent

import (
	"context"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Spans are the spans of a run in a trace of OpenTelemetry. They are made from the events of its journal, so
// agents and teams only say for which step they make a call. They are safe for concurrent use.
type Spans interface {
	// In returns ctx with the span of the open attempt of the step in scope, whose start is on record; for the
	// empty scope, with that of the run.
	In(ctx context.Context, scope string, given Given) context.Context
	// Fields returns the fields that name the trace and the span of the run in lines of a log.
	Fields() []zap.Field
}

// Given is what an attempt of a step is given, depending on what it calls: a model, an agent or a tool.
type Given struct {
	// Prompt is the request to a model.
	Prompt *ModelRequest
	// Message is what an agent is given.
	Message *a2av1.Message
	// Arguments are those of a tool, as JSON.
	Arguments string
}

// InSpan returns ctx with the span of the open attempt of the step in scope, see Spans. It returns ctx itself if
// the run has no spans.
func (r *Run) InSpan(ctx context.Context, scope string, given Given) context.Context {
	if r.Spans == nil {
		return ctx
	}
	return r.Spans.In(ctx, scope, given)
}

// Logger returns log with the fields that name the trace and the span of the run. It returns log itself if the run
// has no spans.
func (r *Run) Logger(log *zap.Logger) *zap.Logger {
	if r.Spans == nil {
		return log
	}
	return log.With(r.Spans.Fields()...)
}
