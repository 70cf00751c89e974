package db

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/failpoint"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/runs"
)

// Limits of a group: the number of changes, and their size in bytes.
const (
	maxGroup      = 256
	maxGroupBytes = 4 << 20
	// maxEarlyBytes is the size of the early statements of a change that are written together.
	maxEarlyBytes = 1 << 20
)

const (
	// After a large change, the next one waits pauseFactor times as long as that took, at most maxPause, if another
	// account has written small changes within activeFor.
	pauseFactor = 2
	maxPause    = time.Second
	activeFor   = time.Second
	// maxDelay is how long a large change waits for small ones, beyond that pause.
	maxDelay = time.Second
)

// writer collects queued changes into groups, each of which is written in a transaction of its own.
// A single small change is written at once, and the next group forms while one is being written. Large changes
// are written one by one when no small one is queued, and leave time for those of other accounts.
type writer struct {
	ctx context.Context // context of the store
	// write writes ops. It calls done of all ops except left, which were not written because of
	// err.
	write   func(ctx context.Context, ops []*Op) (left []*Op, err error)
	metrics *metrics.Store

	large   []Source     // large changes, in their order; used by drain only, like the fields up to writers
	resumes time.Time    // until then, large changes wait while other accounts are active
	due     time.Time    // from then on, the first large change is written before small ones
	writers [2]lastWrite // of small changes: of the account that has written last, and of the one before it

	mu     sync.Mutex
	queue  []Source      // guarded by mu
	added  chan struct{} // closed by the next add, and by close; nil until drain waits for it; guarded by mu
	busy   bool          // drain is running; guarded by mu
	closed bool          // no further changes are accepted; guarded by mu
	work   sync.WaitGroup
}

// lastWrite is when an account has written its last small change.
type lastWrite struct {
	account string
	at      time.Time
}

// errClosed is the error of changes after Close.
var errClosed = fmt.Errorf("the store is closed: %w", runs.ErrStorage)

// add queues a change. The error is errClosed.
func (w *writer) add(s Source) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	w.queue = append(w.queue, s)
	w.signal()
	if !w.busy {
		w.busy = true
		w.work.Go(w.drain)
	}
	return nil
}

// signal ends a pause of drain. The caller must hold mu.
func (w *writer) signal() {
	if w.added != nil {
		close(w.added)
		w.added = nil
	}
}

// drain writes until the queue is empty.
func (w *writer) drain() {
	for {
		sources, more := w.next()
		switch {
		case !more: // another drain may be running already
			return
		case len(w.large) > 0 && time.Now().After(w.due):
			w.back(sources)
			w.commitLarge()
		case len(sources) > 0:
			w.commitSmall(sources)
		case !w.pause():
			w.commitLarge()
		}
	}
}

// next removes the changes of the next group from the queue. more reports whether anything is left to do.
func (w *writer) next() (group []Source, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 && len(w.large) == 0 {
		w.busy = false
		w.queue = nil
		return nil, false
	}
	return w.group(), true
}

// queued removes the changes of the next group from the queue.
func (w *writer) queued() []Source {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.group()
}

// group implements next and queued. The caller must hold mu.
func (w *writer) group() []Source {
	n := min(len(w.queue), maxGroup)
	group := w.queue[:n:n]
	w.queue = w.queue[n:]
	return group
}

// commitSmall writes the small changes of a group, and keeps the large ones.
func (w *writer) commitSmall(sources []Source) {
	ops, accounts := make([]*Op, 0, len(sources)), make([]string, 0, len(sources))
	size := 0
	for i, s := range sources {
		if s.IsLarge() {
			w.keepLarge(s)
			continue
		}
		switch o := s.Take(); {
		case o == nil:
		case len(o.Early) > 0:
			w.keepLarge(taken{o, s.Of()})
		default:
			ops, accounts = append(ops, o), append(accounts, s.Of())
			size += o.Size
		}
		if size >= maxGroupBytes {
			w.back(sources[i+1:])
			break
		}
	}
	if len(ops) == 0 {
		return
	}
	w.commit(ops)
	now := time.Now()
	for _, account := range accounts {
		switch account {
		case "":
		case w.writers[0].account:
			w.writers[0].at = now
		default:
			w.writers = [2]lastWrite{{account, now}, w.writers[0]}
		}
	}
}

