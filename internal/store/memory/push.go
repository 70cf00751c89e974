package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// push is a stored configuration.
type push struct {
	a2a.Push
	root  string
	epoch int64
	due   time.Time // zero while it is idle
	dead  []a2a.DeadPush
}

// pushes holds the configurations of all tasks. No other lock may be acquired while its lock is
// held.
type pushes struct {
	wake chan struct{}

	mu     sync.Mutex
	epoch  int64              // the latest epoch of any configuration; guarded by mu
	byRoot map[string][]*push // sorted by task and id; guarded by mu
	live   map[string]int     // number of configurations that have not ended, by owner; guarded by mu
	due    map[*push]struct{} // configurations with a due time; guarded by mu
}

// newPushes returns an empty set.
func newPushes() pushes {
	return pushes{wake: make(chan struct{}, 1), byRoot: map[string][]*push{}, live: map[string]int{}, due: map[*push]struct{}{}}
}

// put stores a configuration of a run.
func (s *pushes) put(p a2a.Push, root string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer store.Poke(s.wake)
	conf := proto.CloneOf(p.Config)
	if have := s.find(root, p.Task.ID, conf.GetId()); have != nil {
		have.Config, have.Version = conf, p.Version
		have.PushState = a2a.PushState{Seen: have.Seen, Part: have.Part, Ended: have.Ended}
		have.epoch = s.next()
		s.set(have, now)
		return nil
	}
	n := 0
	for _, have := range s.byRoot[root] {
		if have.Task.ID == p.Task.ID {
			n++
		}
	}
	switch {
	case n >= a2a.MaxPushTask:
		return a2a.ErrPushTask
	case s.live[p.Task.Owner] >= a2a.MaxPushOwner:
		return a2a.ErrPushOwner
	}
	made := &push{Push: a2a.Push{Task: p.Task, Config: conf, Version: p.Version, PushState: a2a.PushState{Seen: p.Seen}}, root: root}
	s.byRoot[root] = append(s.byRoot[root], made)
	slices.SortFunc(s.byRoot[root], func(a, b *push) int {
		return cmp.Or(cmp.Compare(a.Task.ID, b.Task.ID), cmp.Compare(a.Config.GetId(), b.Config.GetId()))
	})
	s.live[p.Task.Owner]++
	s.set(made, now)
	return nil
}

// next returns an epoch that no claim has had, not even one of a deleted configuration. The caller
// must hold mu.
func (s *pushes) next() int64 {
	s.epoch++
	return s.epoch
}

// find returns a configuration, nil if it does not exist. The caller must hold mu.
func (s *pushes) find(root, task, id string) *push {
	for _, p := range s.byRoot[root] {
		if p.Task.ID == task && p.Config.GetId() == id {
			return p
		}
	}
	return nil
}

// set sets when a configuration is due; the zero time makes it idle. The caller must hold mu.
func (s *pushes) set(p *push, at time.Time) {
	p.due = at
	if at.IsZero() {
		delete(s.due, p)
		return
	}
	s.due[p] = struct{}{}
}

// wakeIdle makes the idle configurations of a run due, because the run has new events.
func (s *pushes) wakeIdle(root string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byRoot[root] {
		if p.due.IsZero() && !p.Ended {
			s.set(p, now)
			store.Poke(s.wake)
		}
	}
}

// drop removes the configurations of a run.
func (s *pushes) drop(root string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byRoot[root] {
		s.forget(p)
	}
	delete(s.byRoot, root)
}

// forget removes a configuration from due and live. The caller must hold mu.
func (s *pushes) forget(p *push) {
	delete(s.due, p)
	if !p.Ended {
		s.over(p)
	}
}

// over reduces the number of the owner's configurations that have not ended. The caller must hold
// mu.
func (s *pushes) over(p *push) {
	if s.live[p.Task.Owner]--; s.live[p.Task.Owner] == 0 {
		delete(s.live, p.Task.Owner)
	}
}

// PutPush stores a configuration, and replaces the one with the same id.
func (s *Store) PutPush(_ context.Context, p a2a.Push) error {
	r, _, err := s.find(p.Task)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.keep(r, p)
}

// keep stores a configuration of a run. The caller must hold r.mu.
func (s *Store) keep(r *run, p a2a.Push) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.runs[r.root] != r { // the run was dropped in the meantime
		return a2a.ErrNotFound
	}
	r.pushed = true
	return s.pushes.put(p, r.root, s.clock())
}

// Push returns a configuration of a task. The error is a2a.ErrNotFound if it does not exist.
func (s *Store) Push(_ context.Context, k a2a.Key, id string) (a2a.Push, error) {
	r, _, err := s.find(k)
	if err != nil {
		return a2a.Push{}, err
	}
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	if p := s.pushes.find(r.root, k.ID, id); p != nil {
		return p.Push, nil
	}
	return a2a.Push{}, a2a.ErrNotFound
}

