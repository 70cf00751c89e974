package memory

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Runs returns the progress of the owner's visible roots.
func (s *Store) Runs(_ context.Context, owner string, f a2a.RunFilter) ([]a2a.RunMark, error) {
	var marks []a2a.RunMark
	for _, e := range s.selected(owner, f) {
		e.run.mu.Lock()
		marks = append(marks, a2a.RunMark{
			Root: e.id, Agent: e.run.agent, Seq: e.run.record.len(), State: e.run.fold.State(), StatusAt: e.run.fold.StatusAt(),
		})
		e.run.mu.Unlock()
	}
	return marks, nil
}

// Collaborating returns the ids of the owner's roots that were begun with a brief.
func (s *Store) Collaborating(_ context.Context, owner string, f a2a.RootFilter) ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.owners[owner]
	if o == nil {
		return nil, nil
	}
	var ids []string
	visit := func(r *run) bool {
		if r.root != f.Before && (f.Agent == "" || f.Agent == r.agent) {
			ids = append(ids, r.root)
		}
		return f.Limit <= 0 || len(ids) < f.Limit
	}
	if f.Before == "" {
		o.briefed.Reverse(visit)
	} else {
		o.briefed.Descend(&run{root: f.Before}, visit)
	}
	return ids, nil
}

// selected returns the index entries that a filter selects. It does not lock their runs, because
// the lock of a run must not be acquired while mu is held.
func (s *Store) selected(owner string, f a2a.RunFilter) []*entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.owners[owner]
	if o == nil {
		return nil
	}
	var list []*entry
	o.listed.scan(a2a.Filter{Agent: f.Agent}, nil, func(e *entry) bool {
		if !taskstate.Final(e.state) || f.Ended && !time.Unix(0, e.at).Before(f.Since) {
			list = append(list, e)
		}
		return f.Limit == 0 || len(list) < f.Limit
	})
	return list
}

// WatchAll returns a channel that receives when a root of the owner may be new or have
// new events, or when a board of the owner's account has changed.
func (s *Store) WatchAll(owner string) (wake <-chan struct{}, stop func()) {
	return s.all.Watch(owner)
}
