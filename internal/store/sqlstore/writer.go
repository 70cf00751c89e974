package sqlstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentteams/team-server/internal/failpoint"
	"github.com/agentteams/team-server/pkg/a2a"
)

// A group is at most this much.
const (
	maxGroup      = 256
	maxGroupBytes = 4 << 20
)

// writer puts the changes that wait into groups, each a transaction of its own.
// It has no timer: a lone change is written at once, and a group forms while the
// one before it is being written.
type writer struct {
	ctx context.Context // of the store
	// write applies ops, those that only write in one transaction. left are those that
	// were not written, for err; it calls done of all others.
	write func(ctx context.Context, ops []*op) (left []*op, err error)

	mu     sync.Mutex
	queue  []source // guarded by mu
	busy   bool     // somebody writes; guarded by mu
	closed bool     // nothing more is taken; guarded by mu
	work   sync.WaitGroup
}

// errClosed refuses what comes after Close.
var errClosed = fmt.Errorf("the store is closed: %w", a2a.ErrStorage)

// add queues a change; errClosed.
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

// drain writes until nothing waits.
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

// next takes the changes of the next group; nil when there are none.
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

// back puts changes at the head of the queue again.
func (w *writer) back(sources []source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(append([]source{}, sources...), w.queue...)
}

// commit writes a group. If that fails each change is tried alone, so that one
// that cannot be written does not take others with it.
func (w *writer) commit(ops []*op) {
	failpoint.Hit("store.before_commit")
	left, err := w.write(w.ctx, ops)
	failpoint.Hit("store.after_commit")
	for _, o := range left {
		o.again = true
		alone := err
		if len(left) > 1 {
			_, alone = w.write(w.ctx, []*op{o})
		}
		if alone != nil {
			_ = o.done(w.ctx, nil, alone) // its caller is told
		}
	}
}

// close takes nothing more and returns when all that is queued has been written.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.work.Wait()
}
