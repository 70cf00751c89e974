package drive

import (
	"cmp"
	"context"
	"errors"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// cancelAt returns the sequence number of the event that canceled a scope: a cancel, or for the
// root also a stop that cancelIfStopped has applied. It returns 0 if the scope is not canceled.
func (d *drive) cancelAt(scope string) int64 {
	if scope == "" && d.stops > 0 {
		return d.stops
	}
	return of(d.rec, func(s *journal.Summary) int64 { return s.CanceledAt(scope) })
}

// cancelIfStopped turns a recorded stop into a cancel of the run. It is called when no work is
// running, which is what a stop waits for.
func (d *drive) cancelIfStopped() {
	at := d.rec.stopAt()
	if at == 0 {
		return
	}
	d.rec.run.Fence("")
	d.canceled = true
	if d.stops == 0 {
		d.stops = cmp.Or(d.cancelAt(""), at)
	}
}

// canceledBy returns the error with which a canceled run ends. It is err if that wraps
// agent.ErrCanceled, because it may carry the receipt of a peer, and agent.ErrCanceled otherwise.
// The message of a run that was stopped is "stopped", and a run that was halted has the reason HALTED.
func (d *drive) canceledBy(err error) error {
	if !errors.Is(err, agent.ErrCanceled) {
		err = agent.ErrCanceled
	}
	if by := d.rec.canceledByHalt(); by != nil {
		return inforce.EndedRun(by, err)
	}
	if d.rec.stopAt() == 0 {
		return err
	}
	e := *agent.AsError(err)
	e.Message = "stopped"
	return &e
}

// mayCall returns an error if the run was canceled before its agent has recorded anything, so that
// the agent is not called. If an earlier process may have begun the work at a peer, mayCall ends it
// there.
func (d *drive) mayCall(ctx context.Context, a agent.Agent) error {
	if slices.ContainsFunc(d.rec.events, func(ev *teamv1.Event) bool { return ev.GetCommanded() == nil }) {
		return nil // the agent is called, so that it closes its open steps
	}
	err := d.rec.run.Begin("")
	if r, ok := a.(agent.Reaper); ok && err != nil && d.resumed {
		return r.Reap(ctx, d.request())
	}
	return err
}

// addReceipt adds a receipt to the end of a step that was canceled by the id of its own task. It
// does nothing for other events.
func (d *drive) addReceipt(ev *teamv1.Event) {
	if e := ev.GetEnded(); e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED && d.cancelAt(ev.GetScope()) > 0 {
		e.Receipt = d.receipt(ev.GetScope(), e)
	}
}

// receipt returns what the cancel of a scope reached. end is the end of the scope; its own receipt
// is returned unchanged if no cancel of the scope is recorded.
func (d *drive) receipt(scope string, end *teamv1.Ended) *teamv1.Receipt {
	at := d.cancelAt(scope)
	if at == 0 {
		return end.GetReceipt()
	}
	return receiptOf(d.rec.events, scope, at, end.GetReceipt())
}
