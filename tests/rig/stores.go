package rig

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/pgtest"
	"github.com/agentteams/team-server/internal/race"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/server"
)

// Lease is that of the stores opened here: how long another server waits for one
// that does not say that it goes.
const Lease = 3 * time.Second

// Place is where a store keeps what it keeps.
type Place struct {
	// Name is "memory", "sqlite" or "postgres".
	Name string
	// URL of the store.
	URL string
	// Durable: what is kept outlives the process.
	Durable bool
	// Open opens the store; done closes it, at the latest when the test ends. One
	// at a time: opened again it has what it had.
	Open func(t testing.TB) (s server.Store, done func())
}

// places are empty stores, by the name of their kind.
var places = map[string]func(testing.TB) Place{"memory": Memory, "sqlite": SQLite, "postgres": PostgreSQL}

// Another returns an empty place of the same kind.
func (p Place) Another(t testing.TB) Place { return places[p.Name](t) }

// EachStore runs a test once for each kind of store, on an empty one; with the race
// detector for one kind alone, see race.Sample.
func EachStore(t *testing.T, test func(*testing.T, Place)) {
	for _, kind := range race.Sample(t, []string{"memory", "sqlite", "postgres"}) {
		t.Run(kind, func(t *testing.T) { test(t, places[kind](t)) })
	}
}

// Memory is what the process keeps: a server that follows another has what that had.
func Memory(testing.TB) Place {
	s := store.NewMemory(store.MemoryConfig{})
	return Place{Name: "memory", URL: store.MemoryURL, Open: func(testing.TB) (server.Store, func()) { return s, func() {} }}
}

// SQLite is a file of the test's own.
func SQLite(t testing.TB) Place {
	return durable("sqlite", "sqlite:"+filepath.Join(t.TempDir(), "team.db"))
}

// PostgreSQL is a schema of the test's own; without a server the test is skipped.
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
