package team

import (
	"context"

	"github.com/agentteams/team-server/pkg/agent"
)

// inherited is the context of a delegation, with what the team passes on to the member.
type inherited struct {
	context.Context
	retry  policy        // retry policy of the leaves below the delegation
	model  agent.Model   // model of members that have none; nil if there is none
	rounds int           // smallest limits.max_rounds of the teams above; 0 if none sets it
	tools  agent.ToolSet // tool set that the team provides to the member; nil if there is none
}

type inheritedKey struct{}

// Value implements context.Context.
func (c *inherited) Value(key any) any {
	if key == (inheritedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// inheritedBy returns the inherited values of ctx; nil if ctx does not belong to a delegation.
func inheritedBy(ctx context.Context) *inherited {
	c, _ := ctx.Value(inheritedKey{}).(*inherited)
	return c
}

// handDown returns the context of a delegation to a member.
func (l *Loop) handDown(ctx context.Context, member string, by policy) context.Context {
	c := &inherited{Context: ctx, retry: by, tools: l.memberTools(member)} // tools of a team above are only for its own members
	if above := inheritedBy(ctx); above != nil {
		c.model, c.rounds = above.model, above.rounds
	}
	if l.cfg.Model != nil {
		c.model = l.cfg.Model
	}
	c.rounds = minRounds(int(l.cfg.Limits.GetMaxRounds()), c.rounds)
	return c
}

// Lend implements agent.Lender: a member without a model uses the leader's, and its work is retried
// under the team's policy.
func (l *Loop) Lend(ctx context.Context, member string) context.Context {
	by := policy{team: l.limits.retry}
	if m := l.member(member); m != nil {
		by.member = m.Retry
	}
	return l.handDown(ctx, member, by)
}

// model returns the agent's own model, or the inherited one; nil if there is neither.
func (l *Loop) model(ctx context.Context) agent.Model {
	if l.cfg.Model != nil {
		return l.cfg.Model
	}
	if c := inheritedBy(ctx); c != nil {
		return c.model
	}
	return nil
}

// minRounds returns the smallest positive number; 0 if there is none.
func minRounds(rounds ...int) int {
	least := 0
	for _, n := range rounds {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// inheritedRounds returns the smallest limits.max_rounds of the teams above; 0 if none sets it.
func inheritedRounds(ctx context.Context) int {
	if c := inheritedBy(ctx); c != nil {
		return c.rounds
	}
	return 0
}

// memberTools returns the tool set that the team provides to a member or, by the team's own id, to
// the leader; nil if there is none.
func (l *Loop) memberTools(id string) agent.ToolSet {
	if l.cfg.MemberTools == nil {
		return nil
	}
	return l.cfg.MemberTools(id)
}
