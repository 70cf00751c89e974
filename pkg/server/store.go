package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/secret"
)

// StoreConfig configures a store. The zero value is valid.
type StoreConfig struct {
	// Settings are those that server: has in a configuration file, of which a store reads retention, keep and deduplicate.
	// Those that are not set have the same defaults as there. A store in memory keeps about the last 10,000 tasks and
	// 100,000 records of an account in the audit log at most, and a limited number of conversations.
	Settings *teamv1.ServerSettings
	// Lease is how long a process keeps its runs without a heartbeat before another process
	// may claim them; the default is 15 s. All processes that share a database must use the
	// same value.
	Lease time.Duration
	// Listen is the PostgreSQL URL for LISTEN. Set it if the URL of the store leads through
	// a connection pooler, which may not support LISTEN. The default is the URL of the
	// store. It may hold a password.
	Listen secret.Secret
	// EncryptionKeys encrypt the secrets in the store: those of webhooks, and the key of page
	// tokens. The first one encrypts, and all of them decrypt. Without keys the key that
	// encrypts them is in the store itself.
	EncryptionKeys []secret.Key
	// Meter measures the groups of changes that are written; nil measures nothing.
	Meter metric.Meter
	// Log receives the details of errors that callers must not see. If Log is nil, nothing
	// is logged.
	Log *zap.Logger
}

// OpenStore opens the store that a URL names: memory: and sqlite:FILE for one process, or
// postgres://USER@HOST/DATABASE for several processes that share the work. Pass it to
// Config.Store and close it after Serve has returned. Runs that have not ended then
// continue in the process that opens the store next, or shares it. A store in memory is empty, writes
// nothing to disk, and is gone when it is closed.
//
// The error contains no passwords. It says that the URL is unknown, that another process
// has opened the file, that the database cannot be reached or has fsync=off, or that a
// newer version of the program has written to it.
func OpenStore(ctx context.Context, url string, c StoreConfig) (Store, error) {
	if err := store.CheckURL(url); err != nil {
		return nil, fmt.Errorf("unknown store %s: %w", store.Redacted(url), err)
	}
	s, err := settings.New(c.Settings, "", "")
	if err != nil {
		return nil, fmt.Errorf("server.StoreConfig.Settings: %w", err)
	}
	keep := store.Keep{Conversations: s.GetKeep().GetConversations().AsDuration(), Boards: s.GetKeep().GetBoards().AsDuration(), Audit: s.GetKeep().GetAudit().AsDuration()}
	deduplicate, _ := time.ParseDuration(s.GetDeduplicate()) // 0 if it is off
	measure, err := metrics.NewStore(c.Meter)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	opened, err := sqlstore.Open(ctx, url, sqlstore.Config{Lease: c.Lease, Retention: s.GetRetention().AsDuration(), Keep: keep, Deduplicate: deduplicate, Listen: c.Listen, Keys: c.EncryptionKeys, Metrics: measure, Log: c.Log})
	if err != nil {
		text := store.Conceal(store.Conceal(err.Error(), url), c.Listen.Reveal())
		return nil, openError{"cannot open the store " + store.Redacted(url) + ": " + strings.Join(strings.Fields(text), " "), err}
	}
	return opened, nil
}

// openError is the error of OpenStore, on one line and without passwords.
type openError struct {
	text  string
	cause error
}

func (e openError) Error() string { return e.text }
func (e openError) Unwrap() error { return e.cause }

// ready combines the readiness of the server and of its store.
func ready(c Config) func() error {
	return func() error {
		if err := c.Store.Ready(); err != nil || c.Ready == nil {
			return err
		}
		return c.Ready()
	}
}

// guard calls stop when the store fails. It returns when ctx ends.
func guard(ctx context.Context, s Store, stop func()) {
	select {
	case <-s.Failed():
		stop()
	case <-ctx.Done():
	}
}

// ErrStoreFailed is the error of Serve when the store can no longer write.
var ErrStoreFailed = errors.New("the store failed, and writes that it had not acknowledged are lost; restart when the cause is fixed")

// failure returns ErrStoreFailed with its cause, nil if the store works.
func failure(s Store) error {
	if s.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStoreFailed, s.Err())
}
