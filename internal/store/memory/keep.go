package memory

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// sweepEvery is the shortest time between two sweeps that tasks cause.
const sweepEvery = time.Minute

// sweepSoon calls Sweep if the last call is long enough ago. It is called when a task is created: without
// new tasks nothing needs the memory. A task is created also if what is old cannot be deleted.
func (s *Store) sweepSoon(ctx context.Context, now time.Time) {
	if s.retained == (store.Keep{}) {
		return
	}
	last := s.swept.Load()
	if now.Sub(time.UnixMilli(last)) < sweepEvery || !s.swept.CompareAndSwap(last, now.UnixMilli()) {
		return
	}
	if err := s.Sweep(ctx); err != nil {
		s.log.Warn("what is old cannot be deleted", zap.Error(err))
	}
}

// Sweep deletes conversations, events and ended items of boards, and audit records that are older than
// Config.Keep says. A Store calls it by itself.
func (s *Store) Sweep(context.Context) error {
	now := s.clock()
	if keep := s.retained.Conversations; keep > 0 {
		s.conversations.dropUnused(now.Add(-keep), s.inUse())
	}
	if keep := s.retained.Boards; keep > 0 {
		s.boards.trim(now.Add(-keep))
	}
	if keep := s.retained.Audit; keep > 0 {
		return s.trimAudit(now, keep)
	}
	return nil
}

// inUse returns the conversations of tasks that have not ended.
func (s *Store) inUse() map[a2a.Thread]bool {
	s.mu.RLock()
	runs := make([]*run, 0, len(s.runs))
	for _, r := range s.runs {
		runs = append(runs, r)
	}
	s.mu.RUnlock()
	used := map[a2a.Thread]bool{}
	for _, r := range runs {
		r.mu.Lock()
		if !r.ended {
			used[a2a.Thread{Owner: r.owner, ContextID: r.context}] = true
		}
		r.mu.Unlock()
	}
	return used
}

// dropUnused removes the conversations to which nothing was added since a time, except those in use.
func (c *conversations) dropUnused(before time.Time, used map[a2a.Thread]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, v := range c.threads {
		if v.added.Before(before) && !used[t] {
			c.drop(v)
		}
	}
}

// trim removes from all boards what is older than a time: events, and items that have ended and on which none
// depends that has not.
func (b *boards) trim(before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.by {
		n := 0
		for n < len(s.events) && s.events[n].event.GetTime().AsTime().Before(before) {
			n++
		}
		s.events = slices.Clone(s.events[n:])
		needed := map[string]bool{}
		for _, it := range s.items {
			for _, id := range it.GetDependsOn() {
				needed[id] = needed[id] || !board.Ended(it.GetState())
			}
		}
		for id, it := range s.items {
			if board.Ended(it.GetState()) && !needed[id] && it.GetChanged().AsTime().Before(before) {
				delete(s.items, id)
			}
		}
	}
}
