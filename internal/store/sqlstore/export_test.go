package sqlstore

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"testing"

	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/testkit/dbtest"
)

// DB returns the database of a store.
func (s *Store) DB() *db.DB { return s.db }

// Rows counts what all tables hold.
func (s *Store) Rows(ctx context.Context, t testing.TB) (n int64) {
	t.Helper()
	for _, table := range []string{"task", "run", "replica", "event", "inbox", "request", "definition", "setting", "conversation", "history", "history_piece", "conversation_state", "push_config", "push_dead", "catalog", "question", "halt", "halt_task", "blob"} {
		n += s.Count(ctx, t, table)
	}
	return n
}

// Count counts the rows of a table.
func (s *Store) Count(ctx context.Context, t testing.TB, table string) (n int64) {
	t.Helper()
	if err := s.db.Reader().Scan(ctx, []any{&n}, `SELECT count(*) FROM `+table); err != nil {
		t.Fatal(err)
	}
	return n
}

// Largest returns the size in bytes of the largest event or snapshot as it is stored, without its blobs.
func (s *Store) Largest(ctx context.Context, t testing.TB) (n int) {
	t.Helper()
	err := s.db.Reader().Scan(ctx, []any{&n}, `SELECT max(size) FROM (SELECT length(body) AS size FROM event UNION ALL SELECT length(snap) FROM task) AS sizes`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Exec changes the database behind the store's back.
func (s *Store) Exec(_ context.Context, t testing.TB, text string) {
	t.Helper()
	dbtest.Exec(t, s.db, text)
}

// SealedUnder returns how many stored secrets each key has encrypted, by its id; "" is the key in the store.
func (s *Store) SealedUnder(ctx context.Context, t testing.TB) map[string]int {
	t.Helper()
	n := map[string]int{}
	err := db.Each(ctx, s.db.Reader(), func() { clear(n) }, func(r *sql.Rows) error {
		var body []byte
		err := r.Scan(&body)
		id, _ := db.ParseSealed(body)
		n[id]++
		return err
	}, `SELECT body FROM push_config UNION ALL SELECT value FROM setting WHERE name = 'page_token_key'`)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Registered returns the ids of the keys under which secrets may be encrypted.
func (s *Store) Registered(ctx context.Context, t testing.TB) []string {
	t.Helper()
	known, err := db.RegisteredKeys(ctx, s.db.Reader())
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(known))
}

// CountStatements counts from now on, and stops the background work, which would be counted too.
func (s *Store) CountStatements() *dbtest.Counts {
	s.stop()
	s.work.Wait()
	return dbtest.Count(s.db)
}
