package tracing

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/agent"
)

// Driving returns drive with spans of what it appends.
func (t *Tracer) Driving(drive func(context.Context, runs.Claim) (runs.Park, error)) func(context.Context, runs.Claim) (runs.Park, error) {
	if t == nil {
		return drive
	}
	return func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		r := newRun(t, c)
		c.Journal = r
		park, err := drive(ctx, c)
		r.release(err)
		return park, err
	}
}

// run is the journal of a claimed run that makes spans of the events that are appended. An event counts when it is
// appended, and the end of the run when it is durable. What has ended before the claim has its spans from the
// process that appended it.
type run struct {
	runs.Journal
	*Tracer
	root, owner string
	epoch       int64
	claimed     time.Time

	// self is the span of the run. parent is its parent span; it is invalid if the run is the root of its trace.
	// Load sets both, and they do not change afterwards.
	self, parent trace.SpanContext

	mu              sync.Mutex
	accepted        *teamv1.Event     // guarded by mu
	task            *teamv1.Accepted  // of accepted; guarded by mu
	book            *cost.Book        // guarded by mu
	scopes          map[string]*scope // that have not ended; guarded by mu
	texts           *journal.Texts    // nil without content; guarded by mu
	earlier         int64             // epoch of the previous claim, 0 if there was none; guarded by mu
	replica         string            // the process that drives the run; guarded by mu
	last            time.Time         // time of the last event; guarded by mu
	lastBeforeClaim time.Time         // time of the last event before this claim; guarded by mu
	end             *ending           // the end of the run, until it is durable; guarded by mu
}

// scope is a step that has not ended, or the root.
type scope struct {
	step     *teamv1.Step // as decided; nil for the root
	open     *attempt     // nil if no attempt is open
	team     bool         // its work is that of a team
	workflow bool         // and the team plays a workflow
}

// attempt is an open attempt of a step.
type attempt struct {
	id       trace.SpanID
	path     string // of the agent
	start    time.Time
	number   int32
	model    string // empty if it calls no model
	provider string // of the model
	remote   bool   // the work is done by another server
	waited   time.Time
	given    []attribute.KeyValue
}

// ending is the end of a run, and what it adds to the costs.
type ending struct {
	event *teamv1.Event
	costs []cost.Sum
}

func newRun(t *Tracer, c runs.Claim) *run {
	r := &run{
		Journal: c.Journal, Tracer: t, root: c.Root, owner: c.Owner, epoch: c.Epoch, claimed: t.clock(),
		book: cost.NewBook(identity.AccountOf(c.Owner)), scopes: map[string]*scope{"": {}},
	}
	if t.content != nil {
		r.texts = &journal.Texts{}
	}
	return r
}

// runSpan returns the span of the run of a task, and the span that it belongs below.
func (t *Tracer) runSpan(root string, task *teamv1.Accepted) (self, parent trace.SpanContext) {
	parent = traceparent.Parse(task.GetTrace()[requestOf])
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
	_, span := t.tracer.Start(withIDs(ctx, ids{traceID(root), spanID(root, "run", 0)}), name(opAgent, task.GetAgent())) // never ended: it only says whether the trace is sampled
	return span.SpanContext(), parent
}

