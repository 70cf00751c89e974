package rig

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/server"
)

// Lease is the lease of the stores opened here: how long another server waits for one that
// stopped without a release.
const Lease = 3 * time.Second

// Place is a place for a store.
type Place struct {
	// Name is "memory", "sqlite" or "postgres".
	Name string
	// URL is the URL of the store.
	URL string
	// Durable reports whether the data outlives the process.
	Durable bool
	// Open opens the store, and done closes it, at the latest when the test ends. Only one
	// may be open at a time. A store that is opened again has its data.
	Open func(t testing.TB) (s server.Store, done func())
}

// places creates empty stores, by kind.
var places = map[string]func(testing.TB) Place{"memory": Memory, "sqlite": SQLite, "postgres": PostgreSQL}

// Another returns an empty place of the same kind.
func (p Place) Another(t testing.TB) Place { return places[p.Name](t) }

// EachStore runs a test on an empty store of each kind, or on one of them; see sample.Of.
func EachStore(t *testing.T, test func(*testing.T, Place)) {
	for _, kind := range sample.Of(t, []string{"memory", "sqlite", "postgres"}) {
		t.Run(kind, func(t *testing.T) { test(t, places[kind](t)) })
	}
}

// Memory returns a store in memory. A server that is started after another one has its
// data.
func Memory(t testing.TB) Place {
	s := memstore.Open(t)
	return Place{Name: "memory", URL: store.MemoryURL, Open: func(testing.TB) (server.Store, func()) { return s, func() {} }}
}

// SQLite returns a store in a file of the test.
func SQLite(t testing.TB) Place {
	return durable("sqlite", "sqlite:"+filepath.Join(t.TempDir(), "team.db"))
}

// PostgreSQL returns a store in a schema of the test. Without a PostgreSQL server the test
// is skipped.
func PostgreSQL(t testing.TB) Place { return durable("postgres", pgtest.URL(t)) }

func durable(name, url string) Place {
	return Place{Name: name, URL: url, Durable: true, Open: func(t testing.TB) (server.Store, func()) {
		t.Helper()
		s, err := server.OpenStore(t.Context(), url, server.StoreConfig{Lease: Lease})
		if err != nil {
			t.Fatal(err)
		}
		done := sync.OnceFunc(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close the store: %v", err)
			}
		})
		t.Cleanup(done)
		return s, done
	}}
}
