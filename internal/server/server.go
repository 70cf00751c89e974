// Package server serves A2A and the services of team-server over three bindings: gRPC, REST and JSON-RPC. It puts its rooms
// together and stops them: package conn counts connections, grpcapi and httpapi are the bindings, which differ in encoding
// only, package call has what all calls have in common, and service calls what implements them.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/conn"
	"github.com/agentteams/team-server/internal/server/grpcapi"
	"github.com/agentteams/team-server/internal/server/httpapi"
	"github.com/agentteams/team-server/internal/server/mcpdoor"
	"github.com/agentteams/team-server/internal/server/openai"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Server. Only Handler is required.
type Config struct {
	// Handler implements the A2A and Agent services; an *a2a.Handler.
	Handler service.Handler
	// Teams implements the team and registry services. If nil, they are not served.
	Teams service.Teams
	// Monitor implements the monitor service. If nil, it is not served.
	Monitor service.Monitor
	// Collaborations implements the collaboration service. If nil, it is not served.
	Collaborations service.Collaborations
	// Board implements the board service. If nil, it is not served.
	Board teamv1.BoardServiceServer
	// Accounts implements the account service. If nil, it is not served.
	Accounts teamv1.AccountServiceServer
	// Keys implements the key service. If nil, it is not served.
	Keys teamv1.KeyServiceServer
	// Audits implements the audit service. If nil, it is not served.
	Audits teamv1.AuditServiceServer
	// Refused records refused calls in the audit log; nil records nothing.
	Refused *audit.Refusals
	// Halts implements the halt service. If nil, it is not served.
	Halts teamv1.HaltServiceServer
	// Settings are those in effect, which may be replaced. Requests that have begun end with the settings with which they
	// began, and connections that are open stay open. Nil means the defaults.
	Settings *settings.Live
	// Auth says who calls. If it is nil every caller is local/local, and the server listens on
	// loopback only. It then accepts HTTP requests only if their Host is localhost, a loopback
	// address or the host of public_url. A request that a page sent must also come from a page
	// of one of these hosts or of cors.origins.
	Auth auth.Authenticator
	// SignIns returns the issuers with which users of the Team Monitor sign in; nil means none.
	SignIns func() []auth.SignIn
	// TLS returns the configuration of a listener that offers the given protocols of ALPN. If TLS
	// is nil, the server does not use TLS, and listens on loopback only unless a proxy does TLS.
	TLS func(protocols ...string) *tls.Config
	// Version is the version of the program, for the API description.
	Version string
	// NoReflection turns gRPC reflection off.
	NoReflection bool
	// Ready returns an error while the server should receive no calls. If Ready is nil, it
	// always should.
	Ready func() error
	// RecheckInterval is how often the rights of the callers of streams, and of calls that wait
	// for work, are checked again; the default is 5 s.
	RecheckInterval time.Duration
	// Hurry ends the drain delay early when it is closed; it may be nil. The delay also ends
	// when a listener is closed.
	Hurry <-chan struct{}
	// HealthInterval is how often Watch checks a health; the default is 5 s.
	HealthInterval time.Duration
	// StallTime is how long the reader of a stream may accept no data before the stream is
	// ended; the default is 30 s.
	StallTime time.Duration
	// Use limits what accounts use of the server; nil means no limits.
	Use call.Use
	// Memory is the budget of what calls hold in memory; nil means no limit.
	Memory *inflight.Budget
	// Metrics measures requests; nil measures nothing.
	Metrics *metrics.Calls
	// Traces makes spans of calls; nil makes none.
	Traces *tracing.Tracer
	// Log receives a line about each request, some of those that are alike under load. If Log is nil, nothing
	// is logged.
	Log *zap.Logger
}

// Listeners are the listeners of a Server. One of them may be nil.
type Listeners struct {
	GRPC net.Listener
	HTTP net.Listener
}

// Server serves the services of its Config. Serve may be called once.
type Server struct {
	config      Config
	log         *zap.Logger
	chain       *call.Chain
	connections *conn.Connections
	grpc        *grpcapi.API
	http        *httpapi.API
	serving     atomic.Bool
}

