package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/failpoint"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Limits of a group: the number of changes, and their size in bytes.
const (
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

const (
	// largeChange is the size in bytes from which a change is written alone, after the small ones that are queued.
	largeChange = 128 << 10
	// gentle is how many times longer than a large change took the next one waits, while other accounts write
	// small ones.
	gentle = 2
	// lately is for how long after its last change an account counts as one that writes.
	lately = time.Second
)

// writer collects queued changes into groups, each of which is written in a transaction of its own.
// A single small change is written at once, and the next group forms while one is being written. Large changes
// are written one by one when no small one is queued, and leave time for those of other accounts.
type writer struct {
	ctx context.Context // context of the store
	// write writes ops. It calls done of all ops except left, which were not written because of
	// err.
	write   func(ctx context.Context, ops []*op) (left []*op, err error)
	metrics *metrics.Store

	large   []*op                // that are taken and not written; used by drain only
	resumes time.Time            // before which no large change is written while others write; used by drain only
	small   map[string]time.Time // when accounts have written their last small change; used by drain only

	mu     sync.Mutex
	queue  []source      // guarded by mu
	added  chan struct{} // closed by the next add; nil while drain does not wait for it; guarded by mu
	busy   bool          // drain is running; guarded by mu
	closed bool          // no further changes are accepted; guarded by mu
	work   sync.WaitGroup
}

// errClosed is the error of changes after Close.
var errClosed = fmt.Errorf("the store is closed: %w", a2a.ErrStorage)

// add queues a change. The error is errClosed.
func (w *writer) add(s source) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	w.queue = append(w.queue, s)
	if w.added != nil {
		close(w.added)
		w.added = nil
	}
	if !w.busy {
		w.busy = true
		w.work.Go(w.drain)
	}
	return nil
}

// drain writes until the queue is empty.
func (w *writer) drain() {
	for {
		sources, more := w.next()
		switch {
		case len(sources) > 0:
			w.commitSmall(sources)
		case !more:
			return
		case !w.pause():
			w.commitLarge()
		}
	}
}

// next removes the changes of the next group from the queue. more reports whether anything is left to do.
func (w *writer) next() (group []source, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), maxGroup)
	if n == 0 && len(w.large) == 0 {
		w.busy = false
		w.queue = nil
		return nil, false
	}
	group = w.queue[:n:n]
	w.queue = w.queue[n:]
	return group, true
}

// commitSmall writes the small changes of a group, and keeps the large ones.
func (w *writer) commitSmall(sources []source) {
	ops := make([]*op, 0, len(sources))
	size, now := 0, time.Now()
	for i, s := range sources {
		o := s.take()
		switch {
		case o == nil:
		case o.size >= largeChange || o.heavy:
			w.large = append(w.large, o)
		default:
			ops = append(ops, o)
			size += o.size
			if o.account != "" {
				w.small[o.account] = now
			}
		}
		if size >= maxGroupBytes {
			w.back(sources[i+1:])
			break
		}
	}
	if len(ops) > 0 {
		w.commit(ops)
	}
}

// commitLarge writes the first large change.
func (w *writer) commitLarge() {
	began := time.Now()
	o := w.large[0]
	w.large[0] = nil
	w.large = w.large[1:]
	w.commit([]*op{o})
	w.resumes = time.Now().Add(gentle * time.Since(began))
}

// pause waits until the next large change may be written or another change is queued, and reports whether it has waited.
func (w *writer) pause() bool {
	wait := time.Until(w.resumes)
	if wait <= 0 || !w.others(w.large[0].account) {
		return false
	}
	w.mu.Lock()
	if len(w.queue) > 0 {
		w.mu.Unlock()
		return true
	}
	w.added = make(chan struct{})
	added := w.added
	w.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-added:
	case <-timer.C:
	}
	return true
}

// others reports whether another account has lately written small changes. It forgets those that have not.
func (w *writer) others(account string) bool {
	maps.DeleteFunc(w.small, func(_ string, at time.Time) bool { return time.Since(at) > lately })
	_, own := w.small[account]
	return len(w.small) > 1 || len(w.small) == 1 && !own
}

// back puts changes back at the head of the queue.
func (w *writer) back(sources []source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(append([]source{}, sources...), w.queue...)
}

// commit writes a group. Changes that were not written are tried one by one, so that one that
// cannot be written does not prevent the others.
func (w *writer) commit(ops []*op) {
	failpoint.Hit("store.before_commit")
	w.metrics.Group(w.ctx, len(ops))
	done := w.metrics.Time(w.ctx, "group")
	left, err := w.write(w.ctx, ops)
	done()
	failpoint.Hit("store.after_commit")
	for _, o := range left {
		o.again = true
		alone := err
		if len(left) > 1 {
			_, alone = w.write(w.ctx, []*op{o})
		}
		if alone != nil {
			_ = o.done(w.ctx, nil, alone) // the caller gets the error from done
		}
	}
}

// close rejects further changes, and returns when all queued ones are written.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.work.Wait()
}
