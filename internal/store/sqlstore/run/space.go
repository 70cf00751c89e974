package run

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// maxQueued and maxQueuedLarge limit the bytes of events that wait to be written: of those that are part of small
// changes, and of large ones. Beyond that, appends of the same kind block.
const (
	maxQueued      = 8 << 20
	maxQueuedLarge = 24 << 20
)

// space limits the bytes of events that wait to be written. It is safe for concurrent use.
type space struct{ small, large *semaphore.Weighted }

func newSpace() *space {
	return &space{semaphore.NewWeighted(maxQueued), semaphore.NewWeighted(maxQueuedLarge)}
}

// room is how many bytes of a space events occupy.
type room struct{ small, large int64 }

// add returns the sum of two rooms.
func (r room) add(o room) room { return room{r.small + o.small, r.large + o.large} }

// acquire waits until there is room for events of a size. large says that they are written alone. The error is the cause
// of ctx.
func (s *space) acquire(ctx context.Context, size int64, large bool) (r room, err error) {
	if large {
		r.large = min(size, maxQueuedLarge) // never more than there is
		err = s.large.Acquire(ctx, r.large)
	} else {
		r.small = size
		err = s.small.Acquire(ctx, r.small)
	}
	if err != nil {
		return room{}, context.Cause(ctx)
	}
	return r, nil
}

// release returns what acquire has returned.
func (s *space) release(r room) {
	s.small.Release(r.small)
	s.large.Release(r.large)
}
