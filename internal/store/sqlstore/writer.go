package sqlstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentteams/team-server/internal/failpoint"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Limits of a group: the number of changes, and their size in bytes.
const (
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

// writer collects queued changes into groups, each of which is written in a transaction of its own.
// It has no timer: a single change is written at once, and the next group forms while one is being
// written.
type writer struct {
	ctx context.Context // context of the store
	// write writes ops. It calls done of all ops except left, which were not written because of
	// err.
	write   func(ctx context.Context, ops []*op) (left []*op, err error)
	metrics *metrics.Store

	mu     sync.Mutex
	queue  []source // guarded by mu
	busy   bool     // drain is running; guarded by mu
	closed bool     // no further changes are accepted; guarded by mu
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
	if !w.busy {
		w.busy = true
		w.work.Go(w.drain)
	}
	return nil
}

// drain writes until the queue is empty.
func (w *writer) drain() {
	for {
		sources := w.next()
		if sources == nil {
			return
		}
		ops := make([]*op, 0, len(sources))
		size := 0
		for i, s := range sources {
			if o := s.take(); o != nil {
				ops = append(ops, o)
				size += o.size
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
}

// next removes the changes of the next group from the queue; nil if it is empty.
func (w *writer) next() []source {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), maxGroup)
	if n == 0 {
		w.busy = false
		w.queue = nil
		return nil
	}
	group := w.queue[:n:n]
	w.queue = w.queue[n:]
	return group
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
