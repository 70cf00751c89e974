package drive

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// envelope is the budget of a run whose caller limits it, less what is on
// record as spent: what was reserved when a process died is free again.
func (d *drive) envelope() *agent.Budget {
	limit := agent.LimitOf(d.accepted.GetLimits())
	if limit == agent.NoLimit() {
		return nil
	}
	return agent.NewBudget("", limit, agent.BookedOn(d.recorded))
}

// left is what an agent is told that works for the root itself and may be on
// another server. All there is: nobody works beside it. The bounds of a
// collaboration are its team's, too.
func (d *drive) left() *teamv1.Limits {
	var left *teamv1.Limits
	if d.budget != nil {
		left = agent.LimitsOf(d.budget.Left())
	}
	bounds := d.accepted.GetLimits()
	if d.accepted.GetCollaboration() == nil || bounds == nil {
		return left
	}
	all := proto.CloneOf(bounds)
	proto.Merge(all, left) // no more than there was
	return all
}
