// Package server serves teams and agents over A2A and the Agent service, with gRPC, REST
// and JSON-RPC. A TeamServer serves one agent, or all agents of an agent manager.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/collab"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/monitor"
	"github.com/agentteams/team-server/internal/push"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/memory"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Default addresses.
const (
	DefaultGRPC = "127.0.0.1:50051"
	DefaultHTTP = "127.0.0.1:8080"
)

// NoListener disables the listener whose address it is.
const NoListener = "-"

// Listeners are the listeners of a server. One of them may be nil.
type Listeners = server.Listeners

// APIKey is a key that callers present as a bearer token.
type APIKey = auth.APIKey

// CertificateClient is a client that is identified by its certificate.
type CertificateClient = auth.CertificateClient

// Issuer is an issuer of tokens that callers present as bearer tokens.
type Issuer = auth.Issuer

// PageClient is the Team Monitor as a client of an Issuer, with which its users sign in.
type PageClient = auth.PageClient

// TLS says how the listeners use TLS. The zero value means not at all.
type TLS struct {
	// CertFile has the certificate of the server in PEM, followed by its intermediates, and
	// KeyFile its key. Both are read again when they change.
	CertFile, KeyFile string
	// ClientCAFile has the authorities in PEM that sign the certificates of clients; "" means
	// that clients are not asked for one.
	ClientCAFile string
	// RequireClient refuses clients without a certificate.
	RequireClient bool
	// ByProxy says that a proxy in front of the server does TLS. The server then listens beyond
	// loopback without it.
	ByProxy bool
}

// TeamManager implements the services that create, change and delete teams and agents.
type TeamManager = server.Teams

// Boards gives access to the teams that have boards.
type Boards = board.Teams

// PushPolicy configures the retries and timeouts of push notifications. The zero value is
// valid.
type PushPolicy = push.Policy

// LogSampling says which of the lines about requests are left out of the log.
type LogSampling = server.Sampling

// CardKey is a key that signs cards.
type CardKey = cardsign.Key

// Tracing says how a server traces. Its Provider must use TraceIDs as its generator of ids.
type Tracing = tracing.Config

// TraceIDs is the generator of ids for the provider of Tracing.
type TraceIDs = tracing.IDs

// Store stores everything that a server records; see OpenStore. A program that stores a part
// elsewhere embeds a Store in a type of its own and overrides the methods of that part.
type Store = store.Store

