package team

import (
	"context"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/inputs"
	"github.com/agentteams/team-server/pkg/team/internal/step"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// target returns what a step calls. It is looked up when the step starts. An error refuses the
// step.
func (p *process) target(ctx context.Context, st *StepState) (step.Target, error) {
	switch kind := st.Step.GetKind(); {
	case agent.ByMember(kind):
		return p.memberTarget(ctx, st)
	case kind == teamv1.Step_KIND_MODEL:
		m := p.model(ctx)
		if m == nil {
			return step.Target{}, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
				"agent %q has no model and is not a member of a team whose leader has one; give it a model", p.cfg.ID)
		}
		return p.leaf(ctx, step.Target{Model: m, Upstream: "model " + m.Name()}), nil
	case kind == teamv1.Step_KIND_TOOL:
		return p.leaf(ctx, step.Target{Upstream: "tool " + st.Step.GetName()}), nil
	case kind != teamv1.Step_KIND_JUDGE || p.gate == nil:
		return step.Target{}, agent.Errorf(agent.CodeInternal, agent.ReasonTeamError,
			"the scheduler of team %q asked for a step of kind %s, which cannot run; steps are run by members, models, tools and people", p.cfg.ID, kind)
	case p.gate.by == byAgent:
		return p.agentTarget(ctx, st, &Member{ID: p.gate.Agent, Agent: p.gate.Agent})
	case p.gate.by == byModel:
		return p.leaf(ctx, step.Target{Model: p.gate.Model, Upstream: "model " + p.gate.Model.Name()}), nil
	}
	e := p.gate.evidence(&p.State, st)
	return p.leaf(ctx, step.Target{Check: func() *teamv1.Reply { return p.gate.check(e) }, Upstream: "check"}), nil
}

// leaf completes a target that has an effect of its own. It is retried under the policy of the
// delegation that it works for.
func (l *Loop) leaf(ctx context.Context, t step.Target) step.Target {
	t.Leaf, t.Retry = true, l.limits.retry
	if c := inheritedBy(ctx); c != nil {
		t.Retry = c.retry.of(l.cfg.Limits.GetRetry())
	}
	return t
}

// memberTarget returns the target of a member's step, or why the member cannot be called.
func (l *Loop) memberTarget(ctx context.Context, st *StepState) (step.Target, error) {
	id := st.Step.GetMember()
	m := l.member(id)
	if m == nil {
		return step.Target{}, agent.Errorf(agent.CodeInternal, agent.ReasonMemberNotFound,
			"team %q has no member %q; its members are %s", l.cfg.ID, id, l.memberIDs()).With("member", id)
	}
	if m.Disabled {
		return step.Target{}, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonDisabled, "member %q of team %q is disabled; enable it, or choose another one", id, l.cfg.ID).With("member", id)
	}
	if staff, ok := l.cfg.Registry.(Staff); ok && st.past.Attempts == 0 {
		if gone := staff.Gone(l.cfg.ID, id); gone != nil {
			return step.Target{}, gone.With("member", id)
		}
	}
	return l.agentTarget(ctx, st, m)
}

// agentTarget returns the target of a step that calls the agent of m, which is a member or a judge.
func (l *Loop) agentTarget(ctx context.Context, st *StepState, m *Member) (step.Target, error) {
	a, err := l.cfg.Registry.Agent(m.Agent)
	if err != nil {
		return step.Target{}, agent.Errorf(agent.CodeInternal, agent.ReasonMemberNotFound,
			"member %q of team %q is agent %q, which is not registered; register it, or correct the member", m.ID, l.cfg.ID, m.Agent).With("member", m.ID).Because(err)
	}
	_, isLoop := a.(interface{ isLoop() })
	_, isTeam := a.(agent.Composite)
	_, isFunc := a.(*agent.Func)
	by := policy{l.limits.retry, m.Retry, st.Step.GetRetry()}
	if c := inheritedBy(ctx); l.isAcceptance() && c != nil {
		by = c.retry // that of the delegation
	}
	t := step.Target{
		Agent: a, AgentID: m.Agent, Upstream: "agent " + m.Agent, Leaf: !isLoop, Spends: !isLoop && !isFunc, Retry: by.of(nil),
		HandDown: func(ctx context.Context) context.Context { return l.handDown(ctx, m.ID, by) },
	}
	switch {
	case st.Step.GetTimeout() != nil:
		t.Timeout = st.Step.GetTimeout().AsDuration()
	case m.Timeout > 0:
		t.Timeout = m.Timeout
	case !isTeam: // a team has its own timeout
		t.Timeout, t.DefaultTimeout = l.limits.memberTimeout, l.cfg.Limits.GetMemberTimeout() == nil
	}
	switch {
	case st.Step.GetDetached():
		t.Leaf, t.Spends = true, true // the new task gets its own part of the budget
	case l.acceptances[m.ID] != nil:
		t.Agent, t.Rounds, t.Leaf, t.Spends = l.acceptances[m.ID], true, false, false
	}
	return t, nil
}

