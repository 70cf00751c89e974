package drive

import (
	"context"
	"errors"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// markCanceled keeps where the first cancel of a scope stands.
func (d *drive) markCanceled(ev *teamv1.Event) {
	d.run.Fence(ev.GetScope())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancelsFrom(ev.GetScope(), ev.GetSeq())
}

// cancelsFrom is markCanceled; the caller holds mu.
func (d *drive) cancelsFrom(scope string, seq int64) {
	if d.canceledAt == nil {
		d.canceledAt = map[string]int64{}
	}
	if d.canceledAt[scope] == 0 {
		d.canceledAt[scope] = seq
	}
}

// cancelAt is where the cancel of a scope stands; 0 is that there is none.
func (d *drive) cancelAt(scope string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.canceledAt[scope]
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
