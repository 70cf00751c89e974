package memory

import (
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// spareDefinition is how long a definition without runs is kept. A caller of PutDefinition begins a
// run within that time.
const spareDefinition = time.Hour

// definition is the definition to which runs are pinned.
type definition struct {
	body []byte
	put  time.Time // when PutDefinition was last called for it
	runs int       // number of runs pinned to it
}

// PutDefinition stores the content of a definition under its revision. It is kept as long as runs
// are pinned to it, and for an hour after the last call. The content of a known revision is not
// changed.
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

// Definition returns the content of a definition. The error is a2a.ErrNotFound.
func (s *Store) Definition(_ context.Context, revision string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d := s.definitions[revision]
	if d == nil {
		return nil, a2a.ErrNotFound
	}
	return slices.Clone(d.body), nil
}

// tie pins a new run to its definition, if that is known. The caller must hold mu.
func (s *Store) tie(r *run, acc *teamv1.Accepted) {
	if r.tied = s.definitions[acc.GetPins().GetRevisions()[acc.GetAgent()]]; r.tied != nil {
		r.tied.runs++
	}
}
