package tracing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxName is the maximum size of a name or id that another party has chosen, in bytes.
const maxName = 128

// modeWorkflow is the mode of a team in the note that it has been prepared.
const modeWorkflow = "workflow"

// apply folds an event other than the end of the run. If the event is new, apply makes the spans that it ends. The
// caller must hold mu.
func (r *run) apply(ev *teamv1.Event, isNew bool) {
	costs, scope, at := r.book.Apply(ev), ev.GetScope(), ev.GetTime().AsTime()
	if r.texts != nil {
		r.texts.Add(ev.GetSeq(), journal.MessageOf(r.root, ev))
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted:
		r.accepted, r.task = ev, k.Accepted
	case *teamv1.Event_Claimed:
		r.lastBeforeClaim = r.last
		if isNew {
			r.replica = k.Claimed.GetReplica()
		} else {
			r.earlier = k.Claimed.GetEpoch()
		}
	case *teamv1.Event_Noted:
		if k.Noted.GetCode() == agent.NoteTeamPrepared {
			s := r.scope(scope)
			s.team, s.workflow = true, k.Noted.GetDetails().GetFields()["mode"].GetStringValue() == modeWorkflow
		}
	case *teamv1.Event_Decided:
		r.decided(ev, k.Decided, isNew)
	case *teamv1.Event_Bound:
		if open := r.scope(scope).open; open != nil {
			open.remote = true
		}
	case *teamv1.Event_Waiting:
		if open := r.scope(scope).open; open != nil {
			open.waited = at
		}
	case *teamv1.Event_Started:
		if scope != "" {
			r.started(ev, k.Started, costs, isNew)
		}
	case *teamv1.Event_Retried:
		if isNew {
			r.attempted(ev, outcome{end: at, failed: reason(k.Retried.GetError()), costs: costs})
		}
		r.scope(scope).open = nil
	case *teamv1.Event_Ended:
		if isNew {
			r.attempted(ev, r.outcomeOf(k.Ended, at, costs))
		}
		delete(r.scopes, scope)
	}
	r.last = at
}

// decided notes the steps of a decision. A decision of a team is a span without a duration.
func (r *run) decided(ev *teamv1.Event, d *teamv1.Decided, isNew bool) {
	s := r.scope(ev.GetScope())
	var steps []string
	for _, step := range d.GetSteps() {
		r.scope(agent.Scope(ev.GetScope(), step.GetId())).step = step
		steps = append(steps, name(step.GetId(), cmp.Or(step.GetMember(), callee(step))))
	}
	if !isNew || !s.team {
		return
	}
	at := ev.GetTime().AsTime()
	attrs := append(r.common(ev), operationKey.String(opPlan), planStepsKey.StringSlice(steps))
	if d.GetRule() != "" {
		attrs = append(attrs, planRuleKey.String(d.GetRule()))
	}
	if r.content != nil && d.GetReason() != "" {
		attrs = append(attrs, planReasonKey.String(r.content.text(d.GetReason())))
	}
	r.make(span{
		id: spanID(r.root, opPlan, ev.GetSeq()), parent: r.openSpan(ev.GetScope()), name: name(opPlan, lastOf(ev.GetAgent())), start: at, end: at, attrs: attrs,
	})
}

// started opens an attempt. One that was open before was interrupted, or has waited for people and continues.
func (r *run) started(ev *teamv1.Event, started *teamv1.Started, costs []cost.Sum, isNew bool) {
	s := r.scope(ev.GetScope())
	if s.open != nil && isNew {
		o := outcome{end: s.open.waited, costs: costs}
		if o.end.IsZero() {
			o.end, o.failed = r.lastBeforeClaim, errInterrupted
		}
		r.attempted(ev, o)
	}
	s.open = &attempt{
		id: spanID(r.root, "attempt", ev.GetSeq()), path: ev.GetAgent(), start: ev.GetTime().AsTime(), number: started.GetAttempt(), model: started.GetModel(), provider: started.GetProvider(),
	}
}

// outcome is how an attempt ended.
type outcome struct {
	end    time.Time
	failed string // why it failed; empty if it did not
	word   string // outcome of the step; empty if it has not ended
	costs  []cost.Sum
	turn   *teamv1.Turn
	given  []attribute.KeyValue // content of the result
}