// Config configures a TeamServer. Agent or Agents is required.
type Config struct {
	// Agent is the only agent to serve, under the ID of its info. It may be a team.
	Agent agent.Agent
	// Agents are the agents to serve, such as an agent manager.
	Agents a2a.Agents
	// DefaultAgent is the ID of the agent for calls that name none; the default is the only
	// agent, if there is only one.
	DefaultAgent string
	// GRPC is the address for gRPC, in the form host:port; the default is DefaultGRPC. Port
	// 0 selects a free port.
	GRPC string
	// HTTP is the address for REST, JSON-RPC and cards; the default is DefaultHTTP.
	HTTP string
	// Listeners are existing listeners to use instead of GRPC and HTTP. New closes them if
	// it fails.
	Listeners Listeners
	// PublicURL is the base URL at which clients reach HTTP, for cards; the default is the
	// address of the listener.
	PublicURL string
	// PublicGRPC is the host:port at which clients reach gRPC, for cards; the default is
	// the address of the listener.
	PublicGRPC string
	// CardInterfaces are the bindings that cards list, the preferred one first. Bindings
	// that are not listed are still served. The default is a2a.Bindings.
	CardInterfaces []string
	// Keys are the API keys that callers may present. Without Keys, Clients and Issuers every caller is
	// local/local, and the server listens on loopback only. It then accepts HTTP requests
	// only if Host is localhost, a loopback address or the host of PublicURL, and if a page
	// sent them, only pages of those or of Origins.
	Keys []APIKey
	// Clients are callers that are identified by the certificates of their connections, which the
	// authorities of TLS.ClientCAFile have signed.
	Clients []CertificateClient
	// EndedRights says what becomes of tasks whose owners have no valid key, token or certificate any more.
	EndedRights EndedRights
	// Issuers are issuers of tokens that callers may present. The keys of issuers are fetched in the
	// background.
	Issuers []Issuer
	// TLS says how the listeners use TLS. Without it the server listens on loopback only.
	TLS TLS
	// CardKeys are the keys that sign cards and push notifications. Every key signs; use two while one replaces
	// the other. Without keys neither is signed. The public keys are served at
	// /.well-known/jwks.json, which signatures name if PublicURL is set.
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
	// ExtendedCards returns the extended cards of an agent; a caller gets the first one
	// that it may see. If it is nil, there are none. It must be safe for concurrent use.
	ExtendedCards func(agentID string) []a2a.ExtendedCard
	// StrictVersion rejects calls without A2A-Version.
	StrictVersion bool
	// RequireTeamRun rejects A2A calls that do not activate the team-run extension
	// (a2a.TeamRunURI). Cards mark the extension as required.
	RequireTeamRun bool
	// ForgetMessageIDs treats every message as new, even if its id was sent before.
	// Default: a repeated message gets the answer of the first one.
	ForgetMessageIDs bool
	// RefuseWhileWorking rejects messages to a task that is not waiting for one. By default
	// the agent of the task receives them at its next decision.
	RefuseWhileWorking bool
	// NoV03 turns A2A 0.3 off, which is otherwise served in addition to 1.0.
	NoV03 bool
	// NoReflection turns gRPC reflection off.
	NoReflection bool
	// Store stores the tasks, see OpenStore; the default is the memory of this process. If
	// the store fails, Serve returns.
	Store Store
	// Replica names this process in the journals of runs. A random suffix makes it unique;
	// the default is the suffix alone.
	Replica string
	// Teams implements team.v1.TeamService and RegistryService. If nil, they are not served.
	Teams TeamManager
	// Definitions gives access to the definitions of teams, for collaborations. If it is
	// nil, definitions are unknown, and the status of a collaboration is derived from
	// observed work only.
	Definitions collab.Teams
	// Boards gives access to the teams that have boards, for team.v1.BoardService and the
	// monitor. If it is nil, no team has a board.
	Boards Boards
	// Accounts are limits on what the tasks of an account spend together, by account. Without
	// Keys the account is local. Limits that are set by team.v1.AccountService apply to other
	// accounts.
	Accounts map[string]*teamv1.AccountLimits
	// Limits are those of accounts for which the same limit is not set, and of the server.
	Limits *teamv1.LimitSettings
	// Slots is the maximum number of runs that this process drives at the same time; the
	// default is 256.
	Slots int
	// Version is the version of the program, for cards and journals.
	Version string
	// Ready returns an error while the server should receive no calls. If Ready is nil, it
	// always should.
	Ready func() error
	// DrainDelay is how long a stopping server continues to accept calls, so that load
	// balancers notice that it is not ready; the default is 0. It ends early when Close is
	// called or the store fails.
	DrainDelay time.Duration
	// DrainTime is how long running calls may take to end when the server stops; the
	// default is 20 s.
	DrainTime time.Duration
	// Streams limits the number of open streams.
	Streams a2a.Streams
	// NoPush turns push notifications off.
	NoPush bool
	// Egress lists the addresses to which webhooks may lead although they are not public, or not at
	// port 443 or 8443 with https: each a CIDR, an IP address or a host name, with or without :PORT.
	Egress []string
	// Push configures the retries and timeouts of push notifications.
	Push PushPolicy
	// StallTime is how long the reader of a stream may accept no data before the stream is
	// ended; the default is 30 s.
	StallTime time.Duration
	// Meter measures what the server does, see docs/metrics.md; nil measures nothing. Set it in StoreConfig,
	// too.
	Meter metric.Meter
	// NamedInMetrics reports whether metrics name an agent; nil means each. Others have the name "other", as
	// have those beyond the first hundred. It must be safe for concurrent use.
	NamedInMetrics func(agentID string) bool
	// Tracing says what is traced, see docs/tracing.md; the zero value traces nothing.
	Tracing Tracing
	// LogSampling says which of the lines about requests are left out of Log.
	LogSampling LogSampling
	// Log receives a line about each request, some of those that are alike under load, and details of errors
	// that callers must not see. If Log is nil, nothing is logged.
	Log *zap.Logger
}

