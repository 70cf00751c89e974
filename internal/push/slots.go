package push

import (
	"context"
	"slices"
	"sync"
)

// slots limits the concurrent calls. A caller that waits for a busy host does not delay
// others. Hosts whose last call failed, or that were never called, share half of the slots,
// so that the other half remains for hosts that work. slots is safe for concurrent use.
type slots struct {
	limits Limits

	mu      sync.Mutex
	taken   map[string]int      // number by host, by account, in total under "", and for doubtful hosts; guarded by mu
	works   map[string]struct{} // hosts whose last call succeeded; guarded by mu
	waiting []*slot             // in the order of their arrival; guarded by mu
}

// maxWorking is the maximum size of slots.works.
const maxWorking = 10_000

// slot is the right to make a call, or the wait for it.
type slot struct {
	host, account string
	doubtful      bool          // the host is not known to work
	granted       chan struct{} // closed when the slot is granted
}

func newSlots(l Limits) slots {
	return slots{limits: l, taken: map[string]int{}, works: map[string]struct{}{}}
}

// names returns the names under which a slot is counted, with their limits.
func (s *slots) names(w *slot) map[string]int {
	names := map[string]int{"": s.limits.Total, w.host: s.limits.PerHost, w.account: s.limits.PerAccount}
	if w.doubtful {
		names["doubtful"] = max(s.limits.Total/2, 1)
		names["doubtful "+w.account] = max(s.limits.PerAccount/2, 1)
	}
	return names
}

// take takes a slot if one is free. The caller holds mu.
func (s *slots) take(w *slot) bool {
	_, works := s.works[w.host]
	w.doubtful = !works
	names := s.names(w)
	for name, limit := range names {
		if s.taken[name] >= limit {
			return false
		}
	}
	for name := range names {
		s.taken[name]++
	}
	return true
}

// acquire waits for a slot until ctx ends. The slot must be released.
func (s *slots) acquire(ctx context.Context, host, account string) (*slot, error) {
	w := &slot{host: host, account: account, granted: make(chan struct{})}
	s.mu.Lock()
	if s.take(w) { // those who wait are limited by other hosts or accounts
		s.mu.Unlock()
		return w, nil
	}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.granted:
		return w, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return nil, context.Cause(ctx)
	}
	return w, nil // granted at the same moment
}

// release releases a slot and grants it to those who wait and are within their limits. ok
// reports whether the call succeeded.
func (s *slots) release(w *slot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.names(w) {
		if s.taken[name]--; s.taken[name] == 0 {
			delete(s.taken, name)
		}
	}
	if !ok {
		delete(s.works, w.host)
	} else {
		if len(s.works) >= maxWorking {
			clear(s.works)
		}
		s.works[w.host] = struct{}{}
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w *slot) bool {
		if !s.take(w) {
			return false
		}
		close(w.granted)
		return true
	})
}
