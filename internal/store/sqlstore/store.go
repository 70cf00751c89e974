// Package sqlstore keeps tasks, their journals and their inboxes in a database:
// SQLite in a file for one process, PostgreSQL for several replicas. Both run the
// same statements on the same schema.
//
// What is acknowledged is durable: writes are grouped into transactions that are
// synced before anybody is told. Every append is fenced by the epoch of its claim.
package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// DefaultLease is how long a replica that is not heard of keeps its runs.
	DefaultLease = 15 * time.Second
	// DefaultRetention is how long finished runs are kept.
	DefaultRetention = 7 * 24 * time.Hour
	// maxQueued bounds the bytes of events that wait to be written; appends wait beyond.
	maxQueued = 32 << 20
)

// Config sets up a Store.
type Config struct {
	// Clock tells the time; unset is the database's. For tests.
	Clock func() time.Time
	// Lease is how long a replica that is not heard of keeps its runs; 0 is DefaultLease.
	Lease time.Duration
	// Retention is how long finished runs are kept; 0 is DefaultRetention.
	Retention time.Duration
	// Deduplicate is how long a message id is remembered; 0 means store.RequestWindow.
	Deduplicate time.Duration
	// Snapshot opens a private copy of a SQLite file, which Close removes: nothing of the
	// file itself is changed, not its log and not its schema. It has no effect on PostgreSQL.
	Snapshot bool
	// Listen is the address for PostgreSQL's LISTEN, where the store's own goes
	// through a pooler that does not carry it.
	Listen string
	// Log gets what callers must not see; unset is none.
	Log *zap.Logger
}

// Store is a store in a database. It implements store.Store. Safe for concurrent use.
type Store struct {
	cfg    Config
	db     database
	tokens store.Sealer
	clock  clock
	hub    hub
	space  *semaphore.Weighted // of bytes that wait to be written
	totals totals
	ringed atomic.Int64 // bytes in all rings
	pushes seal         // of push configurations
	pushed chan struct{}
	stale  atomic.Bool // recorded claims may belong to a process that has exited: no run is claimed before they are released

	mu       sync.Mutex
	journals map[string]*journal  // open claims of this process, by root; guarded by mu
	replicas map[string]time.Time // that claimed here, and when they were last heard of; guarded by mu
	hiding   map[string]bool      // whether roots are hidden, of those that were looked at; guarded by mu
	unsure   time.Time            // until then a claim or its end may be on record that nobody here knows of; guarded by mu

	claiming sync.Mutex // a claim is under way, from its transaction until it is adopted; taken before mu
	sweeps   sync.Mutex // what is old is deleted, or must not be

	stop context.CancelFunc // of the background work
	work sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// Open opens the store that a URL names: sqlite:FILE or postgres://…, and brings
// its schema up to date. Errors say what to do: a file that another process has
// open, a database that is not reached or not safe, a schema of a later version.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Retention <= 0 {
		cfg.Retention = DefaultRetention
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	s := &Store{
		cfg: cfg, space: semaphore.NewWeighted(maxQueued),
		journals: map[string]*journal{}, hiding: map[string]bool{}, replicas: map[string]time.Time{}, pushed: make(chan struct{}, 1),
	}
	var err error
	switch {
	case strings.HasPrefix(url, "sqlite:"):
		s.db, err = openSQLite(ctx, strings.TrimPrefix(url, "sqlite:"), cfg.Snapshot, cfg.Log)
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		s.db, err = openPostgres(ctx, url, cfg, s.heard)
	default:
		err = errors.New("a store is sqlite:FILE or postgres://USER@HOST/DATABASE")
	}
	if err != nil {
		return nil, err
	}
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
	key, err := s.secret(ctx, "page_token_key")
	if err != nil {
		return err
	}
	s.tokens = store.NewSealer(key)
	if key, err = s.secret(ctx, pushKey); err != nil {
		return err
	}
	s.pushes = newSeal(key)
	if s.db.single() {
		s.stale.Store(true)
		if err := s.adoptOrphans(ctx); err != nil && (s.Err() != nil || s.Ready() == nil) {
			return err
		}
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.work.Go(func() { s.retain(ctx) })
	s.work.Go(func() { s.heal(ctx) })
	if !s.db.single() {
		s.work.Go(func() { s.poll(ctx) })
	}
	return nil
}

// Close writes what is queued, gives up what this process holds and closes the
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

// Failed is closed when the store can acknowledge nothing more; Err says why.
func (s *Store) Failed() <-chan struct{} { return s.db.state().failed }

// Err returns why the store acknowledges nothing more; nil while it does.
func (s *Store) Err() error { return s.db.state().latched() }

// Ready returns nil, or why no writes are taken now.
func (s *Store) Ready() error { return s.db.state().problem() }

// Now returns the store's time: the database's.
func (s *Store) Now() time.Time { return s.clock.now() }

// now is the time as it is stored.
func (s *Store) now() int64 { return s.clock.now().UnixMilli() }

// journal finds the open claim of a root, or nil.
func (s *Store) journal(root string) *journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journals[root]
}

// live finds the open claim of a root whose journal is up to date, or nil: one that
// has failed may have an owner elsewhere.
func (s *Store) live(root string) *journal {
	if j := s.journal(root); j != nil && j.usable() == nil {
		return j
	}
	return nil
}

// heal tries a small write every second after a write has failed, because a server that
// is not ready gets no calls that would write. It logs why writes are refused, and when
// they work again.
func (s *Store) heal(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	logged := ""
	for {
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
		_, err := q.exec(ctx, `UPDATE setting SET value = value WHERE name = 'page_token_key'`)
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

// owned splits a key and checks that its root is the owner's. a2a.ErrNotFound.
func (s *Store) owned(ctx context.Context, k a2a.Key) (root, scope string, err error) {
	root, scope = agent.SplitTask(k.ID)
	if j := s.journal(root); j != nil {
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

// PutDefinition keeps a definition under its revision, which is made of what it
// holds, for as long as runs are tied to it and at least an hour.
func (s *Store) PutDefinition(ctx context.Context, revision string, body []byte) error {
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `INSERT INTO definition (revision, body, at) VALUES ($1, $2, $3)
ON CONFLICT (revision) DO UPDATE SET at = excluded.at`, revision, body, s.now())
		return err
	})
}

// Definition returns what PutDefinition kept. a2a.ErrNotFound.
func (s *Store) Definition(ctx context.Context, revision string) ([]byte, error) {
	var body []byte
	err := s.db.reader().scan(ctx, []any{&body}, `SELECT body FROM definition WHERE revision = $1`, revision)
	return body, notFound(err)
}

// clock is the database's time, as far as this process knows it: what it was
// when last asked, and how long ago that is by the monotonic clock. A jump of
// this machine's clock does not move it (P16).
type clock struct {
	fixed func() time.Time

	mu   sync.RWMutex
	base time.Time // of the database; guarded by mu
	read time.Time // when base was read, with its monotonic part; guarded by mu
}

func (c *clock) now() time.Time {
	if c.fixed != nil {
		return c.fixed()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base.Add(time.Since(c.read))
}

// maxJump is how far the clock of a machine may be off after a sleep or a
// correction. Farther it was set wrong, and would have everything deleted that
// is old by it.
const maxJump = 3 * 24 * time.Hour

// syncClock asks the database for the time.
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
