// Package server serves teams and agents over A2A and the Agent service, with gRPC, REST
// and JSON-RPC. A [TeamServer] serves one agent, or all agents of an agent manager.
//
// [New] listens, and [TeamServer.Serve] serves until its context ends. [Config] needs an Agent or
// Agents; tasks are kept in memory unless it has a Store, see [OpenStore]. [NewLocal] runs tasks
// without listening. The configuration of a server for the teams of a file is that of package teamfile.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/collab"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/halt"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/monitor"
	"github.com/agentteams/team-server/internal/push"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// Engine decides where and when runs are driven.
type Engine = engine.Engine

// EngineConfig is what a server gives its Engine.
type EngineConfig = engine.Config

// Listeners are the listeners of a server. One of them may be nil.
type Listeners = server.Listeners

// TeamManager implements the services that create, change and delete teams and agents.
type TeamManager = service.Teams

// Boards gives access to the teams that have boards.
type Boards = board.Teams

// Role says what a process does beside others with the same Store.
type Role string

const (
	// RoleAll accepts calls and drives runs.
	RoleAll Role = "all"
	// RoleFront accepts calls, and has other processes drive the runs.
	RoleFront Role = "front"
	// RoleWorker drives runs. It listens for no calls.
	RoleWorker Role = "worker"
)

// shared reports whether processes of the role need others.
func (r Role) shared() bool { return r == RoleFront || r == RoleWorker }

// PushPolicy configures the retries and timeouts of push notifications. The zero value is
// valid.
type PushPolicy = push.Policy

// CardKey is a key that signs cards.
type CardKey = cardsign.Key

// Tracing says where the traces of a server go. Its Provider must use TraceIDs as its generator of ids.
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
	// Settings are those that server: has in a configuration file; docs/configuration-server.md describes them. Those that are
	// not set have the same defaults as there: without auth every caller is local/local, and the server listens on loopback
	// only. Names of files are relative to the working directory. store, store_listen, encryption, metrics, log.level and
	// log.format have no effect: they are Store, StoreConfig, Meter and Log here.
	Settings *teamv1.ServerSettings
	// Loopback lets webhooks, and agents that are made over the API, be on this machine, as if egress.allow of Settings
	// listed its addresses.
	Loopback bool
	// Listeners are existing listeners to use instead of the addresses in Settings. New closes them if
	// it fails.
	Listeners Listeners
	// CardKeys are keys that sign cards and push notifications in addition to those of Settings.Signing. Every key signs;
	// use two while one replaces the other. The public keys are served at /.well-known/jwks.json, which signatures name if
	// public_url is set.
	CardKeys []CardKey
	// ExtendedCards returns the extended cards of an agent; a caller gets the first one
	// that it may see. If it is nil, agents have no extended cards. It must be safe for concurrent use.
	ExtendedCards func(agentID string) []a2a.ExtendedCard
	// NoReflection turns gRPC reflection off.
	NoReflection bool
	// Store stores the tasks, see OpenStore; the default is the memory of this process, until
	// Serve returns. If the store fails, Serve returns.
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
	// Slots is the maximum number of runs that this process drives at the same time; the
	// default is 256.
	Slots int
	// Role says what this process does beside others with the same Store; "" means RoleAll.
	Role Role
	// Engine makes what decides where and when runs are driven; nil means that this process claims them from the store.
	Engine func(EngineConfig) (Engine, error)
	// Version is the version of the program, for cards and journals.
	Version string
	// Ready returns an error while the server should receive no calls. If Ready is nil, it
	// always should.
	Ready func() error
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
	// Tracing says where traces go, see docs/tracing.md; the zero value traces nothing.
	Tracing Tracing
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
	at        Addrs // at which clients reach the listeners, unless the settings say otherwise
	server    *server.Server
	reloading sync.Mutex  // held while settings are applied
	own       Store       // the default store, which this server closes; nil if Config has one
	served    atomic.Bool // Serve closes own
}

// engineTimeout bounds the call of the store that records its engine.
const engineTimeout = 10 * time.Second

// core is a server without its bindings.
type core struct {
	role     Role
	settings *settings.Live // what all parts read
	handler  *a2a.Handler
	engine   engine.Engine
	runner   *drive.Runner
	store    Store
	auth     *auth.Server       // nil if every caller is accepted
	certs    *auth.Certificates // nil without TLS
	accounts *account.Accounts
	budget   *inflight.Budget
	keeper   *halt.Keeper
	refused  *audit.Refusals
	ender    *ender // nil if every caller is accepted
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
	l, err := c.listen()
	if err != nil {
		return nil, err
	}
	own, err := c.ownStore()
	if err != nil {
		return nil, errors.Join(err, closeAll(l))
	}
	s, err := build(c, l)
	if err == nil && c.Role != RoleWorker {
		err = s.server.Admit(l)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(l), closeStore(own))
	}
	s.own = own
	return s, nil
}

