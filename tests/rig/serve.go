package rig

import (
	"context"
	"flag"
	"net/http"
	"sync"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
)

// VerifyMain runs the tests of a package, stops the database that they started, and checks
// for leaked goroutines. Tests with servers wait most of the time, so it runs eight parallel
// ones at a time; the flag -parallel takes precedence.
func VerifyMain(m *testing.M) {
	flag.Parse()
	sample.Default("test.parallel", "8")
	pgtest.Main(closing{m})
}

// closing closes idle connections of the default HTTP client before the check for leaks.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	http.DefaultClient.CloseIdleConnections()
	return code
}

// Serve serves on free loopback ports until the test ends. models are the model servers
// that its agents call, see Invariants.
func Serve(t testing.TB, c server.Config, models ...Models) Target {
	t.Helper()
	target, _ := Start(t, c, models...)
	return target
}

// Start serves on free loopback ports until stop is called or the test ends. Then it first
// checks the invariants of the tasks. stop returns when all goroutines of the server have
// ended.
func Start(t testing.TB, c server.Config, models ...Models) (target Target, stop func()) {
	t.Helper()
	s := &teamv1.ServerSettings{}
	proto.Merge(s, c.Settings)
	s.Grpc, s.Http = "127.0.0.1:0", "127.0.0.1:0"
	if s.GetEgress() == nil { // webhooks of tests are on this machine
		s.Egress = &teamv1.EgressSettings{Allow: egress.Loopback()}
	}
	c.Settings = s
	if c.Store == nil {
		c.Store = memstore.Open(t)
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	c.Log = Logger(t, c.Log.Core())
	started, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- started.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections() // a server waits seconds for an unused connection
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	target = Target{GRPC: started.Addrs().GRPC, HTTP: started.Addrs().URL}
	t.Cleanup(func() {
		if _, isTest := t.(*testing.T); isTest && !t.Failed() && ctx.Err() == nil {
			Invariants{Target: target, Store: c.Store, Models: models, keyed: len(s.GetAuth().GetApiKeys()) > 0}.all(t, owners(c))
		}
	})
	return target, stop
}

// Manager returns an agent manager with agents under their IDs. It is closed when the test
// ends.
func Manager(t testing.TB, agents ...agent.Agent) *manager.Manager {
	t.Helper()
	m := manager.New(manager.Config{})
	t.Cleanup(m.Close)
	for _, a := range agents {
		info, err := a.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Register(info.GetId(), a); err != nil {
			t.Fatal(err)
		}
	}
	return m
}
