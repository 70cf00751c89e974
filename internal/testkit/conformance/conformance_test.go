package conformance_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/agentteams/team-server/internal/testkit/conformance"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/agent/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAgent(t *testing.T) {
	agenttest.Run(t, agenttest.Kind{Want: "hello", ID: "kit", New: func(*testing.T) agent.Agent { return conformance.New(conformance.Config{ID: "kit"}) }})
}
