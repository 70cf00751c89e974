package memory

import (
	"context"
	"slices"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Collaborations returns the collaborations of an agent that have not ended, of all owners.
func (s *Store) Collaborations(_ context.Context, agent string) ([]a2a.Key, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.busy[agent]), nil
}

// free allows the agent of a collaboration that has ended to begin another one. The caller must
// hold r.mu, so that the end is not visible earlier.
func (s *Store) free(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.busy[r.agent], func(k a2a.Key) bool { return k.ID == r.root })
	if s.busy[r.agent] = left; len(left) == 0 {
		delete(s.busy, r.agent)
	}
}
