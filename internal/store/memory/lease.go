package memory

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Now returns the store's time.
func (s *Store) Now() time.Time { return s.clock() }

// Lease returns 0: leases do not expire, because the store exits with its only replica.
func (s *Store) Lease() time.Duration { return 0 }

// Beat does nothing, because leases do not expire.
func (s *Store) Beat(context.Context, string) error { return nil }

// Claim claims up to limit due runs.
func (s *Store) Claim(_ context.Context, _ string, limit int) (claims []a2a.Claim, next time.Time, err error) {
	now := s.clock()
	for len(claims) < limit {
		r := s.due.pop(now)
		if r == nil {
			break
		}
		if c, ok := s.claim(r); ok {
			claims = append(claims, c)
		}
	}
	return claims, s.due.next(), nil
}

// claim begins a new epoch of a run, unless the run is claimed or has ended.
func (s *Store) claim(r *run) (a2a.Claim, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.due.remove(r) // an input may have queued it again after it was popped
	if r.claimed || r.ended {
		return a2a.Claim{}, false
	}
	r.claimed, r.parked = true, ""
	r.epoch++
	r.wake = make(chan struct{}, 1)
	j := &journal{store: s, run: r, epoch: r.epoch, wake: r.wake}
	return a2a.Claim{Root: r.root, Owner: r.owner, Epoch: r.epoch, Journal: j}, true
}

// Park implements engine.Leases.
func (s *Store) Park(_ context.Context, c a2a.Claim, p a2a.Park) error {
	return s.giveUp(c, func(r *run) error {
		if p.Done && !r.ended {
			return fmt.Errorf("park %s as done: its end is not recorded", c.Root)
		}
		until := p.Until
		if r.halted = p.Halts != 0; r.halted {
			until = s.halts.waitsForHalt(p.Halts, s.clock(), until)
		}
		switch {
		case r.ended:
		case len(r.inbox) > 0:
			s.due.set(r, s.clock())
		case !until.IsZero():
			s.due.set(r, until)
		}
		return nil
	})
}

// Release implements engine.Leases.
func (s *Store) Release(_ context.Context, c a2a.Claim, at time.Time) error {
	if at.IsZero() {
		at = s.clock()
	}
	return s.giveUp(c, func(r *run) error {
		if !r.ended {
			s.due.set(r, at)
		}
		return nil
	})
}

// Suspend releases a run that must not be retried until an input arrives for it. Until then,
// readers of the task see reason.
func (s *Store) Suspend(_ context.Context, c a2a.Claim, reason string) error {
	return s.giveUp(c, func(r *run) error {
		r.parked = reason
		return nil
	})
}

// giveUp ends a claim, unless settle returns an error.
func (s *Store) giveUp(c a2a.Claim, settle func(*run) error) error {
	j, ok := c.Journal.(*journal)
	if !ok || j.store != s {
		return fmt.Errorf("release %s: no claim of this store", c.Root)
	}
	j.run.mu.Lock()
	defer j.run.mu.Unlock()
	if err := j.held(); err != nil {
		return err
	}
	if err := settle(j.run); err != nil {
		return err
	}
	j.run.claimed = false
	return nil
}

// dueQueue holds the runs to be claimed, ordered by due time. No other lock may be acquired while
// its lock is held.
type dueQueue struct {
	mu   sync.Mutex
	runs dueHeap // guarded by mu
}

// set sets when a run is due.
func (q *dueQueue) set(r *run, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.dueAt = at
	if r.place > 0 {
		heap.Fix(&q.runs, r.place-1)
		return
	}
	heap.Push(&q.runs, r)
}

// has reports whether a run is queued and due.
func (q *dueQueue) has(r *run, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.place > 0 && !r.dueAt.After(now)
}

// remove removes a run from the queue, if it is queued.
func (q *dueQueue) remove(r *run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.place > 0 {
		heap.Remove(&q.runs, r.place-1)
	}
}

// pop removes and returns the run that has been due longest, nil if none is due.
func (q *dueQueue) pop(now time.Time) *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) == 0 || q.runs[0].dueAt.After(now) {
		return nil
	}
	return heap.Pop(&q.runs).(*run)
}

// next returns the time at which the first run is due. It is the zero time if the queue is empty.
func (q *dueQueue) next() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) == 0 {
		return time.Time{}
	}
	return q.runs[0].dueAt
}

// dueHeap implements heap.Interface. It maintains run.place.
type dueHeap []*run

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueAt.Before(h[j].dueAt) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push appends a *run.
func (h *dueHeap) Push(x any) {
	r := x.(*run)
	*h = append(*h, r)
	r.place = len(*h)
}

// Pop removes and returns the last run.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.place = 0
	return r
}
