// Package whole starts, for tests, a complete server from a configuration file.
package whole

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// Server is a running server.
type Server struct {
	rig.Target // with the key of acme/ann
	Running    *serve.Running
	// Stop stops the server. It is called when the test ends, at the latest.
	Stop func()
}

// Open starts a server with a file on a store. The file may use the variables LLM, the URL
// of the model server, and ANN, BOB and EVE, the SHA-256 of the keys of acme/ann, acme/bob
// and other/eve.
func Open(t testing.TB, at rig.Place, file string, llm *fakellm.Server) *Server {
	t.Helper()
	env := map[string]string{
		"LLM": llm.URL, "ANN": rig.Key("acme", "ann").GetSha256(), "BOB": rig.Key("acme", "bob").GetSha256(), "EVE": rig.Key("other", "eve").GetSha256(),
	}
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Store: at.URL, Lease: rig.Lease, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Target: rig.Target{GRPC: r.GRPC, HTTP: "http://" + r.HTTP}.As("acme", "ann"), Running: r}
	s.Stop = sync.OnceFunc(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.Stop)
	return s
}
