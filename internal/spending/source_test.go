package spending_test

import (
	"context"
	"testing"

	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// pool is a Source that has an amount left, and counts how often it was asked to wait.
type pool struct {
	left  agent.Cost
	waits int
}

func (p *pool) Left() agent.Cost { return p.left }

func (p *pool) Draw(_ context.Context, w spending.Want, wait bool) (agent.Cost, error) {
	c := w.Most.Min(p.left)
	if !c.Covers(w.Least) {
		if wait {
			p.waits++
		}
		return agent.Cost{}, agent.Errorf(agent.CodeInternal, agent.ReasonBudgetExceeded, "the pool is empty")
	}
	p.left = agent.Cost{Tokens: p.left.Tokens - c.Tokens, Micros: p.left.Micros - c.Micros}
	return c, nil
}

// TestBudget_DrawsWhatIsMissing: a root with a source reserves what it has before it draws, returns nothing, and
// fails with the error of the source when both are used up.
func TestBudget_DrawsWhatIsMissing(t *testing.T) {
	cost := func(n int64) agent.Cost { return agent.Cost{Tokens: n, Micros: 10 * n} }
	want := func(least, most int64) spending.Want {
		return spending.Want{Least: cost(least), Enough: cost(least), Most: cost(most)}
	}
	p := &pool{left: cost(50)}
	b := spending.NewBudget("", cost(20), agent.Cost{}).From(p)
	team := b.Child("desk", cost(1000), agent.Cost{}).At("")
	if left := team.Left(); left != cost(70) || b.Drawn() != cost(20) {
		t.Errorf("left %v, drawn %v", left, b.Drawn())
	}
	if err := team.Room(cost(60)); err != nil {
		t.Error(err)
	}
	r, err := team.Acquire(t.Context(), want(10, 30))
	if err != nil || r.Reserved() != cost(30) || p.left != cost(40) {
		t.Fatalf("reserved %v, and the pool has %v: %v", r.Reserved(), p.left, err)
	}
	r.Settle(cost(5))
	if r, err = team.Acquire(t.Context(), want(25, 25)); err != nil || p.left != cost(40) {
		t.Errorf("drew although there was enough: %v, %v", p.left, err)
	}
	r.Settle(cost(25))
	if _, err = team.Acquire(t.Context(), want(41, 41)); agent.AsError(err).Message != "the pool is empty" || p.waits != 1 {
		t.Errorf("%v after %d waits", err, p.waits)
	}
	if _, err = team.Acquire(t.Context(), spending.Want{Least: cost(1), Enough: cost(1), Most: agent.NoLimit(), Part: true}); err != nil || p.left != (agent.Cost{}) {
		t.Errorf("a part: the pool has %v, %v", p.left, err)
	}
	if shared := team.Shared(); len(shared) != 1 || shared[0].GetSetBy() != "desk" || shared[0].GetMaxTokens() != 1000 || shared[0].GetMaxCostMicros() != 10_000 {
		t.Errorf("new limits for what is begun: %v", shared)
	}
}
