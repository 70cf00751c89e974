package sqlstore_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/storetest"
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

// sqliteURL is an empty store in a file of its own, with the schema in place: most of the
// time of a new store goes into its migrations.
func sqliteURL(t testing.TB) string {
	t.Helper()
	empty, err := emptySQLite()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "team.db")
	if err := os.WriteFile(file, empty, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + file
}

// emptySQLite returns the file of an empty store.
var emptySQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "empty")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "team.db")
	s, err := sqlstore.Open(context.Background(), "sqlite:"+file, sqlstore.Config{})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock func() time.Time) storetest.Sweeper {
		return open(t, sqliteURL(t), sqlstore.Config{Clock: clock, Lease: forever, Retention: forever})
	})
}

func TestKeep(t *testing.T) {
	all := urls(t)
	all["memory"] = func(testing.TB) string { return store.MemoryURL }
	for name, url := range all {
		t.Run(name, func(t *testing.T) {
			storetest.RunKeep(t, func(t testing.TB, clock func() time.Time, keep store.Keep) storetest.Sweeper {
				return open(t, url(t), sqlstore.Config{Clock: clock, Lease: forever, Retention: forever, Keep: keep})
			})
		})
	}
}

func TestPostgres(t *testing.T) {
	pgtest.URL(t)
	storetest.Run(t, func(t testing.TB, clock func() time.Time) storetest.Sweeper {
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
