package team

import (
	"context"

	"github.com/agentteams/team-server/pkg/agent"
)

// inherited is the context of a delegation, with what the team hands down.
type inherited struct {
	context.Context
	retry  policy        // that its leaves are repeated under
	model  agent.Model   // that members without one take; nil is none
	rounds int           // the most rounds of a run, as limits above set it; 0: none do
	tools  agent.ToolSet // that the member has by its team; nil is none
}

type inheritedKey struct{}

// Value implements context.Context.
func (c *inherited) Value(key any) any {
	if key == (inheritedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// inheritedBy returns what the work of ctx was handed down; nil: it is no delegation's.
func inheritedBy(ctx context.Context) *inherited {
	c, _ := ctx.Value(inheritedKey{}).(*inherited)
	return c
}

func (l *Loop) handDown(ctx context.Context, member string, by policy) context.Context {
	c := &inherited{Context: ctx, retry: by, tools: l.memberTools(member)} // tools of a team above are for its own members
	if above := inheritedBy(ctx); above != nil {
		c.model, c.rounds = above.model, above.rounds
	}
	if l.cfg.Model != nil {
		c.model = l.cfg.Model
	}
	c.rounds = leastOf(int(l.cfg.Limits.GetMaxRounds()), c.rounds)
	return c
}

// Lend implements agent.Lender: a member without a model takes the leader's, and its
// work is repeated as the team says.
func (l *Loop) Lend(ctx context.Context, member string) context.Context {
	by := policy{team: l.limits.retry}
	if m := l.member(member); m != nil {
		by.member = m.Retry
	}
	return l.handDown(ctx, member, by)
}

// model is the agent's own, else the one it inherits; nil is none.
func (l *Loop) model(ctx context.Context) agent.Model {
	if l.cfg.Model != nil {
		return l.cfg.Model
	}
	if c := inheritedBy(ctx); c != nil {
		return c.model
	}
	return nil
}

// leastOf is the smallest of the numbers of rounds that are set; 0: none is.
func leastOf(rounds ...int) int {
	least := 0
	for _, n := range rounds {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// roundsOf are the most rounds that limits above allow; 0: none is set.
func roundsOf(ctx context.Context) int {
	if c := inheritedBy(ctx); c != nil {
		return c.rounds
	}
	return 0
}

// memberTools are the tools that somebody has by working in the team; nil is none.
func (l *Loop) memberTools(id string) agent.ToolSet {
	if l.cfg.MemberTools == nil {
		return nil
	}
	return l.cfg.MemberTools(id)
}
