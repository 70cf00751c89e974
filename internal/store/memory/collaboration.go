package memory

import (
	"context"
	"slices"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Collaborations returns the collaborations of an agent that have not ended, of all owners; see agent.KeyOf.
func (s *Store) Collaborations(_ context.Context, key string) ([]a2a.Key, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var keys []a2a.Key
	for _, r := range s.busy[key] {
		keys = append(keys, a2a.Key{Owner: r.owner, ID: r.root})
	}
	return keys, nil
}

// room returns a2a.ErrBusy or a2a.ErrAccountBusy if a task is a collaboration that may not begin. The
// caller must hold mu.
func (s *Store) room(n a2a.New) error {
	if n.Collaborations == 0 {
		return nil
	}
	account, all, now := a2a.AccountOf(n.Owner), 0, s.clock()
	for key, list := range s.busy {
		running := 0
		for _, r := range list {
			if a2a.AccountOf(r.owner) == account && (r.driven.Load() || s.due.has(r, now)) {
				running++
			}
		}
		if key == store.AgentKey(n.Accepted) && running >= n.Collaborations {
			return a2a.ErrBusy
		}
		all += running
	}
	if n.AccountCollaborations > 0 && all >= n.AccountCollaborations {
		return a2a.ErrAccountBusy
	}
	return nil
}

// free allows the agent of a collaboration that has ended to begin another one. The caller must
// hold r.mu, so that the end is not visible earlier.
func (s *Store) free(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.busy[r.key()], func(other *run) bool { return other == r })
	if s.busy[r.key()] = left; len(left) == 0 {
		delete(s.busy, r.key())
	}
}