func (l *Loop) memberIDs() string {
	ids := make([]string, len(l.cfg.Members))
	for i, m := range l.cfg.Members {
		ids[i] = m.ID
	}
	return strings.Join(ids, ", ")
}

// limitOf returns the name of the limit that bounds the time of a step.
func limitOf(step *teamv1.Step) string {
	if step.GetKind() == teamv1.Step_KIND_TRANSFER || RefusedTransfer(step) != "" {
		return agent.LimitNodeTimeout
	}
	return agent.LimitMemberTimeout
}

// workOf returns the work of a step: its target, and copies of what the target needs. Events of the
// step go to emit.
func (p *process) workOf(ctx context.Context, st *StepState, emit func(*teamv1.Event) error) *step.Work {
	st.extendDeadline(st.clock.Begin(p.startTime), p.startTime)
	w := &step.Work{
		Step: st.Step, Round: st.Round, Scope: st.Scope, Emit: emit, Limit: limitOf(st.Step), Begins: p.startTime, Peers: p.peersOf(st),
		Input: p.inputOf(st), History: p.historyFor(st), Past: st.past.Copy(),
	}
	w.Target, w.Refused = p.target(ctx, st)
	if st.ByMember() {
		w.Transfers, w.Accepts = p.cfg.Scheduler.Transfers(&p.State, st), p.accepts(ctx, st)
		if m := p.member(st.Step.GetMember()); m != nil {
			w.Approve = m.Approve
			known := p.Infos()
			if info := known.Of(m); info.GetInputs() != nil { // never of an agent on another server, which gets what its task says
				w.Fill = func(in *a2av1.Message) *a2av1.Message { return inputs.Fill(in, info.GetInputs(), p.named(st)) }
				w.Input = w.Fill(w.Input)
			}
		}
	}
	w.Branch = w.Target.Agent != nil && (p.historyScope(st.Step) != HistoryConversation || p.isAcceptance() && p.req.GetBranch())
	switch st.Step.GetKind() {
	case teamv1.Step_KIND_MODEL:
		if w.Target.Model != nil {
			p.Window = agent.FilesOf(w.Target.Model).Window
		}
		w.Prompt = p.instructed(p.cfg.Scheduler.Prompt(p.withoutJudgements(), st.Step))
	case teamv1.Step_KIND_JUDGE:
		p.gate.prepare(w, &p.State, st)
	case teamv1.Step_KIND_TOOL:
		w.Arguments, w.Unsafe = p.Arguments(st), p.unsafe(st.Step.GetName())
	default:
	}
	if w.Prompt != nil && w.Target.Model != nil {
		w.Prompt = prompt.Fit(agent.FilesOf(w.Target.Model), w.Prompt)
	}
	return w
}

// instructed returns a request with the values of the inputs that its instructions name.
func (p *process) instructed(req *agent.ModelRequest) *agent.ModelRequest {
	if len(p.Inputs) == 0 {
		return req
	}
	if t, err := expr.CompileInstructions(req.Instructions, p.cfg.Inputs.Names()); err == nil {
		if text, err := t.Text("the instructions of "+p.cfg.ID, &expr.Given{Inputs: p.Inputs}); err == nil {
			req.Instructions = text
		}
	}
	return req
}

// Arguments returns the arguments of a TOOL step. They are those of a tool call in the preceding
// model turn: the n-th step after the turn belongs to its n-th call, whatever ids the model chose.
// Empty if there is none.
func (s *State) Arguments(st *StepState) string {
	index := s.indexOf(st)
	for i := index - 1; i >= 0; i-- {
		if calls := s.Steps[i].Turn.GetToolCalls(); len(calls) >= index-i {
			return calls[index-i-1].GetArguments()
		}
	}
	return ""
}
