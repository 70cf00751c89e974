package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// StoreConfig sets up a store that outlives the process. The zero value is usable.
type StoreConfig struct {
	// Retention is how long a task is kept after its end; 0 is 7 days. A store in
	// memory keeps the last 10,000 instead.
	Retention time.Duration
	// Deduplicate is how long the id of a message is remembered; 0 means 24 h. See
	// Config.ForgetMessageIDs.
	Deduplicate time.Duration
	// Lease is how long a process that is not heard of keeps its tasks, before
	// another one goes on with them; 0 is 15 s. All that share a database have the same.
	Lease time.Duration
	// Listen is a PostgreSQL URL for LISTEN, where the store's own goes through a
	// pooler that does not pass it on; empty is the store's own.
	Listen string
	// Log gets what callers must not see; nil logs nothing.
	Log *zap.Logger
}

// OpenedStore is a Store that somebody opened and closes. Safe for concurrent use.
type OpenedStore interface {
	Store
	catalog.Store
	board.Store
	// PutDefinition keeps a content that tasks are tied to under its name.
	PutDefinition(ctx context.Context, revision string, body []byte) error
	// Definition returns such a content.
	Definition(ctx context.Context, revision string) ([]byte, error)
	// Close closes the store, after Serve has returned.
	Close() error
}

// OpenStore opens the store that a URL names: memory:, sqlite:FILE for one
// process, postgres://USER@HOST/DATABASE for several that share the work. Hand it
// to Config.Store and close it after Serve has returned. What has not ended is
// then gone on with by whoever opens it next, or shares it.
//
// Errors, without passwords: a URL that names no store, a file that another
// process has open, a database that is not reached, has fsync=off or was written by
// a newer version.
func OpenStore(ctx context.Context, url string, c StoreConfig) (OpenedStore, error) {
	if err := store.CheckURL(url); err != nil {
		return nil, fmt.Errorf("unknown store %s: %w", store.Redacted(url), err)
	}
	if url == store.MemoryURL {
		return memory{store.NewMemory(store.MemoryConfig{Deduplicate: c.Deduplicate})}, nil
	}
	s, err := sqlstore.Open(ctx, url, sqlstore.Config{Lease: c.Lease, Retention: c.Retention, Deduplicate: c.Deduplicate, Listen: c.Listen, Log: c.Log})
	if err != nil {
		text := store.Conceal(store.Conceal(err.Error(), url), c.Listen)
		return nil, openError{"cannot open the store " + store.Redacted(url) + ": " + strings.Join(strings.Fields(text), " "), err}
	}
	return s, nil
}

// openError is why a store cannot be opened, on one line and without passwords.
type openError struct {
	text  string
	cause error
}

func (e openError) Error() string { return e.text }
func (e openError) Unwrap() error { return e.cause }

// memory is a store that goes with the process.
type memory struct{ *store.Memory }

// Close does nothing: there is nothing that would stay.
func (memory) Close() error { return nil }

// faulty is a store that can come to its end before it is closed.
type faulty interface {
	// Failed is closed when the store can acknowledge nothing more.
	Failed() <-chan struct{}
	// Err says why.
	Err() error
}

// ready joins the readiness of a server with that of its store.
func ready(c Config) func() error {
	s, ok := c.Store.(interface{ Ready() error })
	if !ok {
		return c.Ready
	}
	return func() error {
		if err := s.Ready(); err != nil || c.Ready == nil {
			return err
		}
		return c.Ready()
	}
}

// failed is closed when the store can acknowledge nothing more; nil if that cannot
// happen.
func failed(s Store) <-chan struct{} {
	if f, ok := s.(faulty); ok {
		return f.Failed()
	}
	return nil
}

// guard calls stop when the store has failed, unless ctx ends before.
func guard(ctx context.Context, s Store, stop func()) {
	f, ok := s.(faulty)
	if !ok {
		return
	}
	select {
	case <-f.Failed():
		stop()
	case <-ctx.Done():
	}
}

// ErrStoreFailed ends Serve when the store can acknowledge nothing more.
var ErrStoreFailed = errors.New("the store failed, and what it has not acknowledged is not on record; start again when the cause is gone")

// failure is why a store can acknowledge nothing more; nil while it can.
func failure(s Store) error {
	f, ok := s.(faulty)
	if !ok || f.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStoreFailed, f.Err())
}
