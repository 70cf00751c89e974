package memory

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"math"
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

// Claim claims due runs, as many as room has free slots for.
func (s *Store) Claim(_ context.Context, _ string, room *a2a.Room) (claims []a2a.Claim, next time.Time, err error) {
	now := s.clock()
	for {
		left := func(owner string) int { // there are no other replicas
			if limit := room.MaxRunningEach(a2a.AccountOf(owner)); limit > 0 {
				return max(limit-room.HeldBy(owner), 0)
			}
			return math.MaxInt
		}
		most := s.due.accounts(now, left)
		for account := range most {
			if limit := room.MaxRunning(account); limit > 0 {
				most[account] = min(most[account], max(limit-room.Held(account), 0)) // there are no other replicas
			}
		}
		parts := room.Divide(most)
		if len(parts) == 0 {
			room.Waiting = len(most) > 0
			return claims, s.due.next(now, room.Waiting), nil
		}
		for account, n := range parts {
			for range n {
				r := s.due.pop(account, now, left)
				if r == nil {
					break
				}
				if c, ok := s.claim(r); ok {
					room.Take(c.Owner)
					claims = append(claims, c)
				}
			}
		}
	}
}

// claim begins a new epoch of a run, unless the run is claimed or has ended.
func (s *Store) claim(r *run) (a2a.Claim, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claimed || r.ended {
		s.due.remove(r)
		return a2a.Claim{}, false
	}
	defer s.due.remove(r) // an input may have queued it again after it was popped
	r.claimed, r.parked = true, ""
	r.driven.Store(true)
	r.epoch++
	r.wake = make(chan struct{}, 1)
	j := &journal{store: s, run: r, epoch: r.epoch, wake: r.wake}
	return a2a.Claim{Root: r.root, Owner: r.owner, Epoch: r.epoch, Journal: j, Bytes: r.bytes}, true
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
	j.run.driven.Store(false)
	return nil
}

// dueQueue holds the runs to be claimed, of each owner ordered by due time. No other lock may be
// acquired while its lock is held.
type dueQueue struct {
	mu   sync.Mutex
	runs map[string]map[string]*dueHeap // by account and owner, without empty ones; guarded by mu
}

// all returns the heaps of all owners. The caller holds mu while it iterates.
func (q *dueQueue) all() iter.Seq2[string, *dueHeap] {
	return func(yield func(string, *dueHeap) bool) {
		for _, owners := range q.runs {
			for owner, h := range owners {
				if !yield(owner, h) {
					return
				}
			}
		}
	}
}

// set sets when a run is due.
func (q *dueQueue) set(r *run, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.dueAt = at
	account := a2a.AccountOf(r.owner)
	h := q.runs[account][r.owner]
	if r.place > 0 {
		heap.Fix(h, r.place-1)
		return
	}
	if h == nil {
		if q.runs == nil {
			q.runs = map[string]map[string]*dueHeap{}
		}
		if q.runs[account] == nil {
			q.runs[account] = map[string]*dueHeap{}
		}
		h = &dueHeap{}
		q.runs[account][r.owner] = h
	}
	heap.Push(h, r)
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
		q.take(r)
	}
}

// take removes a queued run. The caller holds mu.
func (q *dueQueue) take(r *run) {
	account := a2a.AccountOf(r.owner)
	h := q.runs[account][r.owner]
	heap.Remove(h, r.place-1)
	if h.Len() > 0 {
		return
	}
	if delete(q.runs[account], r.owner); len(q.runs[account]) == 0 {
		delete(q.runs, account)
	}
}

// pop removes and returns the run of an account that has been due longest, nil if none is due. left
// returns how many runs of an owner may be claimed.
func (q *dueQueue) pop(account string, now time.Time, left func(owner string) int) *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	var first *run
	for owner, h := range q.runs[account] {
		if r := (*h)[0]; !r.dueAt.After(now) && (first == nil || r.dueAt.Before(first.dueAt)) && left(owner) > 0 {
			first = r
		}
	}
	if first != nil {
		q.take(first)
	}
	return first
}

// accounts returns the accounts that have due runs, each with the number of its runs that are queued and
// may be claimed. left returns how many of an owner may be.
func (q *dueQueue) accounts(now time.Time, left func(owner string) int) map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := map[string]int{}
	for owner, h := range q.all() {
		if !(*h)[0].dueAt.After(now) {
			n[a2a.AccountOf(owner)] += min(h.Len(), left(owner))
		}
	}
	return n
}

// waiting returns how many runs of an account, or of an owner, are due.
func (q *dueQueue) waiting(name string, now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	account, n := a2a.AccountOf(name), 0
	for owner, h := range q.runs[account] {
		if name != account && name != owner {
			continue
		}
		for _, r := range *h {
			if !r.dueAt.After(now) {
				n++
			}
		}
	}
	return n
}

// next returns the time at which the first run is due, with later only those of accounts that have none
// due now. It is the zero time without such runs.
func (q *dueQueue) next(now time.Time, later bool) (first time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.all() {
		if at := (*h)[0].dueAt; (!later || at.After(now)) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
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
