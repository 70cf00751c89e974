package faulty

import (
	"context"

	"github.com/agentteams/team-server/pkg/a2a"
)

// Ready says why no writes are taken now, where the inner store knows.
func (s *Store) Ready() error {
	if r, ok := s.Inner.(interface{ Ready() error }); ok {
		return r.Ready()
	}
	return nil
}

// Failed is closed when the inner store can acknowledge nothing more.
func (s *Store) Failed() <-chan struct{} {
	if f, ok := s.Inner.(interface{ Failed() <-chan struct{} }); ok {
		return f.Failed()
	}
	return nil
}

// Err says why it has failed.
func (s *Store) Err() error {
	if f, ok := s.Inner.(interface{ Err() error }); ok {
		return f.Err()
	}
	return nil
}

// definitions is what keeps definitions.
type definitions interface {
	PutDefinition(ctx context.Context, revision string, body []byte) error
	Definition(ctx context.Context, revision string) ([]byte, error)
}

// PutDefinition keeps a definition, where the inner store keeps some.
func (s *Store) PutDefinition(ctx context.Context, revision string, body []byte) error {
	return s.do(ctx, PutDefinition, func() error {
		if d, ok := s.Inner.(definitions); ok {
			return d.PutDefinition(ctx, revision, body)
		}
		return nil
	})
}

// Definition returns a definition that is kept. a2a.ErrNotFound.
func (s *Store) Definition(ctx context.Context, revision string) ([]byte, error) {
	if after, err := s.meet(ctx, Definition); err != nil || after != nil {
		return nil, first(err, after)
	}
	if d, ok := s.Inner.(definitions); ok {
		return d.Definition(ctx, revision)
	}
	return nil, a2a.ErrNotFound
}

// Position implements a2a.Conversations; there are none where the inner store keeps none.
func (s *Store) Position(ctx context.Context, t a2a.Thread) (int64, error) {
	if after, err := s.meet(ctx, Position); err != nil || after != nil {
		return 0, first(err, after)
	}
	if c, ok := s.Inner.(a2a.Conversations); ok {
		return c.Position(ctx, t)
	}
	return 0, nil
}

// Recall implements a2a.Conversations.
func (s *Store) Recall(ctx context.Context, t a2a.Thread, path string, upTo int64) (a2a.Recollection, error) {
	if after, err := s.meet(ctx, Recall); err != nil || after != nil {
		return a2a.Recollection{}, first(err, after)
	}
	if c, ok := s.Inner.(a2a.Conversations); ok {
		return c.Recall(ctx, t, path, upTo)
	}
	return a2a.Recollection{}, nil
}

// Remember implements a2a.Conversations.
func (s *Store) Remember(ctx context.Context, t a2a.Thread, e a2a.Exchange) error {
	return s.do(ctx, Remember, func() error {
		if c, ok := s.Inner.(a2a.Conversations); ok {
			return c.Remember(ctx, t, e)
		}
		return nil
	})
}

// Runs implements a2a.Overview; an inner store that is none has no runs.
func (s *Store) Runs(ctx context.Context, owner string, f a2a.RunFilter) ([]a2a.RunMark, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, first(err, after)
	}
	if o, ok := s.Inner.(a2a.Overview); ok {
		return o.Runs(ctx, owner, f)
	}
	return nil, nil
}

// Collaborating implements a2a.Overview; it returns no ids if the inner store does not
// implement it.
func (s *Store) Collaborating(ctx context.Context, owner string, f a2a.RootFilter) ([]string, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, first(err, after)
	}
	if o, ok := s.Inner.(a2a.Overview); ok {
		return o.Collaborating(ctx, owner, f)
	}
	return nil, nil
}

// Questions implements a2a.Approvals; an inner store that is none has no questions.
func (s *Store) Questions(ctx context.Context, f a2a.QuestionFilter) ([]a2a.RoleQuestion, bool, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return nil, false, first(err, after)
	}
	if a, ok := s.Inner.(a2a.Approvals); ok {
		return a.Questions(ctx, f)
	}
	return nil, false, nil
}

// Root implements a2a.Approvals; an inner store that is none has no such task.
func (s *Store) Root(ctx context.Context, account, id string) (a2a.Key, error) {
	if after, err := s.meet(ctx, List); err != nil || after != nil {
		return a2a.Key{}, first(err, after)
	}
	if a, ok := s.Inner.(a2a.Approvals); ok {
		return a.Root(ctx, account, id)
	}
	return a2a.Key{}, a2a.ErrNotFound
}

// WatchAll implements a2a.Overview.
func (s *Store) WatchAll(owner string) (wake <-chan struct{}, stop func()) {
	if o, ok := s.Inner.(a2a.Overview); ok {
		return o.WatchAll(owner)
	}
	return make(chan struct{}), func() {}
}
