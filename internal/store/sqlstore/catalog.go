package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// catalogTopic is the topic of notifications that the catalog has changed. All other topics, except
// boardTopic, are ids of root tasks, none of which has this form.
const catalogTopic = "~catalog"

// Catalog implements catalog.Store.
func (s *Store) Catalog(ctx context.Context) (catalog.Snapshot, error) {
	var snap catalog.Snapshot
	q := s.db.reader()
	for { // the reads are consistent if the version is the same before and after
		before, err := catalogVersion(ctx, q)
		if err != nil {
			return catalog.Snapshot{}, err
		}
		snap = catalog.Snapshot{Version: before}
		err = each(ctx, q, func() { snap.Entries = nil }, func(rows *sql.Rows) error {
			var e catalog.Entry
			var created, changed int64
			if err := rows.Scan(&e.ID, &e.Version, &created, &changed, &e.ChangedBy, &e.Account, &e.Data); err != nil {
				return err
			}
			e.Created, e.Changed = time.UnixMilli(created).UTC(), time.UnixMilli(changed).UTC()
			snap.Entries = append(snap.Entries, e)
			return nil
		}, `SELECT id, version, created, changed, changed_by, account, body FROM catalog ORDER BY id`)
		if err != nil {
			return catalog.Snapshot{}, err
		}
		after, err := catalogVersion(ctx, q)
		if err != nil || after == before {
			return snap, err
		}
	}
}

// CatalogVersion implements catalog.Store.
func (s *Store) CatalogVersion(ctx context.Context) (int64, error) {
	return catalogVersion(ctx, s.db.reader())
}

// catalogVersion reads the version of the catalog.
func catalogVersion(ctx context.Context, q querier) (version int64, err error) {
	err = q.scan(ctx, []any{&version}, `SELECT version FROM catalog_version`)
	return version, err
}

// takeCatalogVersion sets the version to that of the store from which the catalog was copied.
func (s *Store) takeCatalogVersion(ctx context.Context, from *Store) error {
	version, err := from.CatalogVersion(ctx)
	if err != nil {
		return err
	}
	return s.db.do(ctx, func(ctx context.Context, q querier) error {
		_, err := q.exec(ctx, `UPDATE catalog_version SET version = $1, change = ''`, version)
		return err
	})
}

// ChangeCatalog implements catalog.Store.
func (s *Store) ChangeCatalog(ctx context.Context, version int64, c catalog.Change) (int64, error) {
	next, change := version+1, uuid.NewString()
	err := s.change(ctx, func(ctx context.Context, q querier) error {
		if err := s.idle(ctx, q, c.Delete); err != nil {
			return err
		}
		n, err := q.exec(ctx, `UPDATE catalog_version SET version = $2, change = $3 WHERE version = $1`, version, next, change)
		if err != nil {
			return err
		}
		if n == 0 {
			return alreadyOurs(ctx, q, next, change)
		}
		for _, id := range c.Delete {
			if _, err := q.exec(ctx, `DELETE FROM catalog WHERE id = $1`, id); err != nil {
				return err
			}
		}
		for _, e := range c.Put {
			if _, err := q.exec(ctx, `INSERT INTO catalog (id, version, created, changed, changed_by, account, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, changed = excluded.changed, changed_by = excluded.changed_by, account = excluded.account, body = excluded.body`,
				e.ID, next, e.Created.UnixMilli(), e.Changed.UnixMilli(), e.ChangedBy, e.Account, e.Data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.announce(catalogTopic, store.Everybody)
	return next, nil
}

// idle locks the entries that are to be deleted, so that no collaboration of them begins before the
// transaction ends. The error is a2a.ErrBusy if one is running.
func (s *Store) idle(ctx context.Context, q querier, ids []string) error {
	if len(ids) > 0 { // the lock order of all changes: the version first
		var version int64
		if err := q.scan(ctx, []any{&version}, `SELECT version FROM catalog_version`+s.db.lock()); err != nil {
			return err
		}
	}
	for _, id := range ids {
		account, _, err := s.lockEntry(ctx, q, id)
		if err != nil {
			return err
		}
		var n int
		if err := q.scan(ctx, []any{&n}, `SELECT count(*) FROM collaboration_slot WHERE team = $1`, agent.KeyOf(account, id)); err != nil {
			return err
		}
		if n > 0 {
			return refuse(a2a.ErrBusy)
		}
	}
	return nil
}

// lockEntry locks an entry until the transaction ends. It returns its account, and whether it exists.
func (s *Store) lockEntry(ctx context.Context, q querier, id string) (account string, there bool, err error) {
	err = q.scan(ctx, []any{&account}, `SELECT account FROM catalog WHERE id = $1`+s.db.lock(), id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return account, err == nil, err
}

// alreadyOurs returns nil if the recorded change is the caller's own, whose first attempt was
// reported as failed after it had succeeded. Otherwise it returns catalog.ErrChanged.
func alreadyOurs(ctx context.Context, q querier, version int64, change string) error {
	var n int
	err := q.scan(ctx, []any{&n}, `SELECT count(*) FROM catalog_version WHERE version = $1 AND change = $2`, version, change)
	if err == nil && n == 0 {
		return catalog.ErrChanged
	}
	return err
}

// WatchCatalog implements catalog.Store. Changes by other replicas wake the channel over
// PostgreSQL; callers must also poll in case a notification is lost.
func (s *Store) WatchCatalog() (wake <-chan struct{}, stop func()) { return s.hub.watch(catalogTopic) }
