package memory

import (
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// spareDefinition is how long a definition is kept that no run is tied to: who
// puts one creates a run within that time.
const spareDefinition = time.Hour

// definition is what runs are tied to.
type definition struct {
	body []byte
	put  time.Time // last
	runs int       // that are tied to it
}

// PutDefinition keeps the content of a definition under its name, as long as runs
// are tied to it and for an hour after it was last put. What is known is not changed.
func (s *Store) PutDefinition(_ context.Context, revision string, body []byte) error {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.definitions {
		if d.runs == 0 && now.Sub(d.put) >= spareDefinition {
			delete(s.definitions, name)
		}
	}
	d := s.definitions[revision]
	if d == nil {
		d = &definition{body: slices.Clone(body)}
		s.definitions[revision] = d
	}
	d.put = now
	return nil
}

// Definition returns the content of a definition. a2a.ErrNotFound.
func (s *Store) Definition(_ context.Context, revision string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d := s.definitions[revision]
	if d == nil {
		return nil, a2a.ErrNotFound
	}
	return slices.Clone(d.body), nil
}

// tie counts a new run for the definition that it is tied to. The caller holds mu.
func (s *Store) tie(r *run, acc *teamv1.Accepted) {
	if r.tied = s.definitions[acc.GetPins().GetRevisions()[acc.GetAgent()]]; r.tied != nil {
		r.tied.runs++
	}
}
