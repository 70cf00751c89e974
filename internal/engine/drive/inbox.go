package drive

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// takeInputs records the inputs in the inbox and expires questions, at a time when no agent runs.
// It reports whether any of them is for the agent.
func (d *drive) takeInputs(ctx context.Context) (bool, error) {
	rows, err := d.rec.claim.Journal.Inbound(ctx)
	if err != nil {
		return false, d.rec.journalError(err)
	}
	took := false
	for _, in := range rows {
		ev := d.rec.inboundEvent(in, d.rec.hasWaited())
		if ev == nil {
			continue
		}
		d.inbox.markSeen(in.GetN())
		if err := d.rec.append(ctx, ev); err != nil {
			return took, err
		}
		took = took || ev.GetReceived() == nil || !d.rec.isParked()
	}
	expired, err := d.expire(ctx)
	return took || expired, err
}

// expires returns when a question expires. A time at or before the Unix epoch means never.
func expires(q *journal.Question) time.Time { return q.Event.GetAsked().GetExpires().AsTime() }

// expire records the expiry of questions whose time has passed, and reports whether there were any.
func (d *drive) expire(ctx context.Context) (bool, error) {
	now := d.rec.run.Now()
	expired := false
	for _, q := range d.rec.questions() {
		if expires(q).Unix() <= 0 || expires(q).After(now) || !d.rec.isOpen(q.ID()) { // or it has expired together with another question of its scope
			continue
		}
		expired = true
		ev := d.rec.event(q.Scope(), &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitQuestion}}})
		if err := d.rec.append(ctx, ev); err != nil {
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
		rows, err := d.rec.claim.Journal.Inbound(ctx)
		var again <-chan time.Time
		switch {
		case err == nil:
		case errors.Is(err, agent.ErrFenced):
			_ = d.rec.journalError(err) // the drive stops; its next append meets the same error
			return
		case ctx.Err() == nil:
			d.log.Warn("cannot read the inbox of a run", zap.Error(err))
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
		case <-d.rec.claim.Journal.Wake():
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
	if d.inbox.wasSeen(in.GetN()) {
		return false
	}
	if in.GetCommanded() == nil {
		taken := d.rec.run.Deliver(in)
		if taken {
			d.inbox.markSeen(in.GetN())
		}
		return taken
	}
	d.inbox.markSeen(in.GetN())
	d.command(ctx, d.rec.inboundEvent(in, nil))
	return true
}

// handCancels applies the cancels in the inbox, even if earlier inputs have not been delivered yet.
func (d *drive) handCancels(ctx context.Context) {
	rows, _ := d.rec.claim.Journal.Inbound(ctx) // watch meets and reports the same error
	for _, in := range rows {
		if c := in.GetCommanded(); c != nil && journal.Cancels(c) {
			d.hand(ctx, in)
		}
	}
}

// inbox is what a drive has read of the inbox of its run.
type inbox struct {
	mu   sync.Mutex
	seen map[int64]bool // rows that were recorded or delivered; guarded by mu
}

// forget forgets what was delivered: what was not recorded is still in the inbox.
func (b *inbox) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = nil
}

// wasSeen reports whether an inbox row was recorded or delivered by this drive.
func (b *inbox) wasSeen(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[n]
}

// markSeen notes that an inbox row was recorded or delivered.
func (b *inbox) markSeen(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[int64]bool{}
	}
	b.seen[n] = true
}
