package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/google/uuid"
	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Running is a server that runs until its context ends.
type Running struct {
	// HTTP and GRPC are the addresses in use, HOST:PORT.
	HTTP, GRPC string
	// Live is what it serves.
	Live *Live

	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// Wait waits until the server has stopped; it stops with the context it was
// started with.
func (r *Running) Wait(context.Context) error {
	<-r.done
	return r.err
}

// Stop stops the server and waits for it.
func (r *Running) Stop() error {
	r.cancel()
	<-r.done
	return r.err
}

// serving is what a server is made of.
type serving struct {
	live       *Live
	http, grpc net.Listener
	keys       []server.APIKey
	reflection bool
	log        *zap.Logger
}

// start starts a server that runs until ctx ends. On an error nothing is left open.
func start(ctx context.Context, s serving) (*Running, error) {
	memory := store.NewMemory(store.MemoryConfig{Fold: func(root, scope string) store.Fold { return a2a.NewFold(root, scope) }})
	replica := uuid.NewString()
	runs := engine.New(engine.Config{Leases: memory, Replica: replica, Log: s.log.Named("engine")})
	handler := a2a.NewHandler(a2a.Config{
		Agents: s.live, Store: memory, Wake: runs.Wake, DefaultAgent: s.live.Default(), Version: Version(),
		Interfaces: a2a.Interfaces{HTTP: "http://" + reachable(s.http.Addr()), GRPC: reachable(s.grpc.Addr())},
		Security:   security(s.keys),
	})
	srv, err := server.New(server.Config{Handler: handler, Keys: s.keys, NoReflection: !s.reflection, Log: s.log.Named("server")})
	if err != nil {
		return nil, errors.Join(err, s.http.Close(), s.grpc.Close(), s.live.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{HTTP: s.http.Addr().String(), GRPC: s.grpc.Addr().String(), Live: s.live, cancel: cancel, done: make(chan struct{})}
	runner := &a2a.Runner{Agent: s.live.Get, Replica: replica, Log: s.log.Named("run")}
	go r.serve(ctx, srv, server.Listeners{HTTP: s.http, GRPC: s.grpc}, runs, runner)
	return r, nil
}

// serve runs the server and, until that has stopped, the engine.
func (r *Running) serve(ctx context.Context, srv *server.Server, l server.Listeners, runs *engine.Engine, runner *a2a.Runner) {
	defer close(r.done)
	defer r.cancel()
	driving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var engineErr error
	var wg sync.WaitGroup
	wg.Go(func() { engineErr = runs.Serve(driving, runner.Drive) })
	err := srv.Serve(ctx, l)
	stop()
	wg.Wait()
	r.err = errors.Join(err, engineErr, r.Live.Close())
}

// reachable is an address for cards: one that stands for all of the machine's
// is none that others can use.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

// security is what cards say about how to authenticate.
func security(keys []server.APIKey) map[string]*a2av1.SecurityScheme {
	if len(keys) == 0 {
		return nil
	}
	return map[string]*a2av1.SecurityScheme{"bearer": {Scheme: &a2av1.SecurityScheme_HttpAuthSecurityScheme{
		HttpAuthSecurityScheme: &a2av1.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "An API key of this server."},
	}}}
}

func apiKeys(s *teamv1.ServerSettings) []server.APIKey {
	var keys []server.APIKey
	for _, k := range s.GetAuth().GetApiKeys() {
		keys = append(keys, server.APIKey{Name: k.GetName(), Account: k.GetAccount(), SHA256: k.GetSha256()})
	}
	return keys
}

// Serve serves a definition on the addresses given, else on those of the file,
// until ctx ends. It takes no other port, and refuses to be reached from
// elsewhere without API keys.
func Serve(ctx context.Context, def *config.Config, http, grpc string, log *zap.Logger) (*Running, error) {
	settings := def.Server.GetServer()
	http, grpc = first(http, settings.GetHttp(), DefaultHTTP), first(grpc, settings.GetGrpc(), DefaultGRPC)
	keys := apiKeys(settings)
	if len(keys) == 0 {
		for _, address := range []string{http, grpc} {
			if !Loopback(address) {
				return nil, refuse(address)
			}
		}
	}
	h, err := Listen(ctx, "http", http)
	if err != nil {
		return nil, err
	}
	g, err := Listen(ctx, "grpc", grpc)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return startWith(ctx, def, serving{http: h, grpc: g, keys: keys, log: log})
}

func refuse(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address to listen on; expected HOST:PORT, for example 127.0.0.1:8080", address)
	}
	return fmt.Errorf("refusing to serve on %s without authentication.  "+
		"Add server.auth, or listen on loopback behind a proxy that authenticates", first(host, "0.0.0.0"))
}

// startWith builds the agents of a definition and serves them.
func startWith(ctx context.Context, def *config.Config, s serving) (*Running, error) {
	var err error
	if s.live, err = NewLive(def, s.log.Named("agents")); err != nil {
		return nil, errors.Join(err, s.http.Close(), s.grpc.Close())
	}
	return start(ctx, s)
}

// StartLocal serves a definition on free loopback ports: for commands that need
// a server and were given none.
func StartLocal(ctx context.Context, def *config.Config, log *zap.Logger) (*Running, error) {
	h, err := Listen(ctx, "http", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g, err := Listen(ctx, "grpc", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return startWith(ctx, def, serving{http: h, grpc: g, log: log})
}

// first returns the first that is not empty.
func first(options ...string) string {
	for _, s := range options {
		if s != "" {
			return s
		}
	}
	return ""
}
