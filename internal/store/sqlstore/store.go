// Package sqlstore stores tasks, their journals and their inboxes in a database: SQLite in a file
// or in memory for a single process, or PostgreSQL for several replicas. All run the same statements
// on the same schema.
//
// Acknowledged writes are durable: they are grouped into transactions that are synced before any
// caller gets a reply. Every append is fenced by the epoch of its claim.
//
// The packages below it have one subject each, with the statements of its tables: run, task, push, account, board and
// admin. They share the database in package db and the records of runs in package record. Package run writes the rows of tasks,
// events and inputs as well; task reads them. This package puts them together, deletes what is old, and copies stores.
package sqlstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/account"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/board"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/run"
	"github.com/agentteams/team-server/internal/store/sqlstore/task"
)

// Config configures a Store. The zero value is valid.
type Config = db.Config

// The subjects of a Store, each with its methods of store.Store.
type (
	runs          = run.Runs
	intake        = run.Intake
	schedule      = run.Schedule
	counts        = run.Counts
	tasks         = task.Tasks
	conversations = task.Conversations
	pushes        = push.Pushes
	ledger        = account.Ledger
	costs         = account.Costs
	boards        = board.Boards
	audits        = admin.Audits
	catalog       = admin.Catalog
	halts         = admin.Halts
	keys          = admin.Keys
	definitions   = admin.Definitions
)

// Store is a store in a database. It implements store.Store and is safe for concurrent use.
type Store struct {
	*runs
	*intake
	*schedule
	*counts
	*tasks
	*conversations
	*pushes
	*ledger
	*costs
	*boards
	*audits
	*catalog
	*halts
	*keys
	*definitions

	db     *db.DB
	sweeps sync.Mutex // held while old data is deleted, and while it must not be deleted

	stop context.CancelFunc // ends the background work
	work sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// Open opens the store at a URL, memory:, sqlite:FILE or postgres://…, and updates its schema. Its errors
// say what to do, see db.Open.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	d, err := db.Open(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db: d, pushes: push.New(d), counts: &run.Counts{DB: d}, conversations: &task.Conversations{DB: d},
		ledger: &account.Ledger{DB: d}, costs: &account.Costs{DB: d}, boards: &board.Boards{DB: d},
		audits: &admin.Audits{DB: d}, catalog: &admin.Catalog{DB: d}, halts: &admin.Halts{DB: d}, keys: &admin.Keys{DB: d}, definitions: &admin.Definitions{DB: d},
	}
	s.runs = run.New(d, s.pushes)
	s.intake, s.tasks = &run.Intake{DB: d, Claims: s.runs, Pushes: s.pushes}, &task.Tasks{DB: d, Claims: s.runs}
	s.schedule = &run.Schedule{DB: d, Claims: s.runs}
	if s.Stale() {
		if err := s.AdoptOrphans(ctx); err != nil && (s.Err() != nil || s.Ready() == nil) {
			return nil, errors.Join(err, d.Close())
		}
	}
	s.start(context.WithoutCancel(ctx))
	return s, nil
}

// start begins the background work.
func (s *Store) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	if !s.db.InMemory() {
		s.work.Go(func() { s.db.Heal(ctx, s.Stale, s.mend) })
	}
	if !s.db.Sealed && !s.db.KeepOld {
		s.work.Go(func() { s.retain(ctx) })
	}
	if s.db.Single {
		return // there are no other processes
	}
	s.work.Go(func() { s.Poll(ctx) })
	if !s.db.Sealed {
		s.work.Go(func() { s.db.WatchKeys(ctx) })
	}
}

// mend tries a small write.
func (s *Store) mend(ctx context.Context) error {
	if s.Stale() {
		return s.AdoptOrphans(ctx)
	}
	return s.db.Touch(ctx)
}

// Close writes everything that is queued, releases what this process holds, and closes the
// database. No claim may be in use.
func (s *Store) Close() error {
	s.stop()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if s.Err() == nil && (s.Ready() == nil || !s.db.Single) {
		err = s.Leave(ctx)
	}
	return errors.Join(err, s.db.Close())
}

// MoveEngine has another kind of engine drive the runs, from the next start of a server on. The error says that a server
// uses the store.
func (s *Store) MoveEngine(ctx context.Context, kind string) error {
	return s.schedule.MoveEngine(ctx, kind)
}

// Failed returns a channel that is closed when the store acknowledges nothing more; Err says why.
func (s *Store) Failed() <-chan struct{} { return s.db.Failed() }

// Err returns why the store acknowledges nothing more, nil while it works.
func (s *Store) Err() error { return s.db.Err() }

// Ready returns why writes fail at the moment, nil if they do not.
func (s *Store) Ready() error { return s.db.Ready() }

// Now returns the time of the database.
func (s *Store) Now() time.Time { return s.db.Now() }