// outcomeOf returns how the last attempt of a step ended.
func (r *run) outcomeOf(e *teamv1.Ended, at time.Time, costs []cost.Sum) outcome {
	o := outcome{end: at, word: taskstate.Word(e.GetOutcome()), costs: costs, turn: e.GetTurn(), given: r.content.result(e, r.replyOf(e))}
	switch {
	case e.GetError() != nil && e.GetOutcome() != teamv1.Outcome_OUTCOME_SKIPPED && e.GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED:
		o.failed = reason(e.GetError())
	case e.GetTool().GetIsError():
		o.failed = errTool
	}
	return o
}

// replyOf returns the message of a result, nil if it has none or if there is no content.
func (r *run) replyOf(e *teamv1.Ended) *a2av1.Message {
	if r.texts == nil || e.GetReplyRef() == 0 {
		return e.GetReply()
	}
	return r.texts.At(e.GetReplyRef())
}

// attempted makes the span of the open attempt of a step. A step that ends without one, such as one that was refused,
// has a span without a duration.
func (r *run) attempted(ev *teamv1.Event, o outcome) {
	s := r.scope(ev.GetScope())
	a := s.open
	if a == nil {
		a = &attempt{id: spanID(r.root, "step", ev.GetSeq()), start: o.end}
	}
	made := span{
		id: a.id, parent: r.openSpan(agent.Parent(ev.GetScope())), start: a.start, end: later(o.end, a.start), failed: o.failed,
		attrs: append(r.common(ev), stepKey.String(ev.GetScope()), attemptKey.Int(int(a.number))),
	}
	made.name, made.kind, made.attrs = s.describe(lastOf(ev.GetAgent()), a, made.attrs)
	if o.word != "" {
		made.attrs = append(made.attrs, outcomeKey.String(o.word))
	}
	if o.turn.GetModel() != "" {
		made.attrs = append(made.attrs, responseModelKey.String(o.turn.GetModel()))
	}
	if o.turn.GetFinishReason() != "" {
		made.attrs = append(made.attrs, finishKey.StringSlice([]string{o.turn.GetFinishReason()}))
	}
	made.attrs = slices.Concat(made.attrs, usage(o.costs), a.given, o.given)
	r.make(made)
}

// describe returns the name and the kind of the span of an attempt, and adds the attributes that say what it calls.
func (s *scope) describe(agentName string, a *attempt, attrs []attribute.KeyValue) (string, trace.SpanKind, []attribute.KeyValue) {
	kind := trace.SpanKindInternal
	switch k := s.step.GetKind(); {
	case a.model != "" || k == teamv1.Step_KIND_MODEL:
		attrs = append(attrs, operationKey.String(opChat))
		if a.model != "" {
			attrs, kind = append(attrs, requestModelKey.String(a.model)), trace.SpanKindClient
		}
		if a.provider != "" {
			attrs = append(attrs, providerKey.String(a.provider))
		}
		return name(opChat, a.model), kind, attrs
	case k == teamv1.Step_KIND_TOOL:
		attrs = append(attrs, operationKey.String(opTool), toolTypeKey.String("function"))
		if s.step.GetRefusal() != nil { // its name and id may be any text of the model
			return opTool, kind, attrs
		}
		called := callee(s.step)
		attrs = append(attrs, toolNameKey.String(called))
		if id := s.step.GetCallId(); id != "" {
			attrs = append(attrs, toolCallIDKey.String(agent.Excerpt(id, maxName)))
		}
		return name(opTool, called), kind, attrs
	case k == teamv1.Step_KIND_HUMAN:
		return nameAsk, kind, attrs
	case k == teamv1.Step_KIND_JUDGE && !s.team && !a.remote:
		return name(nameJudge, callee(s.step)), kind, attrs
	}
	if a.remote {
		kind = trace.SpanKindClient
	}
	return name(s.operation(), agentName), kind, append(attrs, operationKey.String(s.operation()))
}

// callee returns the name of what a step calls, empty if the step is refused: a model may have made it up.
func callee(step *teamv1.Step) string {
	if step.GetRefusal() != nil {
		return ""
	}
	return agent.Excerpt(step.GetName(), maxName)
}

