package memory

import (
	"cmp"
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	fold "github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Questions implements a2a.Approvals.
func (s *Store) Questions(_ context.Context, f a2a.QuestionFilter) (list []a2a.RoleQuestion, more bool, err error) {
	s.mu.RLock()
	var runs []*run
	for r := range s.asking {
		if a2a.AccountOf(r.owner) == f.Account && r.owner != f.Except && r.root >= f.After &&
			(f.Root == "" || f.Root == r.root) && (f.Agent == "" || f.Agent == r.agent) {
			runs = append(runs, r)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(a.root, b.root) })
	for _, r := range runs {
		r.mu.Lock()
		open := r.asking.Open()
		r.mu.Unlock()
		for _, q := range open {
			ev := q.Event
			if r.root == f.After && ev.GetSeq() <= f.AfterSeq || !agent.Within(ev.GetScope(), f.Scope) || !asks(ev, f) {
				continue
			}
			if len(list) == f.Limit {
				return list, true, nil
			}
			list = append(list, a2a.RoleQuestion{Task: a2a.Key{Owner: r.owner, ID: r.root}, Agent: r.agent, Asked: ev})
		}
	}
	return list, false, nil
}

// Root implements a2a.Approvals.
func (s *Store) Root(_ context.Context, account, id string) (a2a.Key, error) {
	s.mu.RLock()
	r := s.runs[id]
	s.mu.RUnlock()
	if r == nil || a2a.AccountOf(r.owner) != account {
		return a2a.Key{}, a2a.ErrNotFound
	}
	return a2a.Key{Owner: r.owner, ID: id}, nil
}

// asks reports whether an event asks a question that one of the filter's roles may answer.
func asks(ev *teamv1.Event, f a2a.QuestionFilter) bool {
	return slices.ContainsFunc(store.RolesOf(ev), func(r string) bool { return f.EveryRole || slices.Contains(f.Roles, r) })
}

// reask updates whether a run has open questions for roles. The caller must hold r.mu.
func (s *Store) reask(r *run) {
	asking := slices.ContainsFunc(r.asking.Open(), func(q *fold.Question) bool { return len(store.RolesOf(q.Event)) > 0 })
	if asking == r.listedAsking {
		return
	}
	r.listedAsking = asking
	s.mu.Lock()
	defer s.mu.Unlock()
	if asking {
		s.asking[r] = struct{}{}
	} else {
		delete(s.asking, r)
	}
}
