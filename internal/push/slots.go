package push

import (
	"context"
	"slices"
	"sync"
)

// slots are the calls that may be under way at the same time. Who waits for a
// busy host holds up nobody who does not. Hosts that did not take the last call, or
// that were never called, get half of the slots between them: the other half is
// left to those that work. Safe for concurrent use.
type slots struct {
	limits Limits

	mu      sync.Mutex
	taken   map[string]int      // by host, by account, in all under an empty name, and of those by hosts that are not known to work; guarded by mu
	works   map[string]struct{} // hosts; guarded by mu
	waiting []*slot             // the first come first; guarded by mu
}

// maxWorking bounds what is known of hosts.
const maxWorking = 10_000

// slot is a call that may be under way, or waits for it.
type slot struct {
	host, account string
	doubtful      bool
	granted       chan struct{} // closed when it may
}

func newSlots(l Limits) slots {
	return slots{limits: l, taken: map[string]int{}, works: map[string]struct{}{}}
}

// names are those under which a slot is counted, with the limits.
func (s *slots) names(w *slot) map[string]int {
	names := map[string]int{"": s.limits.Total, w.host: s.limits.PerHost, w.account: s.limits.PerAccount}
	if w.doubtful {
		names["doubtful"] = max(s.limits.Total/2, 1)
		names["doubtful "+w.account] = max(s.limits.PerAccount/2, 1)
	}
	return names
}

// take takes a slot if there is one. The caller holds mu.
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

// acquire waits for a slot until ctx ends. release must be called.
func (s *slots) acquire(ctx context.Context, host, account string) (*slot, error) {
	w := &slot{host: host, account: account, granted: make(chan struct{})}
	s.mu.Lock()
	if s.take(w) { // there is none for who waits
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
	return w, nil // granted at this moment
}

// release gives a slot back, to those who wait and whom it fits. well tells
// whether the host took the call.
func (s *slots) release(w *slot, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.names(w) {
		if s.taken[name]--; s.taken[name] == 0 {
			delete(s.taken, name)
		}
	}
	if !well {
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
