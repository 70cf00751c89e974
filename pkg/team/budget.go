package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// bind returns ctx with the budget of the run: that of its caller, which ctx has, and the
// team's or agent's own limits, less what the record says was spent. Work that a process
// left unfinished when it died reserves nothing.
func (p *process) bind(ctx context.Context) context.Context {
	if len(p.cfg.Members) > 0 {
		ctx = agent.WithDepthLimit(ctx, p.limits.maxDepth)
	}
	b := agent.BudgetOf(ctx)
	if limit := agent.LimitOf(p.cfg.Limits); limit != agent.NoLimit() {
		b = b.Child(p.Path, limit, agent.BookedOn(p.req.GetRecorded()))
	}
	if b == nil {
		return ctx
	}
	p.runner.Budget = step.NewBudget(b, p.traits.FinalTurn)
	return agent.WithBudget(ctx, b)
}

// allow finds out what bounds the counters of the run: what those above set, what
// the team's or agent's own limits set, and the caller's for this run, of which is
// gone what is on record.
func (p *process) allow(ctx context.Context) context.Context {
	above := agent.AllowanceOf(ctx)
	if own := agent.CountsOf(p.cfg.Limits).Within(agent.CountsOf(p.req.GetEnvelope())); own != (agent.Counts{}) {
		above = above.Child(p.Path, own, agent.CountsOn(p.req.GetRecorded()))
		ctx = agent.WithAllowance(ctx, above)
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

// withSpent is err with what the run has cost all the same.
func (p *process) withSpent(err error) error {
	spent := p.spent()
	if spent == nil || err == nil {
		return err
	}
	e := agent.AsError(err).Because(err)
	e.Spent = spent
	return e
}

// peersOf counts those that share with a step what is left: the open steps of
// members, and who goes on deciding.
func (p *process) peersOf(st *StepState) int {
	n := 0
	if p.runner.Budget == nil || !st.ByMember() {
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
