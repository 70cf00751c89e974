package team

import (
	"context"
	"slices"
	"sync"

	"github.com/agentteams/team-server/pkg/agent"
)

// counting is what a process knows of the counters that bind it beyond its own
// run; its goroutines share it. A nil counting is no limit.
type counting struct {
	allowance *agent.Allowance
	final     string // the turn that a limit leaves

	mu    sync.Mutex
	begun map[int]bool // rounds that count as a step; guarded by mu
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
	p.counting = &counting{allowance: above, final: p.traits.FinalTurn, begun: map[int]bool{}}
	for _, st := range p.All() {
		if st.ByMember() && st.attempts > 0 {
			p.counting.begun[st.Round] = true
		}
	}
	return ctx
}

// take counts a step that is about to begin for the first time; the error is that
// of the limit in its way.
func (c *counting) take(w *work) error {
	if c == nil || w.attempts > 0 || c.final != "" && c.final == w.step.GetName() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	each := agent.CountersOf(w.step, !c.begun[w.round])
	if err := c.allowance.Take(each...); err != nil {
		return err
	}
	if slices.Contains(each, agent.CountSteps) {
		c.begun[w.round] = true
	}
	return nil
}
