package admin

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/agent"
)

// catalogTopic is the topic of notifications that the catalog has changed. No root task has such an id.
const catalogTopic = "~catalog"

// Catalog has the agents and teams that are not in the server's file. It implements catalog.Store.
type Catalog struct{ DB *db.DB }

// Statements of the tables catalog and catalog_version, and of the collaborations that keep an entry.
const (
	selectCatalog        = `SELECT id, version, created, changed, changed_by, account, body FROM catalog ORDER BY id`
	selectCatalogVersion = `SELECT version FROM catalog_version`
	nextCatalogVersion   = `UPDATE catalog_version SET version = $2, change = $3 WHERE version = $1`
	deleteEntry          = `DELETE FROM catalog WHERE id = $1`
	putEntry             = `INSERT INTO catalog (id, version, created, changed, changed_by, account, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, changed = excluded.changed, changed_by = excluded.changed_by, account = excluded.account, body = excluded.body`
	countCollaborations = `SELECT count(*) FROM collaboration_slot WHERE team = $1`
	selectEntry         = `SELECT account FROM catalog WHERE id = $1`
	countCatalogVersion = `SELECT count(*) FROM catalog_version WHERE version = $1 AND change = $2`
)

// Catalog implements catalog.Store.
func (s *Catalog) Catalog(ctx context.Context) (catalog.Snapshot, error) {
	var snap catalog.Snapshot
	q := s.DB.Reader()
	for { // the reads are consistent if the version is the same before and after
		before, err := catalogVersion(ctx, q, "")
		if err != nil {
			return catalog.Snapshot{}, err
		}
		snap = catalog.Snapshot{Version: before}
		snap.Entries, err = db.List(ctx, q, func(rows *sql.Rows) (catalog.Entry, error) {
			var e catalog.Entry
			var created, changed int64
			if err := rows.Scan(&e.ID, &e.Version, &created, &changed, &e.ChangedBy, &e.Account, &e.Data); err != nil {
				return e, err
			}
			e.Created, e.Changed = time.UnixMilli(created).UTC(), time.UnixMilli(changed).UTC()
			return e, nil
		}, selectCatalog)
		if err != nil {
			return catalog.Snapshot{}, err
		}
		after, err := catalogVersion(ctx, q, "")
		if err != nil || after == before {
			return snap, err
		}
	}
}

// CatalogVersion implements catalog.Store.
func (s *Catalog) CatalogVersion(ctx context.Context) (int64, error) {
	return catalogVersion(ctx, s.DB.Reader(), "")
}

// catalogVersion reads the version of the catalog, with a clause that may lock it.
func catalogVersion(ctx context.Context, q db.Querier, lock string) (version int64, err error) {
	err = q.Scan(ctx, []any{&version}, selectCatalogVersion+lock)
	return version, err
}

// ChangeCatalog implements catalog.Store.
func (s *Catalog) ChangeCatalog(ctx context.Context, version int64, c catalog.Change) (int64, error) {
	next, change := version+1, uuid.NewString()
	err := Change(ctx, s.DB, func(ctx context.Context, q db.Querier) error {
		if err := s.idle(ctx, q, c.Delete); err != nil {
			return err
		}
		n, err := q.Exec(ctx, nextCatalogVersion, version, next, change)
		if err != nil {
			return err
		}
		if n == 0 {
			return alreadyOurs(ctx, q, next, change)
		}
		var stmts []db.Stmt
		for _, id := range c.Delete {
			stmts = append(stmts, db.With(deleteEntry, id))
		}
		for _, e := range c.Put {
			stmts = append(stmts, db.With(putEntry, e.ID, next, e.Created.UnixMilli(), e.Changed.UnixMilli(), e.ChangedBy, e.Account, e.Data))
		}
		return db.Exec(ctx, q, stmts...)
	})
	if err != nil {
		return 0, err
	}
	s.DB.Announce(catalogTopic, store.AllOwners)
	return next, nil
}

// idle locks the entries that are to be deleted, so that no collaboration of them begins before the
// transaction ends. The error is runs.ErrBusy if one is running.
func (s *Catalog) idle(ctx context.Context, q db.Querier, ids []string) error {
	if len(ids) > 0 { // the lock order of all changes: the version first
		if _, err := catalogVersion(ctx, q, s.DB.Lock); err != nil {
			return err
		}
	}
	for _, id := range ids {
		account, _, err := LockEntry(ctx, q, s.DB.Lock, id)
		if err != nil {
			return err
		}
		n, err := db.Value[int](ctx, q, countCollaborations, agent.KeyOf(account, id))
		if err != nil {
			return err
		}
		if n > 0 {
			return db.Refuse(runs.ErrBusy)
		}
	}
	return nil
}

// LockEntry locks an entry until the transaction ends. It returns its account, and whether it exists. lock is the clause
// that locks a row.
func LockEntry(ctx context.Context, q db.Querier, lock, id string) (account string, there bool, err error) {
	err = q.Scan(ctx, []any{&account}, selectEntry+lock, id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return account, err == nil, err
}

// alreadyOurs returns nil if the recorded change is the caller's own, whose first attempt was
// reported as failed after it had succeeded. Otherwise it returns catalog.ErrChanged.
func alreadyOurs(ctx context.Context, q db.Querier, version int64, change string) error {
	n, err := db.Value[int](ctx, q, countCatalogVersion, version, change)
	if err == nil && n == 0 {
		return catalog.ErrChanged
	}
	return err
}

// WatchCatalog implements catalog.Store. Changes by other replicas wake the channel over
// PostgreSQL; callers must also poll in case a notification is lost.
func (s *Catalog) WatchCatalog() (wake <-chan struct{}, stop func()) { return s.DB.Watch(catalogTopic) }
