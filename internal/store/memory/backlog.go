package memory

import (
	"context"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Backlog counts what waits.
func (s *Store) Backlog(context.Context) (a2a.Backlog, error) {
	now := s.clock()
	b := a2a.Backlog{Open: s.unfinished(), Due: s.due.backlog(now), Push: s.pushes.backlog(now), Claimed: map[string]int64{}}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.runs {
		if r.driven.Load() {
			b.Claimed[r.owner]++
		}
	}
	return b, nil
}

// unfinished counts the runs that have not ended. It does not lock them while mu is held.
func (s *Store) unfinished() map[a2av1.TaskState]a2a.Waiting {
	s.mu.RLock()
	runs := make([]*run, 0, len(s.runs))
	for _, r := range s.runs {
		if len(runs) < a2a.MaxBacklog && (r.entry == nil || !taskstate.Final(r.entry.state)) {
			runs = append(runs, r)
		}
	}
	s.mu.RUnlock()
	open := map[a2av1.TaskState]a2a.Waiting{}
	for _, r := range runs {
		r.mu.Lock()
		if !r.ended {
			w := open[r.fold.State()]
			w.Add(r.fold.StatusAt())
			open[r.fold.State()] = w
		}
		r.mu.Unlock()
	}
	return open
}

// backlog counts the runs that are due, by owner.
func (q *dueQueue) backlog(now time.Time) map[string]a2a.Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := map[string]a2a.Waiting{}
	for owner, h := range q.all() {
		var w a2a.Waiting
		for _, r := range *h {
			if w.Count < a2a.MaxBacklog && !r.dueAt.After(now) {
				w.Add(r.dueAt)
			}
		}
		if w.Count > 0 {
			due[owner] = w
		}
	}
	return due
}

// backlog counts the configurations that are due, and those whose notification is tried again.
func (s *pushes) backlog(now time.Time) (w a2a.Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.due {
		switch {
		case w.Count == a2a.MaxBacklog:
			return w
		case p.Tries > 0:
			w.Add(p.Since)
		case !p.due.After(now):
			w.Add(p.due)
		}
	}
	return w
}
