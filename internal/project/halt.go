package project

import (
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// Halted returns what became of the task, or of the step with its scope, after a halt has reached it:
// its state, the path of its agent, and what was reached below it. While it has not ended, the receipt
// lists the tasks on other servers that may still be running.
func (p *place) Halted() (state teamv1.HaltedState, path string, receipt *teamv1.Receipt) {
	n := p.view.Node(p.scope)
	if n == nil {
		return teamv1.HaltedState_HALTED_STATE_STOPPING, "", nil
	}
	switch {
	case n.State != journal.Ended && p.view.Paused:
		state = teamv1.HaltedState_HALTED_STATE_PAUSED
	case n.State != journal.Ended:
		state = teamv1.HaltedState_HALTED_STATE_STOPPING
	case stoppedByHalt(n):
		return teamv1.HaltedState_HALTED_STATE_CANCELED, n.Path, n.End.GetReceipt()
	default:
		return teamv1.HaltedState_HALTED_STATE_ENDED, n.Path, n.End.GetReceipt()
	}
	receipt = &teamv1.Receipt{}
	n.Walk(func(n *journal.Node) {
		if n.State != journal.Ended && n.Bound.GetTaskId() != "" {
			receipt.Entries = append(receipt.Entries, &teamv1.Receipt_Entry{
				Scope: n.Scope, Agent: n.Path, RemoteTaskId: n.Bound.GetTaskId(), LastAction: "began to work as a remote task", Unconfirmed: true,
			})
		}
	})
	return state, n.Path, receipt
}

// stoppedByHalt reports whether a node that a halt has reached has ended because of that, and not
// with a result of its own. The end of a call is not kept; it counts as stopped.
func stoppedByHalt(n *journal.Node) bool {
	switch {
	case n.Outcome == teamv1.Outcome_OUTCOME_CANCELED, n.End.GetError().GetReason() == agent.ReasonHalted:
		return true
	default:
		return n.Step != nil && !n.Delegated()
	}
}
