// Package sqlstore stores tasks, their journals and their inboxes in a database: SQLite in a file
// for a single process, or PostgreSQL for several replicas. Both run the same statements on the
// same schema.
//
// Acknowledged writes are durable: they are grouped into transactions that are synced before any
// caller gets a reply. Every append is fenced by the epoch of its claim.
package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	// DefaultLease is how long a replica keeps its runs after its last heartbeat.
	DefaultLease = 15 * time.Second
	// DefaultRetention is how long finished runs are kept.
	DefaultRetention = 7 * 24 * time.Hour
	// maxQueued and maxQueuedLarge limit the bytes of events that wait to be written: of those that are part of small
	// changes, and of large ones. Beyond that, appends of the same kind block.
	maxQueued      = 8 << 20
	maxQueuedLarge = 24 << 20
)

// Config configures a Store. The zero value is valid.
type Config struct {
	// Clock returns the current time; nil means the time of the database. It is meant for tests.
	Clock func() time.Time
	// Lease is how long a replica keeps its runs after its last heartbeat; 0 means DefaultLease.
	Lease time.Duration
	// Retention is how long finished runs are kept; 0 means DefaultRetention.
	Retention time.Duration
	// Keep says how long conversations, boards and audit records are kept.
	Keep store.Keep
	// Deduplicate is how long a message id is remembered; 0 means store.RequestWindow.
	Deduplicate time.Duration
	// Listen is the URL for PostgreSQL's LISTEN; the zero value means that of the store. It is needed if the
	// store's URL leads to a connection pooler that does not support LISTEN.
	Listen secret.Secret
	// Keys encrypt the secrets in the store, see type keyring. Without keys the key that encrypts them is
	// in the store itself.
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

// Store is a store in a database. It implements store.Store and is safe for concurrent use.
type Store struct {
	cfg    Config
	db     database
	tokens store.Sealer
	clock  clock
	hub    hub
	space  *space
	totals totals
	ringed atomic.Int64 // bytes of the events in all rings, see type ring
	keys   *keyring     // encrypts secrets
	// insertEvents are the statements of the function of this name, for this database.
	insertEvents [maxRows]string
	pushed       chan struct{}
	// stale reports whether recorded claims may belong to a process that has exited. No run is
	// claimed before these are released.
	stale atomic.Bool

	mu       sync.Mutex
	journals map[string]*journal  // open claims of this process, by root; guarded by mu
	replicas map[string]time.Time // last heartbeats of this process's replicas; guarded by mu
	unsure   time.Time            // until then reclaim looks for lost claims; guarded by mu
	lost     map[string]bool      // replicas whose lease has expired and that are logged; guarded by mu
	// arrivals are the roots for which an input may have come since the current claim began. It is nil while no claim
	// is in progress; guarded by mu.
	arrivals map[string]bool

	claiming sync.Mutex // held from a claim until its runs are adopted; acquired before mu
	sweeps   sync.Mutex // held while old data is deleted, and while it must not be deleted
	swept    board.Key  // the board from which the last sweep has deleted; guarded by sweeps

	stop context.CancelFunc // ends the background work
	work sync.WaitGroup
}

// CheckURL returns why no store can be opened with a URL, as far as that is known without opening it. The
// error has no password.
func CheckURL(url string) error {
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return checkName(file)
	}
	_, err := parsePostgres(url)
	return err
}

var _ store.Store = (*Store)(nil)

// Open opens the store at a URL, sqlite:FILE or postgres://…, and updates its schema. Its errors
// say what to do, for example about a file that another process has open, a database that cannot be
// reached or is not durable, or a schema of a later version.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Retention <= 0 {
		cfg.Retention = DefaultRetention
	}
	if cfg.Keep.Conversations <= 0 {
		cfg.Keep.Conversations = cfg.Retention
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	s := &Store{
		cfg: cfg, space: newSpace(),
		journals: map[string]*journal{}, replicas: map[string]time.Time{}, lost: map[string]bool{}, pushed: make(chan struct{}, 1),
	}
	var err error
	switch {
	case strings.HasPrefix(url, "sqlite:"):
		s.db, err = openSQLite(ctx, strings.TrimPrefix(url, "sqlite:"), cfg.Metrics, cfg.Log)
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		s.db, err = openPostgres(ctx, url, cfg, s.heard)
	default:
		err = errors.New("a store is sqlite:FILE or postgres://USER@HOST/DATABASE")
	}
	if err != nil {
		return nil, err
	}
	s.insertEvents = insertEvents(s.db.binary())
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.db.close())
	}
	return s, nil
}

// start reads what all replicas share and begins the background work.
func (s *Store) start(ctx context.Context) error {
	s.clock.fixed = s.cfg.Clock
	if err := s.syncClock(ctx); err != nil {
		return err
	}
	if err := s.unlock(ctx); err != nil {
		return err
	}
	if s.db.single() {
		s.stale.Store(true)
		if err := s.adoptOrphans(ctx); err != nil && (s.Err() != nil || s.Ready() == nil) {
			return err
		}
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if !s.cfg.Sealed && !s.cfg.KeepOld {
		s.work.Go(func() { s.retain(ctx) })
	}
	s.work.Go(func() { s.heal(ctx) })
	if !s.cfg.Sealed {
		s.work.Go(func() { s.watchKeys(ctx) })
	}
	if !s.db.single() {
		s.work.Go(func() { s.poll(ctx) })
	}
	return nil
}

// Close writes everything that is queued, releases what this process holds, and closes the
// database. No claim may be in use.
func (s *Store) Close() error {
	s.stop()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if s.Err() == nil && (s.Ready() == nil || !s.db.single()) {
		err = s.leave(ctx)
	}
	return errors.Join(err, s.db.close())
}

// Failed returns a channel that is closed when the store acknowledges nothing more; Err says why.
func (s *Store) Failed() <-chan struct{} { return s.db.state().failed }

// Err returns why the store acknowledges nothing more, nil while it works.
func (s *Store) Err() error { return s.db.state().latched() }

// Ready returns why writes fail at the moment, nil if they do not.
func (s *Store) Ready() error { return s.db.state().problem() }

// Now returns the time of the database.
func (s *Store) Now() time.Time { return s.clock.now() }

// now returns the time in its stored form, in milliseconds.
func (s *Store) now() int64 { return s.clock.now().UnixMilli() }

// journal returns the open claim of a root, nil without one.
func (s *Store) journal(root string) *journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journals[root]
}

