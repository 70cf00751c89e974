package drive

import (
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// closeOpen ends the steps that the agent has left open, because it no longer exists or did not end
// them, so that every step that has begun has exactly one end, with what its attempts have cost. It starts
// with the deepest steps.
// err is how the run ends, nil if it succeeds.
func (d *drive) closeOpen(ctx context.Context, err error) error {
	for _, began := range slices.Backward(d.open()) {
		end := &teamv1.Ended{
			Outcome: teamv1.Outcome_OUTCOME_CANCELED, // the run has its answer without this step
			Spent:   spending.SpentOnOpen(d.rec.events, began.GetScope()),
		}
		if err != nil {
			end.Outcome, end.Error = outcomeOf(err), agent.AsError(err).Proto()
		}
		ev := &teamv1.Event{Scope: began.GetScope(), Agent: began.GetAgent(), Kind: &teamv1.Event_Ended{Ended: end}}
		d.addReceipt(ev)
		if err := d.rec.append(ctx, ev); broke(err) {
			return err
		}
	}
	return nil
}

// open returns the first start of each step that has not ended, in order.
func (d *drive) open() []*teamv1.Event {
	var open []*teamv1.Event
	for _, ev := range d.rec.events {
		switch {
		case ev.GetScope() == "":
		case ev.GetStarted().GetAttempt() == 1 && !slices.ContainsFunc(open, func(o *teamv1.Event) bool { return o.GetScope() == ev.GetScope() }):
			open = append(open, ev)
		case ev.GetEnded() != nil:
			open = slices.DeleteFunc(open, func(o *teamv1.Event) bool { return o.GetScope() == ev.GetScope() })
		}
	}
	return open
}
