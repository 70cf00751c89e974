package faulty

import (
	"context"

	"github.com/agentteams/team-server/pkg/a2a"
)

// PutDefinition implements store.Definitions.
func (s *Store) PutDefinition(ctx context.Context, revision string, body []byte) error {
	return s.do(ctx, PutDefinition, func() error { return s.Store.PutDefinition(ctx, revision, body) })
}

// Definition implements store.Definitions.
func (s *Store) Definition(ctx context.Context, revision string) ([]byte, error) {
	if after, err := s.meet(ctx, Definition); err != nil || after != nil {
		return nil, first(err, after)
	}
	return s.Store.Definition(ctx, revision)
}

// Position implements a2a.Conversations.
func (s *Store) Position(ctx context.Context, t a2a.Thread) (int64, error) {
	if after, err := s.meet(ctx, Position); err != nil || after != nil {
		return 0, first(err, after)
	}
	return s.Store.Position(ctx, t)
}

// Recall implements a2a.Conversations.
func (s *Store) Recall(ctx context.Context, t a2a.Thread, path string, upTo int64) (a2a.Recollection, error) {
	if after, err := s.meet(ctx, Recall); err != nil || after != nil {
		return a2a.Recollection{}, first(err, after)
	}
	return s.Store.Recall(ctx, t, path, upTo)
}

// Remember implements a2a.Conversations.
func (s *Store) Remember(ctx context.Context, t a2a.Thread, e a2a.Exchange) error {
	return s.do(ctx, Remember, func() error { return s.Store.Remember(ctx, t, e) })
}

// Runs implements a2a.Overview.
func (s *Store) Runs(ctx context.Context, owner string, f a2a.RunFilter) ([]a2a.RunMark, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, first(err, after)
	}
	return s.Store.Runs(ctx, owner, f)
}

// Find implements a2a.Overview.
func (s *Store) Find(ctx context.Context, q a2a.TaskQuery) (a2a.FoundTasks, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return a2a.FoundTasks{}, first(err, after)
	}
	return s.Store.Find(ctx, q)
}

// Collaborating implements a2a.Overview.
func (s *Store) Collaborating(ctx context.Context, owner string, f a2a.RootFilter) ([]string, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, first(err, after)
	}
	return s.Store.Collaborating(ctx, owner, f)
}

// Questions implements a2a.Approvals.
func (s *Store) Questions(ctx context.Context, f a2a.QuestionFilter) ([]a2a.RoleQuestion, bool, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, false, first(err, after)
	}
	return s.Store.Questions(ctx, f)
}

// Root implements a2a.Approvals.
func (s *Store) Root(ctx context.Context, account, id string) (a2a.Key, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return a2a.Key{}, first(err, after)
	}
	return s.Store.Root(ctx, account, id)
}
