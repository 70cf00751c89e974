// Package server serves teams and agents over A2A and the Agent service, on
// gRPC, REST and JSON-RPC: a TeamServer wraps a team, or everything that an
// agent manager holds, in a task handler with a store and an engine.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/collab"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/monitor"
	"github.com/agentteams/team-server/internal/push"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Addresses that are listened on where nothing else is set.
const (
	DefaultGRPC = "127.0.0.1:50051"
	DefaultHTTP = "127.0.0.1:8080"
)

// NoListener as an address leaves that listener out.
const NoListener = "-"

// Listeners are where a server is reached. One may be nil.
type Listeners = server.Listeners

// APIKey is a key that callers present as a bearer token.
type APIKey = server.APIKey

// TeamManager manages teams and agents while they are served.
type TeamManager = server.Teams

// Boards says which teams have a board.
type Boards = board.Teams

// PushPolicy says how receivers of push notifications are treated: pauses, tries,
// time. The zero value is usable.
type PushPolicy = push.Policy

// CardKey is a key that signs cards.
type CardKey = cardsign.Key

// Store keeps tasks and hands out the runs that are due.
type Store interface {
	a2a.Store
	engine.Leases
}

// Config of a TeamServer. Agent or Agents is required.
type Config struct {
	// Agent is served alone, under the id of its info: a team, or any agent.
	Agent agent.Agent
	// Agents are served, each under its id; the agent manager is one.
	Agents a2a.Agents
	// DefaultAgent answers calls that name no agent; default: the only one there is.
	DefaultAgent string
	// GRPC is the address for gRPC, host:port; default DefaultGRPC. Port 0 takes
	// a free one.
	GRPC string
	// HTTP is the address for REST, JSON-RPC and cards; default DefaultHTTP.
	HTTP string
	// Listeners that are there already; the addresses are then not looked at. New
	// closes them if it fails.
	Listeners Listeners
	// PublicURL is the base URL by which others reach HTTP, for cards; default:
	// the address that is listened on.
	PublicURL string
	// PublicGRPC is the host:port by which others reach gRPC, for cards.
	PublicGRPC string
	// CardInterfaces are the bindings that cards name, the preferred one first. Bindings
	// that are left out are still served. Default: a2a.Bindings.
	CardInterfaces []string
	// Keys are the API keys that callers may present. Without any, everybody is
	// local/local, and only loopback addresses are served: over HTTP as localhost, a
	// loopback address, or PublicURL, and to pages of these origins.
	Keys []APIKey
	// CardKeys sign the cards, each of them; where there are several, a key is being
	// replaced. Default: cards are not signed. The public keys are served at
	// /.well-known/jwks.json, which signatures name where PublicURL is set.
	CardKeys []CardKey
	// TrustedProxies are addresses of proxies whose X-Forwarded-For names the caller. If
	// there is no PublicURL, their X-Forwarded-Proto, -Host and -Prefix name the URL in
	// cards.
	TrustedProxies []netip.Prefix
	// Origins are the origins of pages in browsers that may call over HTTP, such as
	// https://app.example; "*" allows every origin, but only with Keys. Default: only
	// pages of this server.
	Origins []string
	// OriginHeaders are request headers that these pages may send in addition to those
	// that the server reads.
	OriginHeaders []string
	// ExtendedCards returns the extended cards of an agent: a caller gets the first
	// that is for it. Default: there are none. Safe for concurrent use.
	ExtendedCards func(agentID string) []a2a.ExtendedCard
	// StrictVersion refuses calls that name no A2A-Version.
	StrictVersion bool
	// RequireTeamRun refuses calls of A2A that do not activate the team-run extension
	// (a2a.TeamRunURI); cards say so.
	RequireTeamRun bool
	// ForgetMessageIDs treats every message as new, even if its id was sent before.
	// Default: a repeated message gets the answer of the first one.
	ForgetMessageIDs bool
	// RefuseWhileWorking refuses messages to a task that asks for nothing. Default:
	// its agent sees them at its next decision.
	RefuseWhileWorking bool
	// NoV03 turns A2A 0.3 off, which is served beside 1.0 otherwise.
	NoV03 bool
	// NoReflection leaves gRPC reflection out.
	NoReflection bool
	// Store keeps the tasks, see OpenStore; default: the memory of this process.
	// One that fails ends Serve.
	Store Store
	// Replica names this process in the records of runs; what makes it unique is
	// added. Default: that alone.
	Replica string
	// Teams manages teams and agents over the wire, by team.v1.TeamService and
	// RegistryService; default: nobody can.
	Teams TeamManager
	// Definitions says what the teams of collaborations are made of; default: what is
	// known of them is what they do.
	Definitions collab.Teams
	// Boards says which teams have a board, for team.v1.BoardService and the monitor. The
	// store has to keep them; those of OpenStore do. Default: there are none.
	Boards Boards
	// Slots is how many runs are driven at the same time; default 256.
	Slots int
	// Version of the program, for cards and records.
	Version string
	// Ready says why the server should get no calls; nil: it should.
	Ready func() error
	// DrainDelay is how long a stopping server still accepts calls, so that load balancers
	// see that it is not ready; default 0. Close ends it, and so does a store that fails.
	DrainDelay time.Duration
	// DrainTime is how long calls may take to end when it stops; default 20 s.
	DrainTime time.Duration
	// Streams bounds the streams that are open, and says where they are closed.
	Streams a2a.Streams
	// NoPush refuses push notifications. A store that keeps no configurations
	// (a2a.Pushes) does so too.
	NoPush bool
	// Push says how their receivers are treated.
	Push PushPolicy
	// StallTime is how long the reader of a stream may take nothing before the
	// stream is ended; default 30 s.
	StallTime time.Duration
	// Log gets one line a call, and what callers must not see; nil logs nothing.
	Log *zap.Logger
}

