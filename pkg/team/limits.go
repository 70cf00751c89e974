package team

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/allowance"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// limits are the effective limits of a run: the configured values, or the defaults.
type limits struct {
	maxSteps, maxParallel, maxDepth int
	timeout, memberTimeout          time.Duration
	retry                           step.Retry
}

// Defaults of the timeouts of a run of a team, and of a step of a member.
const (
	DefaultTimeout       = 300 * time.Second
	DefaultMemberTimeout = 60 * time.Second
)

// DefaultSteps is the default of limits.max_steps, the maximum number of steps of a run.
const DefaultSteps = 100

// NameOfLimit returns the name of a limit for errors. It says that the limit is a default unless the configuration sets it.
func NameOfLimit(name string, set bool) string {
	if set {
		return "limits." + name
	}
	return "limits." + name + ", the default"
}

// effective returns the limits that l sets, and the defaults for all others.
func effective(l *teamv1.Limits) limits {
	e := limits{
		maxSteps: DefaultSteps, maxParallel: 3, maxDepth: agent.MaxDepth,
		timeout: DefaultTimeout, memberTimeout: DefaultMemberTimeout,
		retry: step.Retry{Attempts: 3, Backoff: time.Second},
	}
	set(&e.maxSteps, l.GetMaxSteps())
	set(&e.maxParallel, l.GetMaxParallel())
	set(&e.maxDepth, l.GetMaxDepth())
	setDuration(&e.timeout, l.GetTimeout())
	setDuration(&e.memberTimeout, l.GetMemberTimeout())
	e.memberTimeout = min(e.memberTimeout, e.timeout)
	e.retry = e.retry.With(l.GetRetry())
	return e
}

// policy says how often the leaves of a delegation are retried: as the team sets it, overridden by
// the agent's own setting, then the member's, then the step's.
type policy struct {
	team         step.Retry
	member, step *teamv1.Retry
}

// of returns the policy for an agent with the setting own, which may be nil.
func (p policy) of(own *teamv1.Retry) step.Retry { return p.team.With(own).With(p.member).With(p.step) }

// set stores v in to if v is positive.
func set(to *int, v int32) {
	if v > 0 {
		*to = int(v)
	}
}

// setDuration stores d in to if d is positive.
func setDuration(to *time.Duration, d *durationpb.Duration) {
	if v := d.AsDuration(); v > 0 {
		*to = v
	}
}

// checkLimits returns the faults of limits. Negative values are always faults; an explicit 0 is one
// unless it switches the limit off.
func checkLimits(id string, l *teamv1.Limits) []error {
	if l == nil {
		return nil
	}
	var faults []error
	positive := func(name string, v int64, isSet bool) {
		if isSet && v <= 0 {
			faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
				"team %q: limits.%s is %d; it must be at least 1, or left out for the default", id, name, v))
		}
	}
	positive("max_steps", int64(l.GetMaxSteps()), l.MaxSteps != nil)
	positive("max_turns", int64(l.GetMaxTurns()), l.MaxTurns != nil)
	positive("max_parallel", int64(l.GetMaxParallel()), l.MaxParallel != nil)
	positive("max_delegations", int64(l.GetMaxDelegations()), l.MaxDelegations != nil)
	positive("max_rounds", int64(l.GetMaxRounds()), l.MaxRounds != nil)
	positive("max_depth", int64(l.GetMaxDepth()), l.MaxDepth != nil)
	positive("max_tokens", l.GetMaxTokens(), l.MaxTokens != nil)
	positive("max_cost", agent.LimitOf(l).Micros, l.MaxCost != nil)
	positive("timeout", int64(l.GetTimeout().AsDuration()), l.Timeout != nil)
	positive("member_timeout", int64(l.GetMemberTimeout().AsDuration()), l.MemberTimeout != nil)
	orOff := func(name string, v int64) { positive(name, v, v < 0) } // 0 switches these off
	orOff("max_handoffs", int64(l.GetMaxHandoffs()))
	orOff("max_repeated_calls", int64(l.GetMaxRepeatedCalls()))
	orOff("loop_window", int64(l.GetLoopWindow()))
	orOff("loop_min_unique", int64(l.GetLoopMinUnique()))
	orOff("node_timeout", int64(l.GetNodeTimeout().AsDuration()))
	if r := l.GetRetry(); r != nil {
		positive("retry.attempts", int64(r.GetAttempts()), r.Attempts != nil)
		positive("retry.backoff", int64(r.GetBackoff().AsDuration()), r.Backoff != nil)
	}
	return faults
}

// bindBudget returns ctx with the budget of the run: a child of the caller's budget in ctx, bounded
// by the team's or agent's own limits and what people have granted to them, less what is on record as
// spent. What members on other servers may still spend after a crash of this process stays reserved,
// see spending.HeldOn.
func (p *process) bindBudget(ctx context.Context) context.Context {
	if len(p.cfg.Members) > 0 {
		ctx = agent.WithDepthLimit(ctx, p.limits.maxDepth)
	}
	b := spending.BudgetOf(ctx)
	if limit := agent.LimitOf(p.cfg.Limits); limit != agent.NoLimit() {
		recorded := p.req.GetRecorded()
		b = b.Child(p.Path, limit, spending.BookedOn(recorded)).At(p.req.GetScope()).Holding(spending.HeldOn(recorded))
		if p.cfg.Limits.GetOnLimit() == teamv1.OnLimit_ASK {
			p.asking = b.Asking(p.cfg.Limits.GetAskRoles(), spending.SpentBy(recorded))
		}
	}
	p.runner.Budget = step.NewBudget(b, p.traits.FinalTurn)
	if b == nil {
		return ctx
	}
	if left := b.Left(); left != agent.NoLimit() {
		p.Limit = left.Plus(spending.BookedOn(p.req.GetRecorded()))
	}
	return spending.WithBudget(ctx, b)
}

// bindCounters returns ctx with the counters that bound the run: those of the callers above, the
// team's or agent's own limits, and the caller's envelope, less the counts on record.
func (p *process) bindCounters(ctx context.Context) context.Context {
	above := allowance.Of(ctx)
	if own := allowance.CountsOf(p.cfg.Limits).Within(allowance.CountsOf(p.req.GetEnvelope())); own != (allowance.Counts{}) {
		above = above.Child(p.Path, own, allowance.CountsOn(p.req.GetRecorded()))
		ctx = allowance.With(ctx, above)
	}
	if above == nil {
		return ctx
	}
	begun := map[int]bool{}
	for _, st := range p.All() {
		if st.ByMember() && st.past.Attempts > 0 {
			begun[st.Round] = true
		}
	}
	p.runner.Counters = step.NewCounters(above, p.traits.FinalTurn, begun)
	return ctx
}

// withSpent returns err with the cost of the run added.
func (s *State) withSpent(err error) error {
	spent := s.spent()
	if spent == nil || err == nil {
		return err
	}
	e := agent.AsError(err).Because(err)
	e.Spent = spent
	return e
}

// peersOf counts those that share the rest of the budget with a step: the open steps of members,
// and the leader if it continues meanwhile. It is 0 without a budget.
func (p *process) peersOf(st *StepState) int {
	n := 0
	if !p.runner.Budget.Limited() || !st.ByMember() {
		return n
	}
	for o := range p.pending() {
		if o.ByMember() && !o.Parked() {
			n++
		}
	}
	if st.Step.GetAsync() && st.Step.GetKind() == teamv1.Step_KIND_DELEGATE {
		n++ // the leader
	}
	return n
}