// ListPushes returns at most limit configurations of a task, ordered by id, with ids greater than
// after.
func (s *Store) ListPushes(_ context.Context, k a2a.Key, after string, limit int) ([]a2a.Push, error) {
	r, _, err := s.find(k)
	if err != nil {
		return nil, err
	}
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	var list []a2a.Push
	for _, p := range s.pushes.byRoot[r.root] {
		if p.Task.ID == k.ID && p.Config.GetId() > after && len(list) < limit {
			list = append(list, p.Push)
		}
	}
	return list, nil
}

// DeletePush deletes a configuration and its undeliverable notifications.
func (s *Store) DeletePush(_ context.Context, k a2a.Key, id string) error {
	r, _, err := s.find(k)
	if err != nil {
		return err
	}
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	if p := s.pushes.find(r.root, k.ID, id); p != nil {
		s.pushes.forget(p)
		list := slices.DeleteFunc(s.pushes.byRoot[r.root], func(have *push) bool { return have == p })
		if s.pushes.byRoot[r.root] = list; len(list) == 0 {
			delete(s.pushes.byRoot, r.root)
		}
	}
	return nil
}

// DeadPushes returns the newest undeliverable notifications of a task, at most limit, and their
// total number.
func (s *Store) DeadPushes(_ context.Context, k a2a.Key, limit int) (list []a2a.DeadPush, total int, err error) {
	r, _, err := s.find(k)
	if err != nil {
		return nil, 0, err
	}
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	for _, p := range s.pushes.byRoot[r.root] {
		if p.Task.ID == k.ID {
			list = append(list, p.dead...)
		}
	}
	slices.SortStableFunc(list, func(a, b a2a.DeadPush) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Seq, a.Seq), cmp.Compare(b.Part, a.Part), cmp.Compare(a.Config, b.Config))
	})
	return list[:min(len(list), limit)], len(list), nil
}

// PushWake returns a channel that receives when a configuration may have become due.
func (s *Store) PushWake() <-chan struct{} { return s.pushes.wake }

// ClaimPushes claims at most limit due configurations for the duration lease.
func (s *Store) ClaimPushes(_ context.Context, limit int, lease time.Duration) (claims []a2a.PushClaim, next time.Time, err error) {
	now := s.clock()
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	var due []*push
	for p := range s.pushes.due {
		if !p.due.After(now) {
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b *push) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.Task.ID, b.Task.ID), cmp.Compare(a.Config.GetId(), b.Config.GetId()))
	})
	for _, p := range due[:min(len(due), limit)] {
		p.epoch = s.pushes.next()
		s.pushes.set(p, now.Add(lease))
		claims = append(claims, a2a.PushClaim{Push: p.Push, Epoch: p.epoch, Until: p.due})
	}
	for p := range s.pushes.due {
		if next.IsZero() || p.due.Before(next) {
			next = p.due
		}
	}
	return claims, next, nil
}

// claimed returns the configuration of a claim, nil if the claim is no longer valid. The caller
// must hold pushes.mu.
func (s *pushes) claimed(root string, c a2a.PushClaim) *push {
	if p := s.find(root, c.Task.ID, c.Config.GetId()); p != nil && p.epoch == c.Epoch {
		return p
	}
	return nil
}

// HoldsPush reports whether a claim is still valid.
func (s *Store) HoldsPush(_ context.Context, c a2a.PushClaim) (bool, error) {
	r, _, err := s.find(c.Task)
	if err != nil {
		return false, nil // the configuration was dropped with its task
	}
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	return s.pushes.claimed(r.root, c) != nil, nil
}

// SettlePush records the result of one delivery step of a claim. The error is a2a.ErrPushLost if
// the claim is no longer valid.
func (s *Store) SettlePush(_ context.Context, c a2a.PushClaim, step a2a.PushStep) error {
	lost := fmt.Errorf("push configuration %s of %s: %w", c.Config.GetId(), c.Task.ID, a2a.ErrPushLost)
	r, _, err := s.find(c.Task)
	if err != nil {
		return lost
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	p := s.pushes.claimed(r.root, c)
	if p == nil {
		return lost
	}
	if step.Ended && !p.Ended {
		s.pushes.over(p)
	}
	p.PushState = step.PushState
	if d := step.Dead; d != nil && !slices.ContainsFunc(p.dead, func(have a2a.DeadPush) bool { return have.Seq == d.Seq && have.Part == d.Part }) {
		p.dead = append(p.dead, *d)
	}
	switch at := step.At; {
	case step.Then != a2a.PushIdle:
		s.pushes.set(p, at)
	case r.record.len() > step.Seen && !step.Ended:
		s.pushes.set(p, s.clock())
		store.Poke(s.pushes.wake)
	default:
		s.pushes.set(p, time.Time{})
	}
	return nil
}