// Load implements runs.Journal.
func (r *run) Load(ctx context.Context) ([]*teamv1.Event, error) {
	events, err := r.Journal.Load(ctx)
	if len(events) == 0 || events[0].GetAccepted() == nil {
		return events, err
	}
	r.self, r.parent = r.runSpan(r.root, events[0].GetAccepted())
	if !r.self.IsSampled() {
		return events, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range events {
		if !taskstate.EndsRun(ev) {
			r.apply(ev, false)
		}
	}
	return events, err
}

// Append implements runs.Journal. The store may set the time of the end of the run after Append has returned, so
// what the end adds to the costs is computed before, and its span is made by Commit.
func (r *run) Append(ctx context.Context, events ...*teamv1.Event) error {
	if !r.self.IsSampled() {
		return r.Journal.Append(ctx, events...)
	}
	var end *ending
	for _, ev := range events {
		if taskstate.EndsRun(ev) {
			r.mu.Lock()
			end = &ending{ev, r.book.End(ev)}
			r.mu.Unlock()
		}
	}
	if err := r.Journal.Append(ctx, events...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = end
	for _, ev := range events {
		if !taskstate.EndsRun(ev) {
			r.apply(ev, true)
		}
	}
	return nil
}

// Commit implements runs.Journal.
func (r *run) Commit(ctx context.Context) error {
	err := r.Journal.Commit(ctx)
	if err != nil || !r.self.IsSampled() {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		r.finish(r.end)
		r.end = nil
	}
	return nil
}

// In implements agent.Spans.
func (r *run) In(ctx context.Context, scope string, given agent.Given) context.Context {
	if !r.self.IsSampled() { // those that are called must not record either
		return trace.ContextWithSpanContext(ctx, r.self)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.scopes[scope]; s != nil && s.open != nil {
		s.open.given = r.content.given(given)
	}
	return trace.ContextWithSpanContext(ctx, r.openSpan(scope))
}

// Fields implements agent.Spans.
func (r *run) Fields() []zap.Field { return fields(r.self) }

// openSpan returns the span of the open attempt of a scope, or of the nearest one above it: in the end, of the run. The
// caller must hold mu.
func (r *run) openSpan(scope string) trace.SpanContext {
	for ; scope != ""; scope = agent.Parent(scope) {
		if s := r.scopes[scope]; s != nil && s.open != nil {
			return r.self.WithSpanID(s.open.id)
		}
	}
	return r.self
}

// scope returns what is known of a scope. The caller must hold mu.
func (r *run) scope(id string) *scope {
	s := r.scopes[id]
	if s == nil {
		s = &scope{}
		r.scopes[id] = s
	}
	return s
}

// release ends the span of the claim. It belongs below that of the run and has a link to that of the claim before.
func (r *run) release(err error) {
	if !r.self.IsSampled() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := span{
		id: spanID(r.root, nameClaim, r.epoch), parent: r.self, name: nameClaim, start: r.claimed, end: r.clock(),
		attrs: []attribute.KeyValue{taskKey.String(r.root), epochKey.Int64(r.epoch), replicaKey.String(r.replica)},
	}
	if r.earlier > 0 {
		s.links = []trace.Link{{SpanContext: r.self.WithSpanID(spanID(r.root, nameClaim, r.earlier))}}
	}
	if err != nil && !errors.Is(err, agent.ErrShutdown) {
		s.failed = agent.AsError(err).Reason
	}
	r.make(s)
}

// span is a span that has ended.
type span struct {
	id         trace.SpanID
	parent     trace.SpanContext // not valid if it begins the trace
	name       string
	kind       trace.SpanKind
	start, end time.Time
	attrs      []attribute.KeyValue
	links      []trace.Link
	failed     string // why it failed; empty if it did not
}

// make makes a span.
func (t *Tracer) make(s span) { t.makeIn(trace.TraceID{}, s) }

// makeIn is like make; a span that begins a trace gets the given id for it.
func (t *Tracer) makeIn(id trace.TraceID, s span) {
	ctx := withIDs(trace.ContextWithSpanContext(context.Background(), s.parent), ids{id, s.id})
	if s.failed != "" {
		s.attrs = append(s.attrs, errorTypeKey.String(s.failed))
	}
	_, made := t.tracer.Start(ctx, s.name, trace.WithSpanKind(s.kind), trace.WithTimestamp(s.start), trace.WithAttributes(s.attrs...), trace.WithLinks(s.links...))
	if s.failed != "" {
		made.SetStatus(codes.Error, s.failed)
	}
	made.End(trace.WithTimestamp(s.end))
}
