package team

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// executor knows how to make one attempt of a step.
type executor struct {
	attempt  func(ctx context.Context, key string) result
	reap     func(ctx context.Context, key string) error // nil: its work ends with this process
	leaf     bool                                        // has an effect of its own, so it is what retries repeat
	timeout  time.Duration                               // of the step with its retries; 0 is none of its own
	retry    retry
	model    string
	by       agent.Model // of a turn
	agent    string      // id of the member's agent where it is registered
	upstream string      // what the attempts call, for the budget of repetitions
	spends   bool        // what it spends is seen by itself alone, so it gets a part of the budget
}

// What a delegation hands down in the context.
type (
	retryKey  struct{} // the policy that its leaves are repeated under
	modelKey  struct{} // the model that members without one take
	roundsKey struct{} // the most rounds of a run, as limits above set it
	toolsKey  struct{} // the tools that the member has by its team
)

func (l *Loop) handDown(ctx context.Context, member string, by policy) context.Context {
	if l.cfg.MemberTools != nil || ctx.Value(toolsKey{}) != nil {
		ctx = context.WithValue(ctx, toolsKey{}, l.memberTools(member)) // those of a team above are for its own members
	}
	ctx = context.WithValue(ctx, retryKey{}, by)
	if l.cfg.Model != nil {
		ctx = context.WithValue(ctx, modelKey{}, l.cfg.Model)
	}
	if n := int(l.cfg.Limits.GetMaxRounds()); n > 0 {
		ctx = context.WithValue(ctx, roundsKey{}, leastOf(n, roundsOf(ctx)))
	}
	return ctx
}

// model is the agent's own, else the one it inherits; nil is none.
func (r *runner) model(ctx context.Context) agent.Model {
	if r.cfg.Model != nil {
		return r.cfg.Model
	}
	m, _ := ctx.Value(modelKey{}).(agent.Model)
	return m
}

// executor looks the step's worker up, at the last moment. An error refuses the step.
func (r *runner) executor(ctx context.Context, w *work, emit emitter) (*executor, error) {
	ex := &executor{leaf: true, retry: r.limits.retry}
	if by, ok := ctx.Value(retryKey{}).(policy); ok {
		ex.retry = by.of(r.cfg.Limits.GetRetry())
	}
	switch w.step.GetKind() {
	case teamv1.Step_KIND_DELEGATE, teamv1.Step_KIND_STEP, teamv1.Step_KIND_TRANSFER:
		return ex, r.memberExecutor(ex, w, emit)
	case teamv1.Step_KIND_MODEL:
		m := r.model(ctx)
		if m == nil {
			return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
				"agent %q has no model and works for no team whose leader has one; give it a model", r.cfg.ID)
		}
		ex.model, ex.by, ex.upstream = m.Name(), m, "model "+m.Name()
		ex.attempt = func(ctx context.Context, key string) result { return r.generate(ctx, m, w, emit, key) }
	case teamv1.Step_KIND_TOOL:
		ex.upstream = "tool " + w.step.GetName()
		ex.attempt = func(ctx context.Context, key string) result { return r.useTool(ctx, w, emit, key) }
	case teamv1.Step_KIND_JUDGE:
		if r.gate != nil {
			return ex, r.judgeExecutor(ex, w, emit)
		}
		fallthrough
	case teamv1.Step_KIND_HUMAN, teamv1.Step_KIND_UNSPECIFIED:
		return nil, agent.Errorf(agent.CodeInternal, agent.ReasonTeamError,
			"the scheduler of team %q asked for a step of kind %s, which this server cannot run; it runs those of members, models, tools and people", r.cfg.ID, w.step.GetKind())
	}
	return ex, nil
}

// memberExecutor prepares the work of a member.
func (r *runner) memberExecutor(ex *executor, w *work, emit emitter) error {
	id := w.step.GetMember()
	i := slices.IndexFunc(r.cfg.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return agent.Errorf(agent.CodeInternal, agent.ReasonMemberNotFound,
			"team %q has no member %q; its members are %s", r.cfg.ID, id, r.memberIDs()).With("member", id)
	}
	m := &r.cfg.Members[i]
	if m.Disabled {
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "member %q of team %q is disabled; enable it, or choose another one", id, r.cfg.ID).With("member", id)
	}
	if staff, ok := r.cfg.Registry.(Staff); ok && w.attempts == 0 {
		if gone := staff.Gone(r.cfg.ID, id); gone != nil {
			return gone.With("member", id)
		}
	}
	return r.agentExecutor(ex, w, m, emit)
}

