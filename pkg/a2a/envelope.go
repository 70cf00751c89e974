package a2a

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// envelope is the budget of a run whose caller limits it (C-07), less what is on
// record as spent: what was reserved when a process died is free again.
func (d *drive) envelope() *agent.Budget {
	limit := agent.LimitOf(d.accepted.GetLimits())
	if limit == agent.NoLimit() {
		return nil
	}
	return agent.NewBudget("", limit, agent.BookedOn(d.recorded))
}

// left is what an agent is told that works for the root itself and may be on
// another server. All there is: nobody works beside it.
func (d *drive) left() *teamv1.Limits {
	if d.budget == nil {
		return nil
	}
	return agent.LimitsOf(d.budget.Left())
}
