//go:build linux

package main_test

import (
	"testing"
	"time"

	"github.com/agentteams/team-server/cmd/team-server-temporal/internal/temporal"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/enginetest"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// TestTemporal_Contract: the engine does what that of the stores does.
func TestTemporal_Contract(t *testing.T) {
	t.Parallel()
	s := start(t, agents)
	enginetest.Run(t, enginetest.Engines{
		Open: func(t testing.TB) store.Store {
			opened, err := sqlstore.Open(t.Context(), pgtest.URL(t), sqlstore.Config{Lease: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() })
			return opened
		},
		New: func(t testing.TB, c engine.Config) engine.Engine {
			e, err := temporal.New(c, &teamv1.TemporalSettings{Address: s.door.address(), Namespace: s.namespace, TaskQueue: t.Name()})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	})
}
