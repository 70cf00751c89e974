package agenttest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/agent/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFunc(t *testing.T) {
	echo := func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage("echo: " + agent.Text(m)), nil
	}
	agenttest.Run(t, agenttest.Kind{
		ID: "f", Want: "echo: hello",
		New: func(*testing.T) agent.Agent { return &agent.Func{ID: "f", Call: echo} },
		Held: func(*testing.T) (agent.Agent, <-chan struct{}) {
			started := make(chan struct{})
			return &agent.Func{ID: "f", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				close(started)
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}, started
		},
		Panicking: func(*testing.T) agent.Agent {
			return &agent.Func{ID: "f", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) { panic("bug") }}
		},
		Down: func(*testing.T) agent.Agent {
			return &agent.Func{ID: "f", Call: echo, Health: func(context.Context) (*teamv1.Health, error) { return agent.Unhealthy("no"), nil }}
		},
	})
}
