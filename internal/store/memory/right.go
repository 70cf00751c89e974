package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/pkg/a2a"
)

// rights are the rights of owners. The zero value has none.
type rights struct {
	mu     sync.Mutex
	owners map[string][]auth.Right // guarded by mu
	swept  time.Time               // when old ones were last deleted; guarded by mu
}

// PutRights implements auth.Store. It also deletes rights that ended long ago.
func (s *Store) PutRights(ctx context.Context, list []auth.Right) error {
	s.rights.put(list)
	return s.sweepRights(ctx, s.clock())
}

func (s *rights) put(list []auth.Right) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil {
		s.owners = map[string][]auth.Right{}
	}
	for _, r := range list {
		of := s.owners[r.Owner]
		i := slices.IndexFunc(of, func(old auth.Right) bool { return old.Source == r.Source })
		switch {
		case i < 0:
			s.owners[r.Owner] = append(of, r)
		case r.Until.After(of[i].Until):
			of[i] = r
		}
	}
}

// sweepRights deletes rights that ended long ago, of owners without unfinished tasks, if that was not done for a while.
func (s *Store) sweepRights(ctx context.Context, now time.Time) error {
	old := func(r auth.Right) bool { return r.Until.Before(now.Add(-auth.RightsKept)) }
	for _, owner := range s.rights.toSweep(now, old) {
		if busy, err := s.busyOwner(ctx, owner); err != nil || busy {
			continue
		}
		s.rights.mu.Lock()
		if of := slices.DeleteFunc(s.rights.owners[owner], old); len(of) > 0 {
			s.rights.owners[owner] = of
		} else {
			delete(s.rights.owners, owner)
		}
		s.rights.mu.Unlock()
	}
	return nil
}

// toSweep returns the owners with old rights, none if they were returned a short time ago.
func (s *rights) toSweep(now time.Time, old func(auth.Right) bool) (owners []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) < sweepEvery {
		return nil
	}
	s.swept = now
	for owner, of := range s.owners {
		if slices.ContainsFunc(of, old) {
			owners = append(owners, owner)
		}
	}
	return owners
}

// busyOwner reports whether an owner has unfinished tasks.
func (s *Store) busyOwner(ctx context.Context, owner string) (bool, error) {
	open, err := s.Runs(ctx, owner, a2a.RunFilter{Limit: 1})
	return len(open) > 0, err
}

// Rights implements auth.Store.
func (s *Store) Rights(_ context.Context, owner string) ([]auth.Right, error) {
	s.rights.mu.Lock()
	defer s.rights.mu.Unlock()
	return slices.Clone(s.rights.owners[owner]), nil
}

// EndedRights implements auth.Store.
func (s *Store) EndedRights(ctx context.Context, now time.Time, accepted []auth.Source) (map[string]time.Time, error) {
	ended := s.rights.ended(now, accepted)
	for owner := range ended {
		busy, err := s.busyOwner(ctx, owner)
		if err != nil {
			return nil, err
		}
		if !busy {
			delete(ended, owner)
		}
	}
	return ended, nil
}

// ended returns the owners none of whose rights lasts.
func (s *rights) ended(now time.Time, accepted []auth.Source) map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := map[string]time.Time{}
	for owner, of := range s.owners {
		if slices.ContainsFunc(of, func(r auth.Right) bool { return r.Lasts(now, accepted) }) {
			continue
		}
		ended[owner] = slices.MaxFunc(of, func(a, b auth.Right) int { return a.Until.Compare(b.Until) }).Until
	}
	return ended
}
