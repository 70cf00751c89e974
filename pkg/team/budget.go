package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/allowance"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

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
func (p *process) withSpent(err error) error {
	spent := p.spent()
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
