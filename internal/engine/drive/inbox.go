package drive

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// takeInputs records the inputs in the inbox and expires questions, at a time when no agent runs.
// It reports whether any of them is for the agent.
func (d *drive) takeInputs(ctx context.Context) (bool, error) {
	rows, err := d.claim.Journal.Inbound(ctx)
	if err != nil {
		return false, d.journalError(err)
	}
	took := false
	for _, in := range rows {
		ev := d.inboundEvent(in, d.hasWaited())
		if ev == nil {
			continue
		}
		d.markSeen(in.GetN())
		if err := d.append(ctx, ev); err != nil {
			return took, err
		}
		took = took || ev.GetReceived() == nil || !d.isParked()
	}
	expired, err := d.expire(ctx)
	return took || expired, err
}

// inboundEvent returns the event that records an inbox row, nil for a row of unknown kind. waited
// is how long the run had been parked when it was read, nil if it was not parked.
func (d *drive) inboundEvent(in *teamv1.Inbound, waited *durationpb.Duration) *teamv1.Event {
	ev := d.event(in.GetScope(), &teamv1.Event{})
	switch k := in.GetKind().(type) {
	case *teamv1.Inbound_Received:
		k.Received.Inbound = in.GetN()
		ev.Kind = &teamv1.Event_Received{Received: k.Received}
	case *teamv1.Inbound_Answered:
		k.Answered.Inbound = in.GetN()
		if !d.isOpen(k.Answered.GetQuestion()) { // it was answered or expired meanwhile
			ev.Kind = &teamv1.Event_Received{Received: &teamv1.Received{Message: k.Answered.GetMessage(), TooLate: true, Inbound: in.GetN()}}
			return ev
		}
		k.Answered.Waited = waited
		ev.Kind = &teamv1.Event_Answered{Answered: k.Answered}
	case *teamv1.Inbound_Commanded:
		k.Commanded.Inbound = in.GetN()
		if c := k.Commanded.GetCommand(); c == teamv1.Commanded_COMMAND_CANCEL || c == teamv1.Commanded_COMMAND_RESUME {
			k.Commanded.Waited = waited
		}
		ev.Kind = &teamv1.Event_Commanded{Commanded: k.Commanded}
	default:
		return nil
	}
	return ev
}

// hasWaited returns how long the run has been parked, nil if it is not parked.
func (d *drive) hasWaited() *durationpb.Duration {
	since := d.parkedSince()
	if since.IsZero() {
		return nil
	}
	return durationpb.New(d.run.Now().Sub(since))
}

// expires returns when a question expires. A time at or before the Unix epoch means never.
func expires(q *journal.Question) time.Time { return q.Event.GetAsked().GetExpires().AsTime() }

// expire records the expiry of questions whose time has passed, and reports whether there were any.
func (d *drive) expire(ctx context.Context) (bool, error) {
	now := d.run.Now()
	expired := false
	for _, q := range d.questions() {
		if expires(q).Unix() <= 0 || expires(q).After(now) || !d.isOpen(q.ID()) { // or it has expired together with another question of its scope
			continue
		}
		expired = true
		ev := d.event(q.Scope(), &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitQuestion}}})
		if err := d.append(ctx, ev); err != nil {
			return expired, err
		}
	}
	return expired, nil
}

// readAgain is how long watch waits after it could not read the inbox.
const readAgain = time.Second

// watch delivers inputs that arrive while the agent runs, until ctx ends. If another replica owns
// the run by now, it stops the drive.
func (d *drive) watch(ctx context.Context) {
	for {
		rows, err := d.claim.Journal.Inbound(ctx)
		var again <-chan time.Time
		switch {
		case err == nil:
		case errors.Is(err, agent.ErrFenced):
			_ = d.journalError(err) // the drive stops; its next append meets the same error
			return
		case ctx.Err() == nil:
			d.Log.Warn("cannot read the inbox of a run", zap.Error(err))
			again = time.After(readAgain)
		}
		handed := false
		for _, in := range rows {
			handed = d.hand(ctx, in) || handed
		}
		d.handHalts(ctx)
		if handed { // another input may have arrived without a signal
			continue
		}
		select {
		case <-d.claim.Journal.Wake():
		case <-d.halting.wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// hand delivers one input and reports whether it was taken. A command is applied at once. Other
// inputs go to the running team that they are for; without one they stay in the inbox until the
// agent returns.
func (d *drive) hand(ctx context.Context, in *teamv1.Inbound) bool {
	if d.wasSeen(in.GetN()) {
		return false
	}
	if in.GetCommanded() == nil {
		taken := d.run.Deliver(in)
		if taken {
			d.markSeen(in.GetN())
		}
		return taken
	}
	d.markSeen(in.GetN())
	d.command(ctx, d.inboundEvent(in, nil))
	return true
}

// handCancels applies the cancels in the inbox, even if earlier inputs have not been delivered yet.
func (d *drive) handCancels(ctx context.Context) {
	rows, _ := d.claim.Journal.Inbound(ctx) // watch meets and reports the same error
	for _, in := range rows {
		if c := in.GetCommanded(); c != nil && journal.Cancels(c) {
			d.hand(ctx, in)
		}
	}
}

// wasSeen reports whether an inbox row was recorded or delivered by this drive.
func (d *drive) wasSeen(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[n]
}

// markSeen notes that an inbox row was recorded or delivered.
func (d *drive) markSeen(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[int64]bool{}
	}
	d.seen[n] = true
}
