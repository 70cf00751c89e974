package drive

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// envelope returns the budget of the run: the caller's limits minus what is recorded as spent. What
// was reserved by a process that died is available again. It returns nil if neither the caller nor
// the account has set limits.
func (d *drive) envelope() *spending.Budget {
	limit := agent.LimitOf(d.accepted.GetLimits())
	caused := len(d.accepted.GetBudgets()) > 0 && d.purse != nil
	switch {
	case caused: // its part, and what it draws beyond that
		limit = d.purse.Limit()
	case d.purse != nil:
		limit = limit.Min(d.purse.Limit())
	}
	if limit == agent.NoLimit() && d.account == nil {
		return nil
	}
	b := spending.NewBudget("", limit, spending.BookedOn(d.recorded)).Holding(spending.HeldOn(d.recorded))
	if caused {
		b.From(d.purse)
	}
	if d.account != nil {
		b.Under(d.account)
	}
	return b
}

// left returns the limits that are sent to the agent that works for the root, which may be on
// another server. They include all of the remaining budget, because no other agent works beside it.
// For a collaboration they also include its other bounds, which are those of the team. It returns
// nil if there are no limits.
func (d *drive) left() *teamv1.Limits {
	var left *teamv1.Limits
	switch {
	case d.hold != nil:
		left = d.hold.Envelope()
	case d.budget != nil && len(d.accepted.GetBudgets()) > 0: // more is drawn only for what runs here
		left = spending.LimitsOf(d.budget.Drawn())
	case d.budget != nil:
		left = spending.LimitsOf(d.budget.Left())
	}
	bounds := d.accepted.GetLimits()
	if d.accepted.GetCollaboration() == nil || bounds == nil {
		return left
	}
	all := proto.CloneOf(bounds)
	proto.Merge(all, left) // the remaining amounts replace the original ones
	return all
}
