package sqlstore_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/pgtest"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// forever is a lease that no clock of a test outlives.
const forever = 100 * 365 * 24 * time.Hour

// open opens a store and closes it at the end of the test.
func open(t testing.TB, url string, cfg sqlstore.Config) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(context.Background(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func sqliteURL(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "team.db") }

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() time.Time) storetest.Store {
		return open(t, sqliteURL(t), sqlstore.Config{Clock: clock, Lease: forever, Retention: forever})
	})
}

func TestPostgres(t *testing.T) {
	pgtest.URL(t)
	storetest.Run(t, func(t testing.TB, clock func() time.Time) storetest.Store {
		return open(t, pgtest.URL(t), sqlstore.Config{Clock: clock, Lease: forever, Retention: forever})
	})
}

// urls are new stores, by database.
func urls(t testing.TB) map[string]func(testing.TB) string {
	t.Helper()
	list := map[string]func(testing.TB) string{"SQLite": sqliteURL}
	if !testing.Short() {
		list["PostgreSQL"] = pgtest.URL
	}
	return list
}
