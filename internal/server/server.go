// Package server is the way in: one server behind three bindings, gRPC, REST and
// JSON-RPC. They differ in form only; what holds for every call is in call.go.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config of a Server. Only Handler is required.
type Config struct {
	// Handler answers the calls; an *a2a.Handler.
	Handler Handler
	// Teams manages teams while they are served; nil: nobody can.
	Teams Teams
	// Monitor answers the calls of the monitor service; nil: it is not served.
	Monitor Monitor
	// Collaborations answers the calls of the collaboration service; nil: it is not
	// served.
	Collaborations Collaborations
	// Board answers the calls of the board service; nil: it is not served.
	Board Board
	// Keys are the API keys that callers may present. Without any, every caller
	// is local/local, and only loopback addresses are served: over HTTP as localhost,
	// a loopback address, or PublicURL, and to pages of these origins.
	Keys []APIKey
	// BaseURL is the URL of REST. Answers use it for parts that they replace by their URL.
	BaseURL string
	// PublicURL is the URL by which others reach HTTP; empty: there is none.
	PublicURL string
	// StrictVersion refuses calls that name no A2A-Version.
	StrictVersion bool
	// RequireTeamRun refuses calls of A2A that do not activate a2a.TeamRunURI.
	RequireTeamRun bool
	// NoV03 turns A2A 0.3 off: its methods, its paths, and its part of the cards.
	NoV03 bool
	// Version of the program, for its documents.
	Version string
	// NoReflection leaves gRPC reflection out.
	NoReflection bool
	// Ready says why the server should get no calls; nil: it should.
	Ready func() error
	// DrainDelay is how long a stopping server still takes calls, so that load
	// balancers see that it is not ready; 0.
	DrainDelay time.Duration
	// Hurry ends the DrainDelay when it is closed; a nil channel never does. A listener
	// that closes also ends it.
	Hurry <-chan struct{}
	// DrainTime is how long calls may take to end when the server stops; 20 s.
	DrainTime time.Duration
	// HealthInterval is how often a watched health is looked at; 5 s.
	HealthInterval time.Duration
	// StallTime is how long the reader of a stream may take nothing before the
	// stream is ended; 30 s.
	StallTime time.Duration
	// JWKS is the set of public keys of signed cards; nil: none is served.
	JWKS []byte
	// TrustedProxies are proxies whose X-Forwarded headers name the caller and, if there
	// is no PublicURL, the URL for cards.
	TrustedProxies []netip.Prefix
	// Origins are the origins of pages that may call, such as https://app.example; "*"
	// allows every origin on a server with keys. Default: only those of this server.
	Origins []string
	// OriginHeaders are request headers that these pages may send in addition to those
	// that the server reads.
	OriginHeaders []string
	// Log gets one line a call; nil logs nothing.
	Log *zap.Logger
}

// Listeners are where a Server is reached. One may be nil.
type Listeners struct {
	GRPC net.Listener
	HTTP net.Listener
}

// Server serves one Handler. It is used once.
type Server struct {
	a2av1.UnimplementedA2AServiceServer
	teamv1.UnimplementedAgentServiceServer

	config Config
	h      Handler
	log    *zap.Logger
	keys   *keyring
	open   map[string]bool // paths that need no key
	rpc    map[string]grpc.MethodHandler
	v03    map[string]unaryV03
	cards  cards
	// openAPI describes the REST surface.
	openAPI []byte
	grpc    *grpc.Server
	http    *http.Server

	serving atomic.Bool
	closing context.Context // ends, with cause ErrShutdown, for calls that can last
	close   context.CancelCauseFunc
	pacing  sync.WaitGroup // the goroutines of streams over gRPC

	anonymous anonymous
}

// New returns a server. The error names what is wrong with the keys.
func New(config Config) (*Server, error) {
	if config.Handler == nil {
		return nil, errors.New("server.Config.Handler is required")
	}
	if config.DrainTime == 0 {
		config.DrainTime = 20 * time.Second
	}
	if config.HealthInterval == 0 {
		config.HealthInterval = 5 * time.Second
	}
	if config.StallTime == 0 {
		config.StallTime = 30 * time.Second
	}
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	keys, err := newKeyring(config.Keys, config.Log)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, h: config.Handler, log: config.Log, keys: keys, open: openFiles()}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.rpc = rpcMethods()
	s.v03 = unaryMethodsV03()
	if s.openAPI, err = openAPI(config.Version); err != nil {
		return nil, err
	}
	s.grpc = s.newGRPC()
	s.http, err = s.newHTTP()
	return s, err
}

// Serve serves until ctx ends, which is no error, or a listener fails; then it
// stops: it turns not ready, takes no new calls, tells streams and waiting calls
// to go elsewhere, and gives the others DrainTime to end. It closes the
// listeners, except those it refuses to serve on.
func (s *Server) Serve(ctx context.Context, l Listeners) error {
	if err := s.Admit(l); err != nil {
		return err
	}
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	start := func(l net.Listener, serve func(net.Listener) error) {
		if l == nil {
			return
		}
		serving.Go(func() {
			if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving on %s: %w", l.Addr(), err)
			}
		})
	}
	start(l.GRPC, func(l net.Listener) error { return s.grpc.Serve(narrow{l}) })
	start(l.HTTP, func(l net.Listener) error { return s.http.Serve(narrow{l}) })
	s.serving.Store(true)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.serving.Store(false)
	if err == nil {
		err = s.delay(failed)
	}
	s.stop()
	serving.Wait()
	return err
}

// Admit refuses to serve the world without authentication; Serve asks it first.
func (s *Server) Admit(l Listeners) error {
	if l.GRPC == nil && l.HTTP == nil {
		return errors.New("no address to serve on")
	}
	if s.keys.enabled() {
		return nil
	}
	for _, l := range []net.Listener{l.GRPC, l.HTTP} {
		if l == nil {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			return fmt.Errorf("refusing to serve on %s without authentication.  "+
				"Add server.auth, or listen on loopback behind a proxy that authenticates", shown(a.IP))
		}
	}
	return nil
}

func shown(ip net.IP) string {
	if ip.IsUnspecified() {
		return "0.0.0.0"
	}
	return ip.String()
}

// Ready says why the server should get no calls, nil if it should.
func (s *Server) Ready() error {
	switch {
	case !s.serving.Load():
		return errors.New("starting")
	case s.closing.Err() != nil:
		return agent.ErrShutdown
	case s.config.Ready != nil:
		return s.config.Ready()
	}
	return nil
}

// delay waits for DrainDelay, for Hurry, or until a listener stops. A closed listener
// is not an error.
func (s *Server) delay(failed <-chan error) error {
	timer := time.NewTimer(s.config.DrainDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.config.Hurry:
	case err := <-failed:
		if !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

func (s *Server) stop() {
	s.close(agent.ErrShutdown)
	ctx, cancel := context.WithTimeout(context.Background(), s.config.DrainTime)
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() { s.stopHTTP(ctx) })
	stopping.Go(func() { s.stopGRPC(ctx) })
	stopping.Wait()
	s.pacing.Wait()
	s.keys.guesses.flush()
}

func (s *Server) stopHTTP(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("cut HTTP calls that did not end", zap.Error(err))
		_ = s.http.Close() // the listener is closed already
	}
}

// stopGRPC is GracefulStop with an end: it waits for streams without one.
func (s *Server) stopGRPC(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
		s.log.Warn("cut gRPC calls that did not end")
		s.grpc.Stop()
		<-done
	}
}
