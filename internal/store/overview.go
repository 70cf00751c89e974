package store

import (
	"context"
	"sync"
	"time"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Runs returns how far the owner's roots have come that callers can see.
func (s *Memory) Runs(_ context.Context, owner string, f a2a.RunFilter) ([]a2a.RunMark, error) {
	var marks []a2a.RunMark
	for _, e := range s.selected(owner, f) {
		e.run.mu.Lock()
		marks = append(marks, a2a.RunMark{
			Root: e.id, Agent: e.run.agent, Seq: int64(len(e.run.events)), State: e.run.fold.State(), StatusAt: e.run.fold.StatusAt(),
		})
		e.run.mu.Unlock()
	}
	return marks, nil
}

// selected returns the index entries of a filter. Their runs are not locked: that
// comes before mu, never after.
func (s *Memory) selected(owner string, f a2a.RunFilter) []*entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.owners[owner]
	if o == nil {
		return nil
	}
	var list []*entry
	o.listed.scan(a2a.Filter{Agent: f.Agent}, nil, func(e *entry) bool {
		if !a2a.Ended(e.state) || f.Ended && !time.Unix(0, e.at).Before(f.Since) {
			list = append(list, e)
		}
		return f.Limit == 0 || len(list) < f.Limit
	})
	return list
}

// WatchAll returns a channel that receives when any root may be new or have new events.
func (s *Memory) WatchAll() (wake <-chan struct{}, stop func()) { return s.all.Watch() }

// Bell wakes all who watch. The zero value has nobody. Safe for concurrent use.
type Bell struct {
	mu       sync.Mutex
	watchers map[chan struct{}]struct{} // guarded by mu
}

// Watch returns a channel that receives when the bell is rung, until stop is called.
func (b *Bell) Watch() (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == nil {
		b.watchers = map[chan struct{}]struct{}{}
	}
	b.watchers[c] = struct{}{}
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, c)
	}
}

// Ring wakes all who watch; it never blocks.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.watchers {
		Poke(c)
	}
}