// keepLarge keeps a change that is written alone.
func (w *writer) keepLarge(s Source) {
	if len(w.large) == 0 {
		w.due = time.Now().Add(maxDelay)
	}
	w.large = append(w.large, s)
}

// taken is a change that turned out to be large when it was taken.
type taken struct {
	op      *Op
	account string
}

// Take implements Source.
func (t taken) Take() *Op { return t.op }

// IsLarge implements Source.
func (t taken) IsLarge() bool { return true }

// Of implements Source.
func (t taken) Of() string { return t.account }

// commitEarly writes what may be durable before the rest of a change, and small changes in between. If it cannot be
// written, the change has failed, and the result is false.
func (w *writer) commitEarly(o *Op) bool {
	var failed error
	for len(o.Early) > 0 && failed == nil {
		n, size := 1, o.Early[0].size()
		for ; n < len(o.Early) && size+o.Early[n].size() <= maxEarlyBytes; n++ {
			size += o.Early[n].size()
		}
		w.commit([]*Op{{Root: o.Root, Stmts: o.Early[:n], Size: size, Done: func(_ context.Context, _ Querier, err error) error {
			failed = err
			return err
		}}})
		o.Early, o.Size = o.Early[n:], o.Size-size
		w.commitSmall(w.queued())
	}
	if failed != nil {
		_ = o.Done(w.ctx, nil, failed) // the caller gets the error from done
	}
	return failed == nil
}

// commitLarge writes the first large change.
func (w *writer) commitLarge() {
	began := time.Now()
	s := w.large[0]
	w.large[0] = nil
	w.large = w.large[1:]
	if o := s.Take(); o != nil && w.commitEarly(o) {
		w.commit([]*Op{o})
	}
	now := time.Now()
	w.resumes = now.Add(min(pauseFactor*now.Sub(began), maxPause))
	w.due = w.resumes.Add(maxDelay)
}

// pause waits until the next large change may be written or another change is queued, and reports whether it has waited.
func (w *writer) pause() bool {
	wait := time.Until(w.resumes)
	if wait <= 0 || !w.othersWrite(w.large[0].Of()) {
		return false
	}
	w.mu.Lock()
	if w.closed || len(w.queue) > 0 {
		defer w.mu.Unlock()
		return !w.closed
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

// othersWrite reports whether an account other than this one has written a small change within activeFor.
func (w *writer) othersWrite(account string) bool {
	return slices.ContainsFunc(w.writers[:], func(l lastWrite) bool {
		return l.account != "" && l.account != account && time.Since(l.at) < activeFor
	})
}

// back puts changes back at the head of the queue.
func (w *writer) back(sources []Source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(append([]Source{}, sources...), w.queue...)
}

// commit writes a group. Changes that were not written are tried one by one, so that one that
// cannot be written does not prevent the others.
func (w *writer) commit(ops []*Op) {
	failpoint.Hit("store.before_commit")
	w.metrics.Group(w.ctx, len(ops))
	done := w.metrics.Time(w.ctx, "group")
	left, err := w.write(w.ctx, ops)
	done()
	failpoint.Hit("store.after_commit")
	for _, o := range left {
		o.Again = true
		alone := err
		if len(left) > 1 {
			_, alone = w.write(w.ctx, []*Op{o})
		}
		if alone != nil {
			_ = o.Done(w.ctx, nil, alone) // the caller gets the error from done
		}
	}
}

// close rejects further changes, and returns when all queued ones are written.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.signal()
	w.mu.Unlock()
	w.work.Wait()
}
