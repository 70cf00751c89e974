package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/server"
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
func (r *Running) Wait() error {
	<-r.done
	return r.err
}

// Stop stops the server and waits for it.
func (r *Running) Stop() error {
	r.cancel()
	<-r.done
	return r.err
}

// start serves until ctx ends. On an error nothing is left open.
func start(ctx context.Context, live *Live, c server.Config) (*Running, error) {
	c.Agents, c.DefaultAgent, c.Version = live, live.Default(), Version()
	s, err := server.New(c)
	if err != nil {
		return nil, errors.Join(err, live.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{
		HTTP: c.Listeners.HTTP.Addr().String(), GRPC: c.Listeners.GRPC.Addr().String(),
		Live: live, cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		defer cancel()
		r.err = errors.Join(s.Serve(ctx), live.Close())
	}()
	return r, nil
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
	http, grpc = cmp.Or(http, settings.GetHttp(), DefaultHTTP), cmp.Or(grpc, settings.GetGrpc(), DefaultGRPC)
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
	return startWith(ctx, def, server.Config{
		Listeners: server.Listeners{HTTP: h, GRPC: g}, Keys: keys, NoReflection: true, Log: log,
		PublicURL: settings.GetPublicUrl(), PublicGRPC: settings.GetPublicGrpc(),
	})
}

func refuse(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address to listen on; expected HOST:PORT, for example 127.0.0.1:8080", address)
	}
	return fmt.Errorf("refusing to serve on %s without authentication.  "+
		"Add server.auth, or listen on loopback behind a proxy that authenticates", cmp.Or(host, "0.0.0.0"))
}

// startWith builds the agents of a definition and serves them.
func startWith(ctx context.Context, def *config.Config, c server.Config) (*Running, error) {
	live, err := NewLive(def, c.Log.Named("agents"))
	if err != nil {
		return nil, errors.Join(err, c.Listeners.HTTP.Close(), c.Listeners.GRPC.Close())
	}
	return start(ctx, live, c)
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
	return startWith(ctx, def, server.Config{Listeners: server.Listeners{HTTP: h, GRPC: g}, Log: log})
}