// operation returns the operation of an agent or a team.
func (s *scope) operation() string {
	if s.workflow {
		return opWorkflow
	}
	return opAgent
}

// finish makes the span of the run, and those of attempts that are still open.
func (r *run) finish(end *ending) {
	ev, e := end.event, end.event.GetEnded()
	at := r.clock()
	if t := ev.GetTime(); t != nil {
		at = t.AsTime()
	}
	for scope, s := range r.scopes {
		if s.open != nil {
			r.attempted(&teamv1.Event{Scope: scope, Agent: s.open.path}, outcome{end: at, failed: errInterrupted})
		}
	}
	o, s, total := r.outcomeOf(e, at, end.costs), r.scope(""), e.GetSpent()
	start := at
	if r.accepted != nil {
		start = r.accepted.GetTime().AsTime()
	}
	made := span{
		id: r.self.SpanID(), parent: r.parent, name: name(s.operation(), lastOf(ev.GetAgent())), start: start, end: later(at, start), failed: o.failed,
		attrs: append(r.common(ev), operationKey.String(s.operation()), outcomeKey.String(o.word), accountKey.String(identity.AccountOf(r.owner)),
			totalInputKey.Int64(total.GetInputTokens()), totalOutputKey.Int64(total.GetOutputTokens()), totalCostKey.Float64(usd(total.GetCostMicros()))),
	}
	made.attrs = slices.Concat(made.attrs, usage(o.costs), r.content.message(inputMessagesKey, string(agent.RoleUser), r.task.GetMessage()), o.given)
	made.links = r.origins()
	r.makeIn(r.self.TraceID(), made)
}

// origins returns the links of the span of the run: to the caller of a task that no request has recorded, and to the
// run that has begun the task.
func (r *run) origins() []trace.Link {
	var links []trace.Link
	if theirs := traceparent.Parse(r.task.GetTrace()[traceparent.Key]); !r.parent.IsValid() && theirs.IsValid() {
		links = append(links, trace.Link{SpanContext: theirs})
	}
	if from := r.task.GetDetached().GetParent(); from != "" && r.parent.IsValid() { // both are in the trace of the request
		links = append(links, trace.Link{SpanContext: r.self.WithSpanID(spanID(from, "run", 0))})
	}
	return links
}

// common returns the attributes of each span of the run.
func (r *run) common(ev *teamv1.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{taskKey.String(r.root), agentNameKey.String(lastOf(ev.GetAgent())), agentIDKey.String(ev.GetAgent())}
	if id := cmp.Or(r.task.GetConversation().GetContextId(), r.task.GetMessage().GetContextId()); id != "" {
		attrs = append(attrs, conversationKey.String(id))
	}
	return attrs
}

// usage returns what was spent as attributes; none if it is nothing. What other servers have reported is apart, because
// their own spans have it too.
func usage(costs []cost.Sum) []attribute.KeyValue {
	var all cost.Amounts
	for _, c := range costs {
		all.Add(c.Amounts)
	}
	whole, claimed := all.Spent(), all.Claimed()
	own := agent.LessSpent(whole, claimed)
	var attrs []attribute.KeyValue
	if own.GetInputTokens()+own.GetOutputTokens()+own.GetCostMicros() > 0 {
		attrs = append(attrs, inputTokensKey.Int64(own.GetInputTokens()), outputTokensKey.Int64(own.GetOutputTokens()), costKey.Float64(usd(own.GetCostMicros())))
	}
	if claimed != nil {
		attrs = append(attrs, claimedInputKey.Int64(claimed.GetInputTokens()), claimedOutputKey.Int64(claimed.GetOutputTokens()), claimedCostKey.Float64(usd(claimed.GetCostMicros())))
	}
	if whole.GetEstimated() {
		attrs = append(attrs, estimatedKey.Bool(true))
	}
	return attrs
}

// usd returns millionths of a USD in USD.
func usd(micros int64) float64 { return float64(micros) / 1e6 }

// reason returns the reason of an error.
func reason(e *teamv1.Error) string { return cmp.Or(e.GetReason(), agent.ReasonInternal) }

// lastOf returns the last id of the path of an agent.
func lastOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