// agentExecutor prepares the work of an agent of the team's.
func (r *runner) agentExecutor(ex *executor, w *work, m *Member, emit emitter) error {
	a, err := r.cfg.Registry.Agent(m.Agent)
	if err != nil {
		return agent.Errorf(agent.CodeInternal, agent.ReasonMemberNotFound,
			"member %q of team %q is agent %q, which is not registered; register it, or correct the member", m.ID, r.cfg.ID, m.Agent).With("member", m.ID).Because(err)
	}
	_, isLoop := a.(interface{ steps() })
	_, isTeam := a.(agent.Composite)
	_, isFunc := a.(*agent.Func)
	ex.agent, ex.upstream = m.Agent, "agent "+m.Agent
	ex.leaf, ex.spends = !isLoop, !isLoop && !isFunc
	by := policy{r.limits.retry, m.Retry, w.step.GetRetry()}
	ex.retry = by.of(nil)
	switch {
	case w.step.GetTimeout() != nil:
		ex.timeout = w.step.GetTimeout().AsDuration()
	case m.Timeout > 0:
		ex.timeout = m.Timeout
	case !isTeam: // a team bounds itself
		ex.timeout = r.limits.memberTimeout
	}
	if w.step.GetDetached() {
		ex.leaf, ex.spends, ex.agent = true, true, "" // it takes its part along, and says nothing of the agent
		ex.attempt = func(ctx context.Context, _ string) result { return r.detach(ctx, w, m, emit) }
		return nil
	}
	ex.attempt = func(ctx context.Context, key string) result {
		return r.delegate(r.handDown(ctx, m.ID, by), w, a, emit, key)
	}
	if reaper, ok := a.(agent.Reaper); ok {
		ex.reap = func(ctx context.Context, key string) error { return reaper.Reap(ctx, r.request(w, key)) }
	}
	return nil
}

func (r *runner) memberIDs() string {
	ids := make([]string, len(r.cfg.Members))
	for i, m := range r.cfg.Members {
		ids[i] = m.ID
	}
	return strings.Join(ids, ", ")
}

// delegate gives a member its message and passes on what it yields.
func (r *runner) delegate(ctx context.Context, w *work, a agent.Agent, emit emitter, key string) (res result) {
	req, resumed := r.request(w, key), r.run.Resumed()
	ctx = agent.WithDepth(ctx, int(req.GetDepth()))
	defer r.recovered(w.step.GetMember(), &res)
	for ev, err := range a.Process(ctx, req) {
		if err != nil {
			return result{err: err}
		}
		if reply := ev.GetReply(); reply != nil && ev.GetScope() == w.scope {
			res.reply = reply
			continue
		}
		if ev.GetDelta() != nil && r.hushes() {
			continue
		}
		if err := emit(ev); err != nil {
			return result{err: errStopped}
		}
		keep(w, ev)
	}
	switch {
	case res.reply != nil:
		return res
	case gone(context.Cause(ctx)): // whatever it has asked, others below it were at work
		return result{err: errStopped}
	case w.loop && r.run.PausedSince(resumed): // it is held, as well where ctx ended meanwhile
		return result{parked: true}
	case len(w.asked) > 0: // also where ctx ended meanwhile: who cancels has the member close what it has open
		return result{parked: true}
	case ctx.Err() != nil:
		return result{err: context.Cause(ctx)}
	case r.run.PausedSince(resumed): // something within it is
		return result{parked: true}
	}
	return result{err: agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed,
		"member %q ended without an answer; its agent has to end with a reply, a question or an error", w.step.GetMember())}
}

// keep adds what the next attempt of the same effect needs to know, and what
// tells whether the member has parked.
func keep(w *work, ev *teamv1.Event) {
	w.asked.follow(ev)
	switch ev.GetKind().(type) {
	case *teamv1.Event_Asked, *teamv1.Event_Answered, *teamv1.Event_Bound:
		w.recorded = append(slices.Clip(w.recorded), ev)
	default:
	}
}

// request is what a member is given: the message, and of what was said before
// what its history scope shows.
func (r *runner) request(w *work, key string) *teamv1.ProcessRequest {
	req := &teamv1.ProcessRequest{
		AgentId: w.step.GetMember(),
		Message: &a2av1.Message{
			MessageId: key, ContextId: w.input.GetContextId(), Role: a2av1.Role_ROLE_USER,
			Parts: w.input.GetParts(), Metadata: w.input.GetMetadata(),
		},
		ContextId: r.req.GetContextId(), Key: key, History: w.history, Transfers: w.transfers,
		Path: append(slices.Clip(r.req.GetPath()), r.req.GetAgentId()), Depth: r.req.GetDepth() + 1,
		Brief: r.req.GetBrief(), Scope: w.scope, Recorded: w.recorded, Branch: r.historyScope(w.step.GetMember()) != HistoryConversation,
	}
	if !w.deadline.IsZero() {
		req.Deadline = timestamppb.New(w.deadline)
	}
	req.Envelope = w.hold.Envelope()
	return req
}

// recovered turns a panic of a member into its error. A panic of our own
// consumer, which passes through the member's frames, is none of the member's.
func (r *runner) recovered(member string, res *result) {
	if r.inYield {
		return
	}
	if v := recover(); v != nil {
		*res = result{err: agent.Panicked(r.cfg.Log, member, v)}
	}
}

// Streamed text is put on record at once for the first piece, then in pieces of
// this size or age.
const (
	deltaBytes = 4 << 10
	deltaAge   = 100 * time.Millisecond
)