// live returns the journal in this process that has everything that is recorded of a root: that of an open
// claim, or of a run that has ended while it was read. Without one it returns nil, and also after a failure of
// the journal, because another replica may own the run.
func (s *Store) live(root string) *journal {
	if j := s.journal(root); j != nil && j.usable() == nil {
		return j
	}
	return s.hub.ended(root)
}

// heal tries a small write every second after a write has failed, because a server that
// is not ready gets no calls that would write. It logs why writes are refused, and when
// they work again. It also checks whether the files of a SQLite store still have their names, and whether a newer
// program has changed a database in PostgreSQL so that this one must not use it.
func (s *Store) heal(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	logged := ""
	for {
		switch d := s.db.(type) {
		case *sqliteDB:
			d.checkNames()
		case *postgresDB:
			_ = d.checkSchema(ctx) // tried again with the next tick
		}
		why := s.Ready()
		switch {
		case why != nil && logged == "":
			logged = why.Error()
			s.cfg.Log.Error("the store takes no writes", zap.Error(why))
		case why == nil && logged != "":
			logged = ""
			s.cfg.Log.Warn("the store takes writes again")
		}
		if why != nil || s.stale.Load() {
			_ = s.mend(ctx) // Ready reports the error
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// mend tries a small write.
func (s *Store) mend(ctx context.Context) error {
	if err := s.db.state().closed(); err != nil {
		return err
	}
	if s.stale.Load() {
		return s.adoptOrphans(ctx)
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `UPDATE setting SET value = value WHERE name = $1`, pageKey)
		return err
	})
}

// adoptOrphans makes due the runs that an earlier process had claimed.
func (s *Store) adoptOrphans(ctx context.Context) error {
	err := s.orphan(ctx)
	if err == nil {
		s.stale.Store(false)
	}
	return err
}

// owned splits a key into root and scope. The error is a2a.ErrNotFound if the root does not belong
// to the owner.
func (s *Store) owned(ctx context.Context, k a2a.Key) (root, scope string, err error) {
	root, scope = agent.SplitTask(k.ID)
	if j := cmp.Or(s.journal(root), s.hub.ended(root)); j != nil {
		if j.owner != k.Owner {
			return "", "", a2a.ErrNotFound
		}
		return root, scope, nil
	}
	var n int
	err = s.db.reader().scan(ctx, []any{&n}, `SELECT 1 FROM run WHERE id = $1 AND owner = $2`, root, k.Owner)
	if err != nil {
		return "", "", notFound(err)
	}
	return root, scope, nil
}

// PutDefinition stores a definition under its revision, which is computed from its content. It is
// kept as long as runs are pinned to it, and for at least an hour.
func (s *Store) PutDefinition(ctx context.Context, revision string, body []byte) error {
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `INSERT INTO definition (revision, body, at) VALUES ($1, $2, $3)
ON CONFLICT (revision) DO UPDATE SET at = excluded.at`, revision, body, s.now())
		return err
	})
}

// Definition returns the content of a definition. The error is a2a.ErrNotFound.
func (s *Store) Definition(ctx context.Context, revision string) ([]byte, error) {
	var body []byte
	err := s.db.reader().scan(ctx, []any{&body}, `SELECT body FROM definition WHERE revision = $1`, revision)
	return body, notFound(err)
}

// clock estimates the database's time, from its last reading and the time since then on the
// monotonic clock. A jump of this machine's clock does not affect it.
type clock struct {
	fixed func() time.Time // returns the time instead of the database; nil without it

	mu   sync.RWMutex
	base time.Time // time of the database when last read; guarded by mu
	read time.Time // when base was read, by the monotonic clock; guarded by mu
}

// now returns the estimated time.
func (c *clock) now() time.Time {
	if c.fixed != nil {
		return c.fixed()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.Add(time.Since(c.read))
}

// maxJump is the largest plausible jump of a machine's clock, after a sleep or a correction. A
// larger one means that the clock was set wrongly, and would cause the deletion of data that only
// seems old.
const maxJump = 3 * 24 * time.Hour

// syncClock reads the time of the database. For SQLite it ignores a jump of more than maxJump.
func (s *Store) syncClock(ctx context.Context) error {
	if s.clock.fixed != nil {
		return nil
	}
	t, err := s.db.now(ctx)
	if err != nil {
		return fmt.Errorf("ask the database for the time: %w", err)
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if off := t.Sub(s.clock.base.Add(time.Since(s.clock.read))); s.db.single() && !s.clock.base.IsZero() && off.Abs() > maxJump {
		s.cfg.Log.Warn("the machine's clock has jumped; tasks keep the time they had", zap.Duration("by", off))
		return nil
	}
	s.clock.base, s.clock.read = t, time.Now()
	return nil
}