// ownStore opens the default store if the configuration has none. Otherwise it returns nil.
func (c *Config) ownStore() (own Store, err error) {
	if c.Store == nil {
		own, err = OpenStore(context.Background(), store.MemoryURL, StoreConfig{Settings: c.Settings, Meter: c.Meter, Log: c.Log.Named("store")})
		c.Store = own
	}
	return own, err
}

// closeStore closes a store that is not nil.
func closeStore(s Store) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// complete validates the configuration and sets defaults.
func (c *Config) complete() error {
	if (c.Agent == nil) == (c.Agents == nil) {
		return errors.New("server.Config needs either Agent or Agents")
	}
	if c.Role.shared() && (c.Store == nil || c.Store.Lease() == 0) {
		return fmt.Errorf("server.Config.Role: %s needs a Store that processes share; open a postgres:// URL", c.Role)
	}
	if c.Agent != nil {
		one, err := single(c.Agent)
		if err != nil {
			return err
		}
		c.Agents = one
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return nil
}

// certificates reads the files of TLS; it returns nil without.
func certificates(t *teamv1.ServerTls, log *zap.Logger) (*auth.Certificates, error) {
	if t.GetCert() == "" {
		return nil, nil //nolint:nilnil // no TLS
	}
	return auth.ReadCertificates(t, log.Named("tls"))
}

// newCore builds the handler, the engine and the notifier.
func newCore(c *Config, now *settings.Snapshot) (core, error) {
	live := &settings.Live{}
	live.Store(now)
	measure, err := newInstruments(c)
	if err != nil {
		return core{}, err
	}
	traces, err := tracing.New(c.Tracing, now.GetTracing(), c.Version, c.Store.Now)
	if err != nil {
		return core{}, fmt.Errorf("server.Config.Tracing: %w", err)
	}
	certs, err := certificates(now.GetTls(), c.Log)
	if err != nil {
		return core{}, err
	}
	by, err := auth.New(auth.Config{Accept: now.GetAuth(), Certificates: certs, Store: c.Store, Clock: c.Store.Now, Log: c.Log.Named("auth")})
	if err != nil {
		return core{}, err
	}
	replica := strings.TrimPrefix(c.Replica+"-"+rand.Text(), "-")
	var e engine.Engine
	accounts := account.New(account.Config{
		Settings: live, Ledger: c.Store, Costs: c.Store, Counts: c.Store, Shared: c.Store.Lease() > 0, Clock: c.Store.Now, Log: c.Log.Named("accounts"),
		Changed: func() { e.Wake() },
	})
	budget := inflight.New(memorySize(now), accounts.Weight)
	makes := c.Engine
	if makes == nil {
		makes = func(c engine.Config) (engine.Engine, error) { return engine.New(c), nil }
	}
	e, err = makes(engine.Config{Leases: c.Store, Runs: c.Store, Front: c.Role == RoleFront, Slots: c.Slots, Shares: accounts, Replica: replica, Ended: measure.runs.Broken, Meter: c.Meter, Log: c.Log.Named("engine")})
	if err == nil {
		err = useEngine(c.Store, e)
	}
	if err != nil {
		return core{}, err
	}
	halts := inforce.New()
	h := a2a.NewHandler(a2a.Config{
		Settings: live, Agents: c.Agents, Store: c.Store, Overview: c.Store, Approvals: c.Store, Conversations: c.Store, Pushes: c.Store,
		Halts: halts, Memory: budget, Wake: e.Wake, Version: c.Version, Clock: c.Store.Now, Extended: c.ExtendedCards, CheckPlan: workflow.CheckPlan,
		Admit: accounts.Admit, AdmitGrant: accounts.AdmitGrant, MaxCollaborations: accounts.MaxCollaborations,
		Audit: func(ctx context.Context, action, subject string, details map[string]string) context.Context {
			return audit.Record(ctx, c.Store.Now(), action, subject, details)
		},
	})
	runner := &drive.Runner{
		Agent: c.Agents.Get, Tasks: h, Conversations: c.Store, Accounts: accounts, Shares: c.Store, Memory: budget, Halts: halts, Replica: replica, Clock: c.Store.Now, Log: c.Log.Named("run"),
	}
	if p, ok := c.Agents.(a2a.Pinner); ok {
		runner.Pinned = p.Pinned
	}
	t, err := newNotifier(c, live, h, by, measure.pushes, tracing.NewPushes(traces, firstEvent(c.Store)))
	if err != nil {
		return core{}, err
	}
	keeper := halt.NewKeeper(c.Store, halts, replica, e.Wake, c.Log.Named("halt"))
	return core{role: c.Role, settings: live, auth: by, certs: certs, handler: h, engine: e, runner: runner, store: c.Store, accounts: accounts, budget: budget, keeper: keeper, refused: &audit.Refusals{Store: c.Store, Clock: c.Store.Now, Log: c.Log.Named("audit")}, ender: newEnder(c, live, by), notifier: t, measure: measure, traces: traces, log: c.Log.Named("server")}, nil
}

// useEngine records the engine of the store. The error says that the store has another one.
func useEngine(s Store, e engine.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	return s.UseEngine(ctx, e.Kind())
}

// fullAfter is how long a due run may wait until a front counts the processes that drive runs as full. Idle ones look
// for due runs every second.
const fullAfter = 2 * time.Second

// full reports whether a new run would have to wait for a slot.
func (k *core) full() bool {
	if k.role != RoleFront {
		return k.engine.Full()
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	b, err := k.store.Backlog(ctx)
	due := b.Claimable(k.accounts)
	return err == nil && due.Count > 0 && k.store.Now().Sub(due.Oldest) > fullAfter
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

// serve runs front until ctx ends, the store fails or runs can no longer be driven. Meanwhile, and until front has
// returned, it drives runs and does beside it what they and others need. Then it closes own, unless that is nil.
func (k *core) serve(ctx context.Context, own Store, front func(context.Context) error, others ...func(context.Context)) error {
	if err := k.prepare(ctx); err != nil {
		return errors.Join(err, closeStore(own))
	}
	unobserve, err := k.measure.observe(k.store, k.accounts, k.budget)
	if err != nil {
		return errors.Join(err, closeStore(own))
	}
	runs, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	var driving sync.WaitGroup
	var driven error
	driving.Go(func() {
		defer cancel()
		driven = k.engine.Serve(runs, k.drive())
	})
	driving.Go(func() { guard(serving, k.store, cancel) })
	for _, run := range append(others, k.notifier.serve, k.accounts.Serve, k.keeper.Run) {
		driving.Go(func() { run(runs) })
	}
	err = front(serving)
	cancel()
	stop()
	driving.Wait()
	k.auth.Flush()
	unobserve()
	return errors.Join(err, driven, failure(k.store), closeStore(own))
}

// wait returns when ctx ends.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// build builds the whole server.
func build(c Config, l Listeners) (*TeamServer, error) {
	listening := public(l, c.Settings.GetTls().GetCert() != "")
	now, err := c.snapshot(listening)
	if err != nil {
		return nil, err
	}
	k, err := newCore(&c, now)
	if err != nil {
		return nil, err
	}
	watching := monitor.Config{Handler: k.handler, URL: k.engine.URL, Costs: c.Store, Clock: c.Store.Now}
	if c.Boards != nil {
		watching.Boards, watching.BoardTeams = board.New(c.Store), c.Boards
	}
	m := monitor.New(watching)
	halting := halt.Config{Store: c.Store, Keeper: k.keeper, Tasks: k.handler, Clock: c.Store.Now, Log: c.Log.Named("halt")}
	if c.Teams != nil { // else names that the server does not know are not refused
		halting.Names, _ = c.Definitions.(halt.Names)
	}
	config := server.Config{
		Settings: k.settings, Handler: k.handler, Teams: c.Teams, Monitor: m, Halts: halt.NewService(halting), Memory: k.budget,
		Collaborations: collab.New(collab.Config{Handler: k.handler, Teams: c.Definitions, Slots: c.Store, Full: k.full, Clock: c.Store.Now}),
		Accounts:       k.accounts, Use: k.accounts, Keys: &auth.Service{Store: c.Store, Server: k.auth, Clock: c.Store.Now},
		Audits: &audit.Service{Store: c.Store, Log: c.Log.Named("audit")}, Refused: k.refused, Version: c.Version, NoReflection: c.NoReflection,
		Ready: ready(c), Hurry: c.Store.Failed(), StallTime: c.StallTime, Metrics: k.measure.calls, Traces: k.traces, Log: c.Log.Named("server"),
	}
	if c.Boards != nil {
		config.Board = board.NewService(watching.Boards, c.Boards, m)
	}
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

// Serve answers calls and runs tasks until ctx ends, which is not an error. Then it accepts
// no new calls, ends streams and calls that wait for work with ErrShutdown, and releases
// its runs. They continue in the process that opens the store next, or shares it; with the
// default store they are lost. Serve does not close Config.Store. If the store can no longer
// write, Serve returns ErrStoreFailed.
func (s *TeamServer) Serve(ctx context.Context) error {
	s.served.Store(true)
	others := []func(context.Context){s.auth.Serve, s.refused.Serve, s.ender.run}
	front := func(ctx context.Context) error { return s.server.Serve(ctx, s.listeners) }
	if s.role == RoleWorker {
		front = wait
	}
	if s.certs != nil {
		others = append(others, s.certs.Run)
	}
	err := s.serve(ctx, s.own, front, others...)
	if err := errors.Join(err, closeAll(s.listeners)); err != nil {
		s.log.Info("stopped", zap.Error(err))
		return err
	}
	s.log.Info("stopped: all requests have ended, and all runs are handed over")
	return nil
}

// Addrs returns the addresses of the server, with the ports that were selected.
func (s *TeamServer) Addrs() Addrs { return addrs(s.listeners, s.certs != nil) }

// Close closes the listeners of a server that was never served, or of one that is stopping.
// The latter skips the rest of its drain_delay.
func (s *TeamServer) Close() error {
	err := closeAll(s.listeners)
	if !s.served.Swap(true) {
		err = errors.Join(err, closeStore(s.own))
	}
	return err
}
