package drive

import (
	"cmp"
	"context"
	"errors"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// cancelAt is the sequence of the cancel of a scope, or of the stop that has become one of
// the root; 0 is that there is none.
func (d *drive) cancelAt(scope string) int64 {
	if scope == "" && d.stops > 0 {
		return d.stops
	}
	d.record.Lock()
	defer d.record.Unlock()
	return d.summary.CanceledAt(scope)
}

// stopAt is the sequence of the stop of the run; 0 is that there is none.
func (d *drive) stopAt() int64 {
	d.record.Lock()
	defer d.record.Unlock()
	return d.summary.StoppedAt
}

// cancelIfStopped makes a stop that has waited for what ran a cancel: nothing runs any more.
func (d *drive) cancelIfStopped() {
	at := d.stopAt()
	if at == 0 {
		return
	}
	d.run.Fence("")
	d.canceled = true
	if d.stops == 0 {
		d.stops = cmp.Or(d.cancelAt(""), at)
	}
}

// canceledBy is how a run ends that was canceled: err where it says what a peer
// made of that.
func (d *drive) canceledBy(err error) error {
	if !errors.Is(err, agent.ErrCanceled) {
		err = agent.ErrCanceled
	}
	if d.stopAt() == 0 {
		return err
	}
	e := *agent.AsError(err)
	e.Message = "stopped"
	return &e
}

// mayCall keeps an agent that has nothing on record from being called after the
// cancel. What a process that has died may have begun elsewhere is ended.
func (d *drive) mayCall(ctx context.Context, a agent.Agent) error {
	if slices.ContainsFunc(d.recorded, func(ev *teamv1.Event) bool { return ev.GetCommanded() == nil }) {
		return nil // it closes what it has open
	}
	err := d.run.Begin("")
	if r, ok := a.(agent.Reaper); ok && err != nil && d.resumed {
		return r.Reap(ctx, d.request())
	}
	return err
}

// addReceipt completes the end of a step that was canceled by its own task id.
func (d *drive) addReceipt(ev *teamv1.Event) {
	if e := ev.GetEnded(); e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED && d.cancelAt(ev.GetScope()) > 0 {
		e.Receipt = d.receipt(ev.GetScope(), e)
	}
}

// receipt lists what the cancel of a scope reached; end is the scope's.
func (d *drive) receipt(scope string, end *teamv1.Ended) *teamv1.Receipt {
	at := d.cancelAt(scope)
	if at == 0 {
		return end.GetReceipt()
	}
	return receiptOf(d.recorded, scope, at, end.GetReceipt())
}
