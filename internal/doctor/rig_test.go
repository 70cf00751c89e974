package doctor_test

import (
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/pkg/secret"
)

func keysOf(id, value string) []secret.Key { return []secret.Key{{ID: id, Value: secret.New(value)}} }

// startServer serves an agent with a store until the end of the test.
func startServer(t *testing.T, url string) *serve.Running {
	t.Helper()
	def, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return start(t, def, url)
}

// startWith serves a file, with a store in memory, until the end of the test.
func startWith(t *testing.T, file string) *serve.Running {
	t.Helper()
	def, err := config.Loader{}.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, def, "")
}

func start(t *testing.T, def *config.Config, url string) *serve.Running {
	t.Helper()
	r, err := serve.Start(t.Context(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Store: url, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}
