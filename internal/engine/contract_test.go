package engine_test

import (
	"testing"

	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/testkit/enginetest"
	"github.com/agentteams/team-server/internal/testkit/memstore"
)

func TestLoop(t *testing.T) {
	enginetest.Run(t, enginetest.Engines{
		Open: func(t testing.TB) store.Store { return memstore.Open(t) },
		New:  func(_ testing.TB, c engine.Config) engine.Engine { return engine.New(c) },
	})
}
