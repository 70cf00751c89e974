package team

import (
	"context"

	"github.com/agentteams/team-server/pkg/agent"
)

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
	m, _ := ctx.Value(modelKey{}).(agent.Model)
	return m
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
	n, _ := ctx.Value(roundsKey{}).(int)
	return n
}

// memberTools are the tools that somebody has by working in the team; nil is none.
func (l *Loop) memberTools(id string) agent.ToolSet {
	if l.cfg.MemberTools == nil {
		return nil
	}
	return l.cfg.MemberTools(id)
}
