// Package db is the database of the stores in the packages beside it: SQLite in a file or in the memory of one process, or
// PostgreSQL, which several replicas share. All run the same statements on the same schema.
//
// A DB has what these stores share: transactions, groups of changes that are synced together, notifications between
// replicas, the time, the settings with the keys of secrets, and the schema. A store keeps the statements of its tables;
// it runs them on a Querier, which is a transaction or reads what is committed.
package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	// DefaultLease is how long a replica keeps its runs after its last heartbeat.
	DefaultLease = 15 * time.Second
	// DefaultMaxEnded is how many ended runs a store in memory keeps.
	DefaultMaxEnded = 10_000
)

// Config configures a database and the stores in it. The zero value is valid.
type Config struct {
	// Clock returns the current time; nil means the time of the database. It is meant for tests.
	Clock func() time.Time
	// Lease is how long a replica keeps its runs after its last heartbeat; 0 means DefaultLease.
	Lease time.Duration
	// Retention is how long finished runs are kept; 0 means that of the settings.
	Retention time.Duration
	// MaxEnded is about how many ended runs are kept at most, of all owners together; those that ended first are
	// deleted first. Four times as many entries of conversations are kept, and 100,000 audit records of an account.
	// 0 means DefaultMaxEnded for a store in memory, and no limits for others.
	MaxEnded int
	// Keep says how long conversations, boards and audit records are kept.
	Keep store.Keep
	// Deduplicate is how long a message id is remembered; 0 means store.RequestWindow.
	Deduplicate time.Duration
	// Listen is the URL for PostgreSQL's LISTEN; the zero value means that of the store. It is needed if the
	// store's URL leads to a connection pooler that does not support LISTEN.
	Listen secret.Secret
	// Keys encrypt the secrets in the store. Without keys the key that encrypts them is in the store itself.
	Keys []secret.Key
	// Sealed opens the store without the keys of its secrets, which then can be copied, but not read. It implies KeepOld.
	Sealed bool
	// KeepOld opens the store for a command that does not know how long servers keep what is old: nothing is deleted
	// because of its age.
	KeepOld bool
	// Metrics measures groups of changes, and claims after the end of leases; nil measures nothing.
	Metrics *metrics.Store
	// Log receives details that callers must not see; nil means no log.
	Log *zap.Logger
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	Engine
	Dialect
	Config // with defaults
	hub
	// Tokens seals page tokens. It is not set in a sealed database.
	Tokens store.Sealer
	// Grown receives when a database in memory has grown; nil for others.
	Grown chan struct{}

	clock clock
	keys  *keyring // encrypts secrets
}

// CheckURL returns why no store can be opened with a URL, as far as that is known without opening it. The
// error has no password.
func CheckURL(url string) error {
	if file, ok := strings.CutPrefix(url, store.SQLite); ok {
		return checkName(file)
	}
	_, err := parsePostgres(url)
	return err
}