// generate makes one turn of the model.
func (r *runner) generate(ctx context.Context, m agent.Model, w *work, emit emitter, key string) (res result) {
	defer r.recovered(r.cfg.ID, &res)
	req := *w.prompt
	req.Key = key
	if w.maxOutput > 0 {
		req.MaxOutput = w.maxOutput
	}
	d := deltas{by: r, w: w, emit: emit, artifact: r.run.ID(r.scope, "artifact", 1)}
	for chunk, err := range m.Generate(ctx, &req) {
		switch {
		case err != nil:
			return result{err: err}
		case chunk.Turn != nil:
			if err := d.flush(); err != nil {
				return result{err: errStopped}
			}
			spent := chunk.Spent
			if spent == nil {
				spent = &teamv1.Spent{}
			}
			spent.ModelCalls = 1
			res.reply = &teamv1.Reply{Result: &teamv1.Reply_Turn{Turn: chunk.Turn}, Spent: spent}
		case d.add(chunk.Text) != nil:
			return result{err: errStopped}
		}
	}
	switch {
	case res.reply != nil:
		return res
	case ctx.Err() != nil:
		return result{err: context.Cause(ctx)}
	}
	return result{err: agent.Errorf(agent.CodeInternal, agent.ReasonUnavailable, "the model of %q ended without an answer; try again, or give it another model", r.cfg.ID)}
}

// deltas gathers streamed text into events.
type deltas struct {
	by       *runner
	w        *work
	emit     emitter
	artifact string
	text     strings.Builder
	last     time.Time // of the last event; zero before the first
}

func (d *deltas) add(text string) error {
	if d.by.silent() || d.w.step.GetKind() == teamv1.Step_KIND_JUDGE {
		return nil
	}
	d.text.WriteString(text)
	if d.last.IsZero() || d.text.Len() >= deltaBytes || d.by.run.Now().Sub(d.last) >= deltaAge {
		return d.flush()
	}
	return nil
}

func (d *deltas) flush() error {
	if d.text.Len() == 0 {
		return nil
	}
	delta := &teamv1.Delta{ArtifactId: d.artifact, Text: d.text.String(), Restart: d.last.IsZero()}
	d.text.Reset()
	d.last = d.by.run.Now()
	return d.emit(d.by.stepEvent(d.w, &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: delta}}))
}

// useTool calls a tool. What goes wrong is the tool's result: the model decides
// what to make of it.
func (r *runner) useTool(ctx context.Context, w *work, emit emitter, key string) result {
	if said := ruled(w); said != nil {
		return *said
	}
	if w.unsafe && w.unknown {
		return r.askOutcome(w, emit, "this server stopped before it ended")
	}
	tool, ok := r.tool(w.step.GetName())
	if !ok {
		return toolFailed("there is no tool %q; the tools are %s", w.step.GetName(), strings.Join(r.toolNames(), ", "))
	}
	arguments := strings.TrimSpace(w.arguments)
	if arguments == "" {
		arguments = "{}"
	}
	if !json.Valid([]byte(arguments)) {
		return toolFailed("the arguments of %s are no JSON", w.step.GetName())
	}
	if inner, ok := prompt.Unwrap(arguments); ok {
		arguments = inner
	}
	answer, err := r.callTool(ctx, tool, json.RawMessage(arguments), key)
	if ctx.Err() != nil {
		return result{err: context.Cause(ctx)}
	}
	if err != nil {
		e := agent.AsError(err)
		if w.unsafe && e.Retry && !e.Fresh {
			return r.askOutcome(w, emit, "it ended without a result: "+e.Message)
		}
		return result{err: e}
	}
	return result{reply: &teamv1.Reply{Result: &teamv1.Reply_Tool{Tool: answer}, Spent: &teamv1.Spent{ToolCalls: 1}}}
}

// callTool calls a tool so that it can be left behind when ctx ends; what it
// answers then is dropped.
func (r *runner) callTool(ctx context.Context, tool agent.Tool, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	var answer *teamv1.ToolResult
	var err error
	var decided atomic.Bool // that it is called, or that it is not
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = agent.Panicked(r.cfg.Log, tool.Spec().Name, v)
			}
		}()
		if !decided.Swap(true) {
			answer, err = tool.Call(ctx, arguments, key)
		}
	}()
	select {
	case <-done:
		return answer, err
	case <-ctx.Done():
		decided.Store(true) // what has not begun by now must not: the end goes on record
		return nil, context.Cause(ctx)
	}
}

func toolFailed(format string, args ...any) result {
	return result{reply: &teamv1.Reply{
		Result: &teamv1.Reply_Tool{Tool: &teamv1.ToolResult{Text: agent.Errorf(0, "", format, args...).Message, IsError: true}},
		Spent:  &teamv1.Spent{ToolCalls: 1},
	}}
}

func (r *runner) toolNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(r.tools)), maps.Keys(r.sets))
	slices.Sort(names)
	return names
}