// New returns a server.
func New(config Config) (*Server, error) {
	if config.Handler == nil {
		return nil, errors.New("server.Config.Handler is required")
	}
	config.HealthInterval = cmp.Or(config.HealthInterval, 5*time.Second)
	config.RecheckInterval = cmp.Or(config.RecheckInterval, 5*time.Second)
	config.StallTime = cmp.Or(config.StallTime, 30*time.Second)
	if config.Log == nil {
		config.Log = zap.NewNop()
	}
	if config.Settings == nil {
		config.Settings = settings.Of(nil)
	}
	s := &Server{config: config, log: config.Log, connections: conn.New(config.Settings, config.Log)}
	s.chain = call.New(call.Config{
		Settings: config.Settings, Auth: config.Auth, Use: config.Use, Memory: config.Memory, Refused: config.Refused,
		Metrics: config.Metrics, Traces: config.Traces, RecheckInterval: config.RecheckInterval, Log: config.Log,
	})
	table := service.New(service.Config{
		Handler: config.Handler, Teams: config.Teams, Monitor: config.Monitor, Collaborations: config.Collaborations, Board: config.Board,
		Accounts: config.Accounts, Keys: config.Keys, Audits: config.Audits, Halts: config.Halts,
	}, s.chain)
	s.grpc = grpcapi.New(grpcapi.Config{
		TLS: config.TLS, NoReflection: config.NoReflection, Ready: s.Ready, HealthInterval: config.HealthInterval, StallTime: config.StallTime, Log: config.Log,
	}, s.chain, table)
	web := httpapi.Config{
		TLS: config.TLS, SignIns: config.SignIns, Ready: s.Ready, Version: config.Version, StallTime: config.StallTime, Log: config.Log,
	}
	now := config.Settings.Load()
	if of := now.GetOpenai(); of != nil {
		web.OpenAI = openai.New(openai.Config{Settings: of, StallTime: config.StallTime}, table)
	}
	if now.GetMcp() != nil {
		web.MCP = mcpdoor.New(mcpdoor.Config{Chain: s.chain, Table: table, Version: config.Version, StallTime: config.StallTime})
	}
	var err error
	s.http, err = httpapi.New(web, s.chain, table)
	return s, err
}

// Serve serves until ctx ends, which is not an error, or a listener fails. Then it stops:
// it reports that it is not ready, accepts no new calls, ends streams and calls that wait
// for work with ErrShutdown, and gives the other calls shutdown_timeout to end. It closes the
// listeners, unless Admit rejects them.
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
			if err := serve(s.connections.Limit(l)); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving on %s: %w", l.Addr(), err)
			}
		})
	}
	start(l.GRPC, s.grpc.Serve)
	start(l.HTTP, s.http.Serve)
	checking, stopChecks := context.WithCancel(context.Background())
	serving.Go(func() { s.chain.Recheck(checking) })
	s.serving.Store(true)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.serving.Store(false)
	now := s.config.Settings.Load()
	s.log.Info("shutting down: not ready", zap.Duration("drain_delay", now.GetDrainDelay().AsDuration()), zap.Duration("shutdown_timeout", now.GetShutdownTimeout().AsDuration()), zap.Error(err))
	if err == nil {
		err = s.delay(failed)
	}
	s.stop()
	stopChecks()
	serving.Wait()
	return err
}

// Admit returns an error if a listener is reachable from other machines and the server has no
// authentication or no TLS. Serve calls it first.
func (s *Server) Admit(l Listeners) error {
	if l.GRPC == nil && l.HTTP == nil {
		return errors.New("no listener; set an address for gRPC or HTTP")
	}
	for _, l := range []net.Listener{l.GRPC, l.HTTP} {
		if l == nil {
			continue
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			if err := Refuse(displayIP(a.IP), s.config.Auth != nil, s.config.TLS != nil || s.config.Settings.Load().GetTls().GetTerminatedByProxy()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Refuse returns the error for listening on a host that other machines reach, without authentication
// or without TLS.
func Refuse(host string, authenticates, encrypts bool) error {
	switch {
	case !authenticates:
		return fmt.Errorf("refusing to serve on %s without authentication; "+
			"add server.auth, or listen on loopback behind a proxy that authenticates", host)
	case !encrypts:
		return fmt.Errorf("refusing to serve on %s without TLS, because keys and messages could be read on the way; "+
			"add server.tls: {cert: FILE, key: FILE}, or, behind a proxy that does TLS, server.tls: {terminated_by_proxy: true}", host)
	}
	return nil
}

func displayIP(ip net.IP) string {
	if ip.IsUnspecified() {
		return "0.0.0.0"
	}
	return ip.String()
}

// Ready returns nil if the server should receive calls, or the reason why not.
func (s *Server) Ready() error {
	switch {
	case !s.serving.Load():
		return errors.New("starting")
	case s.chain.Closing().Err() != nil:
		return agent.ErrShutdown
	case s.config.Ready != nil:
		return s.config.Ready()
	}
	return nil
}

// delay waits for the drain delay, for Hurry, or until a listener stops. A closed listener
// is not an error.
func (s *Server) delay(failed <-chan error) error {
	timer := time.NewTimer(s.config.Settings.Load().GetDrainDelay().AsDuration())
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
	s.chain.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Settings.Load().GetShutdownTimeout().AsDuration())
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() { s.http.Stop(ctx) })
	stopping.Go(func() { s.grpc.Stop(ctx) })
	stopping.Wait()
}