// Addrs are the addresses of a TeamServer.
type Addrs struct {
	// GRPC is host:port; "" without a listener for gRPC.
	GRPC string
	// URL is the base URL of REST, JSON-RPC and cards, http://host:port or, with TLS,
	// https://host:port; "" without a listener for HTTP.
	URL string
}

// TeamServer serves agents. Call New, then Serve once, or Close. Its other methods may be called at any time.
type TeamServer struct {
	core
	listeners Listeners
	at        Addrs // at which clients reach the listeners, unless the configuration says otherwise
	server    *server.Server
	reloading sync.Mutex // held while a configuration is applied
}

// core is a server without its bindings.
type core struct {
	handler  *a2a.Handler
	engine   *engine.Engine
	runner   *drive.Runner
	store    Store
	auth     *auth.Server       // nil if every caller is accepted
	certs    *auth.Certificates // nil without TLS
	accounts *account.Accounts
	budget   *inflight.Budget
	keeper   *halt.Keeper
	refused  *audit.Refusals
	guard    *egress.Guard // of connections to webhooks
	ender    *ender        // nil if every caller is accepted
	notifier *notifier
	measure  *instruments
	log      *zap.Logger
	traces   *tracing.Tracer // nil without traces
}

// New returns a server that listens but answers calls only once Serve is called. The error
// says what is wrong with the configuration, that an address cannot be listened on, or that
// it is reachable from other machines although there are no keys.
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

