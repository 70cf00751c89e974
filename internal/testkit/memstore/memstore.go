// Package memstore opens stores in memory for tests.
package memstore

import (
	"context"
	"time"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TB is the part of testing.TB that Open needs. It is implemented by *rapid.T too.
type TB interface {
	Helper()
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Open returns an empty store in memory, which is closed at the end of the test. In a bubble of synctest, t must be
// that of the bubble.
func Open(t TB) *sqlstore.Store {
	t.Helper()
	return OpenAt(t, nil)
}

// OpenAt is like Open, for a store that reads the time from clock.
func OpenAt(t TB, clock func() time.Time) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(context.Background(), store.MemoryURL, sqlstore.Config{Clock: clock})
	if err != nil {
		t.Fatalf("open a store in memory: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store in memory: %v", err)
		}
	})
	return s
}
