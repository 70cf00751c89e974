package engine

import (
	"context"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Leases hands out the runs that are due, each to one owner at a time. The
// stores implement it. Safe for concurrent use.
type Leases interface {
	// Now is the time that due times are compared with.
	Now() time.Time
	// Lease is how long a replica keeps its runs that is not heard of; 0 is for
	// ever: nobody else can take them.
	Lease() time.Duration
	// Beat says that a replica lives: its lease begins anew.
	Beat(ctx context.Context, replica string) error
	// Claim takes up to limit due runs, the longest due first, each under a new
	// epoch that fences earlier owners. next is when to ask again unless Wake
	// comes first: the earliest known due time, for a store shared with other
	// processes no later than its polling interval; zero is not before Wake.
	Claim(ctx context.Context, replica string, limit int) (claims []a2a.Claim, next time.Time, err error)
	// Park releases a claimed run as its drive left it. A run that is not done
	// is due at once when its inbox holds something unread, decided under the
	// lock that an input takes, so that none is missed. ErrFenced.
	Park(ctx context.Context, c a2a.Claim, p a2a.Park) error
	// Release releases a claimed run that has not come to a stop, due at a time;
	// the zero time is at once. An input makes it due earlier. ErrFenced.
	Release(ctx context.Context, c a2a.Claim, at time.Time) error
	// Suspend releases a claimed run, which is not due again until an input arrives for
	// it. Until then readers of its task see the reason.
	Suspend(ctx context.Context, c a2a.Claim, reason string) error
	// Ready returns nil, or why the store accepts no writes at present.
	Ready() error
}