// complete validates the configuration and sets defaults.
func (c *Config) complete() error {
	if (c.Agent == nil) == (c.Agents == nil) {
		return errors.New("server.Config needs either Agent or Agents")
	}
	if c.Agent != nil {
		one, err := single(c.Agent)
		if err != nil {
			return err
		}
		c.Agents = one
	}
	if err := c.check(); err != nil {
		return err
	}
	c.GRPC = cmp.Or(c.GRPC, DefaultGRPC)
	c.HTTP = cmp.Or(c.HTTP, DefaultHTTP)
	if c.Store == nil {
		c.Store = memory.New(memory.Config{})
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return nil
}

// signing returns the signer of cards, nil if they are not signed.
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

// certificates reads the files of TLS; it returns nil without.
func (c *Config) certificates() (*auth.Certificates, error) {
	if c.TLS.CertFile == "" && c.TLS.KeyFile == "" {
		if c.TLS.ClientCAFile != "" || c.TLS.RequireClient {
			return nil, errors.New("server.Config.TLS: certificates of clients need TLS; set CertFile and KeyFile")
		}
		return nil, nil //nolint:nilnil // no TLS
	}
	return auth.ReadCertificates(auth.CertificateFiles{
		Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, ClientCA: c.TLS.ClientCAFile, RequireClient: c.TLS.RequireClient,
	}, c.Log.Named("tls"))
}

// newCore builds the handler, the engine and the notifier. at are the addresses in cards.
func newCore(c *Config, at Addrs, sign *cardsign.Signer) (core, error) {
	measure, err := newInstruments(c)
	if err != nil {
		return core{}, err
	}
	traces, err := tracing.New(c.Tracing, c.Version, c.Store.Now)
	if err != nil {
		return core{}, fmt.Errorf("server.Config.Tracing: %w", err)
	}
	certificates, err := c.certificates()
	if err != nil {
		return core{}, err
	}
	by, err := auth.New(auth.Config{Keys: c.Keys, Clients: c.Clients, Issuers: c.Issuers, Certificates: certificates, Store: c.Store, Clock: c.Store.Now, Log: c.Log.Named("auth")})
	if err != nil {
		return core{}, err
	}
	replica := strings.TrimPrefix(c.Replica+"-"+rand.Text(), "-")
	var e *engine.Engine
	limits := c.accountSettings()
	limits.Ledger, limits.Costs, limits.Counts = c.Store, c.Store, c.Store
	limits.Shared, limits.Clock, limits.Log = c.Store.Lease() > 0, c.Store.Now, c.Log.Named("accounts")
	limits.Changed = func() { e.Wake("") }
	accounts := account.New(limits)
	budget := inflight.New(c.memory(), accounts.Weight)
	e = engine.New(engine.Config{Leases: c.Store, Slots: c.Slots, Shares: accounts, Replica: replica, Ended: measure.runs.Broken, Log: c.Log.Named("engine")})
	halts := agent.NewHalts()
	guard, err := c.guard()
	if err != nil {
		return core{}, err
	}
	config := c.handlerSettings(at, sign, guard)
	config.Halts, config.Audit = halts, func(ctx context.Context, action, subject string, details map[string]string) context.Context {
		return audit.Record(ctx, c.Store.Now(), action, subject, details)
	}
	config.Agents, config.Store, config.Overview, config.Approvals, config.Conversations, config.Pushes = c.Agents, c.Store, c.Store, c.Store, c.Store, c.Store
	config.Wake, config.Version, config.Clock, config.ForgetMessageIDs = e.Wake, c.Version, c.Store.Now, c.ForgetMessageIDs
	config.Extended, config.CheckPlan = c.ExtendedCards, workflow.CheckPlan
	config.Admit, config.AdmitGrant, config.MaxCollaborations = accounts.Admit, accounts.AdmitGrant, accounts.MaxCollaborations
	config.Memory = budget
	h := a2a.NewHandler(config)
	runner := &drive.Runner{
		Agent: c.Agents.Get, Tasks: h, Conversations: c.Store, Accounts: accounts, Shares: c.Store, Memory: budget, Halts: halts, Replica: replica, Clock: c.Store.Now, Log: c.Log.Named("run"),
	}
	if p, ok := c.Agents.(a2a.Pinner); ok {
		runner.Pinned = p.Pinned
	}
	t, err := newNotifier(c, h, by, guard, measure.pushes, tracing.NewPushes(traces, firstEvent(c.Store)))
	if err != nil {
		return core{}, err
	}
	t.reload(c, at, sign)
	keeper := halt.NewKeeper(c.Store, halts, replica, func() { e.Wake("") }, c.Log.Named("halt"))
	return core{auth: by, certs: certificates, handler: h, engine: e, runner: runner, store: c.Store, accounts: accounts, budget: budget, keeper: keeper, refused: &audit.Refusals{Store: c.Store, Clock: c.Store.Now, Log: c.Log.Named("audit")}, guard: guard, ender: newEnder(c, by), notifier: t, measure: measure, traces: traces, log: c.Log.Named("server")}, nil
}

// drive returns the function that drives runs, measured and traced. The journal that the runner is given is that of
// the traces, because it implements agent.Spans.
func (k *core) drive() engine.Drive {
	return k.measure.runs.Driving(k.traces.Driving(k.runner.Drive))
}

// prepare reads the keys, and applies the halts in force, before anything can begin.
func (k *core) prepare(ctx context.Context) error {
	if err := k.auth.Refresh(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if err := k.keeper.Refresh(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading the halts: %w", err)
	}
	return nil
}

// build builds the whole server.
func build(c Config, l Listeners) (*TeamServer, error) {
	sign, err := signing(&c)
	if err != nil {
		return nil, err
	}
	listening := public(l, c.TLS.CertFile != "")
	at := c.addresses(listening)
	k, err := newCore(&c, at, sign)
	if err != nil {
		return nil, err
	}
	watching := monitor.Config{Handler: k.handler, Costs: c.Store, Clock: c.Store.Now}
	if c.Boards != nil {
		watching.Boards, watching.BoardTeams = board.New(c.Store), c.Boards
	}
	m := monitor.New(watching)
	config := c.serverSettings(at, sign)
	config.Handler, config.Teams, config.Monitor, config.Version, config.NoReflection = k.handler, c.Teams, m, c.Version, c.NoReflection
	config.Ready, config.Hurry, config.StallTime, config.Log = ready(c), c.Store.Failed(), c.StallTime, c.Log.Named("server")
	config.Collaborations = collab.New(collab.Config{Handler: k.handler, Teams: c.Definitions, Slots: c.Store, Full: k.engine.Full, Clock: c.Store.Now})
	halting := halt.Config{Store: c.Store, Keeper: k.keeper, Tasks: k.handler, Clock: c.Store.Now, Log: c.Log.Named("halt")}
	halting.Names, _ = c.Teams.(halt.Names)
	config.Halts = halt.NewService(halting)
	if c.Boards != nil {
		config.Board = board.NewService(watching.Boards, c.Boards, m)
	}
	config.Memory = k.budget
	config.Accounts, config.Use, config.Keys = k.accounts, k.accounts, &auth.Service{Store: c.Store, Server: k.auth, Clock: c.Store.Now}
	config.Audits, config.Refused = &audit.Service{Store: c.Store, Log: c.Log.Named("audit")}, k.refused
	config.TLSByProxy, config.Metrics, config.Traces = c.TLS.ByProxy, k.measure.calls, k.traces
	if k.certs != nil {
		config.TLS = k.certs.Config
	}
	if k.auth != nil { // a nil *auth.Server would not be a nil interface
		config.Auth, config.SignIns = k.auth, k.auth.SignIns
	}
	s, err := server.New(config)
	if err != nil {
		return nil, err
	}
	return &TeamServer{core: k, listeners: l, at: listening, server: s}, nil
}

// security returns the security schemes for cards. Callers need one of them.
func security(c *Config) map[string]*a2av1.SecurityScheme {
	schemes := map[string]*a2av1.SecurityScheme{}
	bearer := func(format, text string) *a2av1.SecurityScheme {
		return &a2av1.SecurityScheme{Scheme: &a2av1.SecurityScheme_HttpAuthSecurityScheme{
			HttpAuthSecurityScheme: &a2av1.HTTPAuthSecurityScheme{Scheme: "Bearer", BearerFormat: format, Description: text},
		}}
	}
	if len(c.Keys) > 0 {
		schemes["apiKey"] = bearer("", "An API key of this server.")
	}
	if len(c.Clients) > 0 {
		schemes["mtls"] = &a2av1.SecurityScheme{Scheme: &a2av1.SecurityScheme_MtlsSecurityScheme{
			MtlsSecurityScheme: &a2av1.MutualTlsSecurityScheme{Description: "A client certificate that this server knows."},
		}}
	}
	for _, i := range c.Issuers {
		if i.JWKSURL != "" { // the issuer may have no discovery document
			schemes[i.Name] = bearer("JWT", "An access token of "+i.URL)
			continue
		}
		schemes[i.Name] = &a2av1.SecurityScheme{Scheme: &a2av1.SecurityScheme_OpenIdConnectSecurityScheme{
			OpenIdConnectSecurityScheme: &a2av1.OpenIdConnectSecurityScheme{
				OpenIdConnectUrl: strings.TrimSuffix(i.URL, "/") + "/.well-known/openid-configuration", Description: "An access token of " + i.URL,
			},
		}}
	}
	return schemes
}

// Serve answers calls and runs tasks until ctx ends, which is not an error. Then it accepts
// no new calls, ends streams and calls that wait for work with ErrShutdown, and releases
// its runs. They continue in the process that opens the store next, or shares it; with the
// default store they are lost. Serve does not close the store. If the store can no longer
// write, Serve returns ErrStoreFailed.
func (s *TeamServer) Serve(ctx context.Context) error {
	runs, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.prepare(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	unobserve, err := s.measure.observe(s.store, s.accounts, s.budget)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	defer unobserve()
	var driving sync.WaitGroup
	var driven error
	driving.Go(func() {
		defer cancel()
		driven = s.engine.Serve(runs, s.drive())
	})
	driving.Go(func() { guard(serving, s.store, cancel) })
	driving.Go(func() { s.notifier.serve(runs) })
	driving.Go(func() { s.accounts.Serve(runs) })
	driving.Go(func() { s.keeper.Run(runs) })
	driving.Go(func() { s.auth.Serve(runs) })
	driving.Go(func() { s.refused.Serve(runs) })
	driving.Go(func() { s.ender.run(runs) })
	if s.certs != nil {
		driving.Go(func() { s.certs.Run(runs) })
	}
	err = s.server.Serve(serving, s.listeners)
	cancel()
	stop()
	driving.Wait()
	s.auth.Flush()
	if err := errors.Join(err, driven, failure(s.store)); err != nil {
		s.log.Info("stopped", zap.Error(err))
		return err
	}
	s.log.Info("stopped: all requests have ended, and all runs are handed over")
	return nil
}

// Addrs returns the addresses of the server, with the ports that were selected.
func (s *TeamServer) Addrs() Addrs { return addrs(s.listeners, s.certs != nil) }

// Close closes the listeners of a server that was never served, or of one that is stopping.
// The latter skips the rest of its DrainDelay.
func (s *TeamServer) Close() error { return closeAll(s.listeners) }
