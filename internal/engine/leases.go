package engine

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// Leases hands out due runs, each to one replica at a time. The stores implement it. It is safe for
// concurrent use.
type Leases interface {
	// Now returns the time that due times are compared with.
	Now() time.Time
	// Lease returns how long a replica keeps its runs after its last heartbeat; 0 means that leases
	// do not expire and no other replica can claim the runs.
	Lease() time.Duration
	// Beat records a heartbeat of a replica, which renews its lease.
	Beat(ctx context.Context, replica string) error
	// Claim claims due runs, as many as room has free slots for, each under a new epoch that fences
	// earlier owners. Accounts share the slots as room says; of the runs of an account, those that have
	// been due longest come first. Claim sets room.Waiting if due runs were left because of that; the
	// replica then claims again when a slot becomes free. next is when to call Claim again unless Wake is called
	// earlier: the earliest known due time, and for a store that is shared with other processes no
	// later than its polling interval. The zero time means not before Wake is called.
	Claim(ctx context.Context, replica string, room *Room) (claims []runs.Claim, next time.Time, err error)
	// AnnounceDue tells the other processes that share the store that runs may be due. It does not block.
	AnnounceDue()
	// WatchDue returns a channel that receives a value when another process has announced that. A lost announcement
	// delays a claim until the polling interval has passed. stop must be called.
	WatchDue() (wake <-chan struct{}, stop func())
	// Park releases a claimed run after its drive has returned without an error. A run that is not
	// done is due at once if its inbox holds an unread input. Park decides that under the same lock
	// as the arrival of an input, so that none is missed, and returns what it has decided. It returns
	// agent.ErrFenced if the claim has been lost.
	Park(ctx context.Context, c runs.Claim, p runs.Park) (Next, error)
	// Release releases a claimed run whose drive was stopped or failed. The run is due at the given
	// time, or at once if that is zero; an input makes it due earlier. It returns agent.ErrFenced
	// if the claim has been lost.
	Release(ctx context.Context, c runs.Claim, at time.Time) (Next, error)
	// Suspend releases a claimed run, which is not due again until an input arrives for it. Until
	// then, readers of its task see the reason.
	Suspend(ctx context.Context, c runs.Claim, reason string) error
	// Ready returns nil, or why the store accepts no writes at present.
	Ready() error
}