// Addrs are where a TeamServer is reached.
type Addrs struct {
	// GRPC is host:port; empty without a listener.
	GRPC string
	// URL is the base of REST, JSON-RPC and cards: http://host:port; empty
	// without a listener.
	URL string
}

// TeamServer serves agents. It is used once: New, then Serve or Close.
type TeamServer struct {
	core
	listeners Listeners
	server    *server.Server
}

// core is a server without its bindings.
type core struct {
	handler *a2a.Handler
	engine  *engine.Engine
	runner  *drive.Runner
	store   Store
	telling *telling // nil: nobody is told
}

// New returns a server that listens; it answers once Serve is called. Errors: a
// configuration that makes no sense, an address that cannot be listened on, an
// address beyond the loopback without keys.
func New(c Config) (*TeamServer, error) {
	if err := c.complete(); err != nil {
		return nil, errors.Join(err, closeAll(c.Listeners))
	}
	l := c.Listeners
	if l == (Listeners{}) {
		var err error
		if l, err = listen(c.GRPC, c.HTTP); err != nil {
			return nil, err
		}
	}
	s, err := build(c, l)
	if err == nil {
		err = s.server.Admit(l)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(l))
	}
	return s, nil
}

// complete puts defaults in place.
func (c *Config) complete() error {
	if (c.Agent == nil) == (c.Agents == nil) {
		return errors.New("server.Config needs Agent or Agents, and not both")
	}
	if c.Agent != nil {
		one, err := single(c.Agent)
		if err != nil {
			return err
		}
		c.Agents = one
	}
	for i, binding := range c.CardInterfaces {
		if !slices.Contains(a2a.Bindings(), binding) || slices.Contains(c.CardInterfaces[:i], binding) {
			return fmt.Errorf("server.Config.CardInterfaces has %q; expected some of %s, each once", binding, strings.Join(a2a.Bindings(), ", "))
		}
	}
	c.GRPC = cmp.Or(c.GRPC, DefaultGRPC)
	c.HTTP = cmp.Or(c.HTTP, DefaultHTTP)
	if c.Store == nil {
		c.Store = store.NewMemory(store.MemoryConfig{})
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return nil
}

// signing returns what signs cards; nil: nothing does.
func signing(c *Config) (*cardsign.Signer, error) {
	if len(c.CardKeys) == 0 {
		return nil, nil //nolint:nilnil // cards are not signed
	}
	jku := ""
	if c.PublicURL != "" {
		jku = c.PublicURL + "/.well-known/jwks.json"
	}
	return cardsign.NewSigner(c.CardKeys, jku)
}

// newCore puts tasks, store and engine together; at are the addresses for cards.
func newCore(c *Config, at Addrs, sign *cardsign.Signer) (core, error) {
	replica := strings.TrimPrefix(c.Replica+"-"+rand.Text(), "-")
	e := engine.New(engine.Config{Leases: c.Store, Slots: c.Slots, Replica: replica, Log: c.Log.Named("engine")})
	config := a2a.Config{
		Agents: c.Agents, Store: c.Store, Wake: e.Wake, DefaultAgent: c.DefaultAgent, Version: c.Version,
		Interfaces: a2a.Interfaces{HTTP: cmp.Or(c.PublicURL, at.URL), GRPC: at.GRPC, Shown: c.CardInterfaces},
		Security:   security(c.Keys), Clock: c.Store.Now, Streams: c.Streams, NoPush: c.NoPush, RequireTeamRun: c.RequireTeamRun,
		RefuseWhileWorking: c.RefuseWhileWorking, ForgetMessageIDs: c.ForgetMessageIDs,
		Extended: c.ExtendedCards,
	}
	if sign != nil {
		config.Sign = sign.Sign
	}
	h := a2a.NewHandler(config)
	runner := &drive.Runner{Agent: c.Agents.Get, Tasks: h, Replica: replica, Clock: c.Store.Now, Log: c.Log.Named("run")}
	if p, ok := c.Agents.(a2a.Pinner); ok {
		runner.Pinned = p.Pinned
	}
	runner.Conversations, _ = c.Store.(a2a.Conversations) // a nil one: agents remember nothing
	t, err := newTelling(c, h, config.Interfaces.HTTP)
	return core{handler: h, engine: e, runner: runner, store: c.Store, telling: t}, err
}

// build puts the parts together.
func build(c Config, l Listeners) (*TeamServer, error) {
	sign, err := signing(&c)
	if err != nil {
		return nil, err
	}
	at := public(l)
	if at.GRPC != "" { // without gRPC there is no address, even if the caller names one
		at.GRPC = cmp.Or(c.PublicGRPC, at.GRPC)
	}
	k, err := newCore(&c, at, sign)
	if err != nil {
		return nil, err
	}
	watching := monitor.Config{Handler: k.handler, Clock: c.Store.Now}
	kept, boards := c.Store.(board.Store)
	if boards = boards && c.Boards != nil; boards {
		watching.Boards, watching.BoardTeams = board.New(kept), c.Boards
	}
	m := monitor.New(watching)
	config := server.Config{
		Handler: k.handler, Teams: c.Teams, Monitor: m,
		Keys: c.Keys, BaseURL: cmp.Or(c.PublicURL, at.URL), PublicURL: c.PublicURL, TrustedProxies: c.TrustedProxies, Origins: c.Origins, OriginHeaders: c.OriginHeaders, Version: c.Version, StrictVersion: c.StrictVersion, RequireTeamRun: c.RequireTeamRun,
		NoV03: c.NoV03, NoReflection: c.NoReflection,
		Ready: ready(c), DrainDelay: c.DrainDelay, Hurry: failed(c.Store), DrainTime: c.DrainTime, StallTime: c.StallTime, Log: c.Log.Named("server"),
	}
	slots, _ := c.Store.(collab.Slots)
	config.Collaborations = collab.New(collab.Config{Handler: k.handler, Teams: c.Definitions, Slots: slots, Full: k.engine.Full, Clock: c.Store.Now})
	if boards {
		config.Board = board.NewService(watching.Boards, c.Boards, m)
	}
	if sign != nil {
		config.JWKS = sign.JWKS()
	}
	s, err := server.New(config)
	if err != nil {
		return nil, err
	}
	return &TeamServer{core: k, listeners: l, server: s}, nil
}

// security is what cards say about how to authenticate.
func security(keys []APIKey) map[string]*a2av1.SecurityScheme {
	if len(keys) == 0 {
		return nil
	}
	bearer := &a2av1.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "An API key of this server."}
	return map[string]*a2av1.SecurityScheme{
		"apiKey": {Scheme: &a2av1.SecurityScheme_HttpAuthSecurityScheme{HttpAuthSecurityScheme: bearer}},
	}
}

// Serve answers calls and drives tasks until ctx ends, which is no error. Then
// it takes no new calls, tells streams and waiting calls that it goes, and
// leaves tasks that are not done to whoever opens the store next, or shares it;
// with the default store they are lost. The store stays open. A store that can
// acknowledge nothing more ends it with ErrStoreFailed.
func (s *TeamServer) Serve(ctx context.Context) error {
	runs, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	var driving sync.WaitGroup
	var driven error
	driving.Go(func() {
		defer cancel()
		driven = s.engine.Serve(runs, s.runner.Drive)
	})
	driving.Go(func() { guard(serving, s.store, cancel) })
	driving.Go(func() { s.telling.serve(runs) })
	err := s.server.Serve(serving, s.listeners)
	cancel()
	stop()
	driving.Wait()
	return errors.Join(err, driven, failure(s.store))
}

// Addrs returns where the server is reached, with the ports that were chosen.
func (s *TeamServer) Addrs() Addrs { return addrs(s.listeners) }

// Close closes the listeners of a server that was never served, or of one that is
// stopping. The latter skips the rest of its DrainDelay, as at a second signal.
func (s *TeamServer) Close() error { return closeAll(s.listeners) }
