package memory

import (
	"context"
	"slices"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Collaborations returns those of an agent that have not ended, of all owners.
func (s *Store) Collaborations(_ context.Context, agent string) ([]a2a.Key, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.busy[agent]), nil
}

// free lets the agent of a collaboration that has ended have another one. The caller
// holds r.mu, so that nobody sees the end before.
func (s *Store) free(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.busy[r.agent], func(k a2a.Key) bool { return k.ID == r.root })
	if s.busy[r.agent] = left; len(left) == 0 {
		delete(s.busy, r.agent)
	}
}