// Open opens the database at a URL, memory:, sqlite:FILE or postgres://…, and updates its schema. Its errors
// say what to do, for example about a file that another process has open, a database that cannot be
// reached or is not durable, or a schema of a later version.
func Open(ctx context.Context, url string, c Config) (*DB, error) {
	c.Lease, c.Retention = cmp.Or(c.Lease, DefaultLease), cmp.Or(c.Retention, settings.WithDefaults(nil).GetRetention().AsDuration())
	c.Keep.Conversations = cmp.Or(c.Keep.Conversations, c.Retention)
	c.Log = cmp.Or(c.Log, zap.NewNop())
	d := &DB{Config: c, clock: clock{fixed: c.Clock}}
	var err error
	file, isFile := strings.CutPrefix(url, store.SQLite)
	switch {
	case url == store.MemoryURL:
		d.MaxEnded, d.Grown = cmp.Or(c.MaxEnded, DefaultMaxEnded), make(chan struct{}, 1)
		d.Engine, err = openMemory(ctx, c.Metrics, d.Grown)
	case isFile:
		d.Engine, err = openSQLite(ctx, file, c.Metrics, c.Log)
	case store.IsPostgres(url):
		d.Engine, err = openPostgres(ctx, url, c)
	default:
		err = errors.New("a store is memory:, sqlite:FILE or postgres://USER@HOST/DATABASE")
	}
	if err != nil {
		return nil, err
	}
	d.Dialect = d.dialect()
	if err = d.SyncClock(ctx); err == nil {
		err = d.unlock(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Listen begins to receive the changes of other replicas. It is called once.
func (d *DB) Listen(drivers Drivers) {
	d.drivers = drivers
	d.listen(func(topics ...string) {
		if len(topics) == 0 {
			topics = d.Concerned()
		}
		d.Arrived(topics...)
	})
}

// Close writes everything that is queued and closes the database.
func (d *DB) Close() error { return d.close() }

// Failed returns a channel that is closed when the store acknowledges nothing more; Err says why.
func (d *DB) Failed() <-chan struct{} { return d.state().failed }

// Err returns why the store acknowledges nothing more, nil while it works.
func (d *DB) Err() error { return d.state().latched() }

// Ready returns why writes fail at the moment, nil if they do not.
func (d *DB) Ready() error { return d.state().problem() }

// Refuses returns why writes are refused until the process ends, nil if they are not.
func (d *DB) Refuses() error { return d.state().closed() }

// Await queues a change and waits until it is made, see await.
func (d *DB) Await(ctx context.Context, o *Op) error { return await(ctx, d.Engine, o) }

// Run runs a statement that changes something, as a transaction of its own.
func (d *DB) Run(ctx context.Context, text string, args ...any) error {
	return d.Statement(ctx, func(ctx context.Context, q Querier) error {
		_, err := q.Exec(ctx, text, args...)
		return err
	})
}

// InMemory reports whether the database is in the memory of this process.
func (d *DB) InMemory() bool { return d.Grown != nil }

// PollEvery is how often a replica looks for changes without a notification.
const PollEvery = time.Second

// Heal calls mend every second while writes fail, because a server that
// is not ready gets no calls that would write. It logs why writes are refused, and when
// they work again. It also checks whether the files of a SQLite store still have their names, and whether a newer
// program has changed a database in PostgreSQL so that this one must not use it. mend makes a small write; it is also called
// while due returns true.
func (d *DB) Heal(ctx context.Context, due func() bool, mend func(context.Context) error) {
	tick := time.NewTicker(PollEvery)
	defer tick.Stop()
	logged := ""
	for {
		d.check(ctx)
		why := d.Ready()
		switch {
		case why != nil && logged == "":
			logged = why.Error()
			d.Log.Error("the store takes no writes", zap.Error(why))
		case why == nil && logged != "":
			logged = ""
			d.Log.Warn("the store takes writes again")
		}
		if (why != nil || due()) && d.Refuses() == nil {
			_ = mend(ctx) // Ready reports the error
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Touch makes a small write that changes nothing.
func (d *DB) Touch(ctx context.Context) error { return d.Run(ctx, touchSetting, pageKey) }

// lockedPause is how long until the next claim if all due rows are locked.
const lockedPause = 50 * time.Millisecond

// Next returns when to claim again what has a due time. due is the next one; claimed is the number of rows just claimed.
func (d *DB) Next(due sql.NullInt64, claimed int) time.Time {
	var at time.Time
	if due.Valid {
		at = time.UnixMilli(due.Int64)
	}
	if d.Single {
		return at
	}
	if pause := d.Now().Add(lockedPause); due.Valid && claimed == 0 && at.Before(pause) {
		return pause // due rows are locked by another replica
	}
	if soon := d.Now().Add(PollEvery); at.IsZero() || at.After(soon) {
		return soon
	}
	return at
}

// Now returns the time of the database.
func (d *DB) Now() time.Time { return d.clock.now() }

// Millis returns the time of the database in its stored form, in milliseconds.
func (d *DB) Millis() int64 { return d.Now().UnixMilli() }
