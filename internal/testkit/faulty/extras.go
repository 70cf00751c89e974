package faulty

import (
	"context"

	"github.com/agentteams/team-server/internal/runs"
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

// Position implements runs.Conversations.
func (s *Store) Position(ctx context.Context, t runs.Thread) (int64, error) {
	if after, err := s.meet(ctx, Position); err != nil || after != nil {
		return 0, first(err, after)
	}
	return s.Store.Position(ctx, t)
}

// Recall implements runs.Conversations.
func (s *Store) Recall(ctx context.Context, t runs.Thread, path string, upTo int64) (runs.Recollection, error) {
	if after, err := s.meet(ctx, Recall); err != nil || after != nil {
		return runs.Recollection{}, first(err, after)
	}
	return s.Store.Recall(ctx, t, path, upTo)
}

// Remember implements runs.Conversations.
func (s *Store) Remember(ctx context.Context, t runs.Thread, e runs.Exchange) error {
	return s.do(ctx, Remember, func() error { return s.Store.Remember(ctx, t, e) })
}

// Runs implements runs.Overview.
func (s *Store) Runs(ctx context.Context, owner string, f runs.RunFilter) ([]runs.RunMark, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, first(err, after)
	}
	return s.Store.Runs(ctx, owner, f)
}

// Find implements runs.Overview.
func (s *Store) Find(ctx context.Context, q runs.TaskQuery) (runs.FoundTasks, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return runs.FoundTasks{}, first(err, after)
	}
	return s.Store.Find(ctx, q)
}

// Collaborating implements runs.Overview.
func (s *Store) Collaborating(ctx context.Context, owner string, f runs.RootFilter) ([]string, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, first(err, after)
	}
	return s.Store.Collaborating(ctx, owner, f)
}

// Questions implements runs.Approvals.
func (s *Store) Questions(ctx context.Context, f runs.QuestionFilter) ([]runs.RoleQuestion, bool, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, false, first(err, after)
	}
	return s.Store.Questions(ctx, f)
}

// Root implements runs.Approvals.
func (s *Store) Root(ctx context.Context, account, id string) (runs.Key, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return runs.Key{}, first(err, after)
	}
	return s.Store.Root(ctx, account, id)
}
