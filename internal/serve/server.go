// Package serve connects the parts of the server: it opens the store, listens, serves the agents of a configuration, and
// reloads it. It is the one place that knows all concrete types.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/config/warnings"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/internal/metrics"
	bindings "github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/pkg/server"
)

// Running is a server that was started.
type Running struct {
	// HTTP and GRPC are the addresses it listens on, HOST:PORT. GRPC is Off if gRPC is disabled.
	HTTP, GRPC string
	// Metrics is the address at which it serves metrics, HOST:PORT, or Off.
	Metrics string
	// Agents are the agents that it serves, and Teams manages them.
	Agents *manage.Registry
	Teams  *manage.Manager

	file    *config.Config // the configuration it was started with
	server  *server.TeamServer
	without []string         // the settings that have no effect
	level   *zap.AtomicLevel // follows the file; nil if it does not
	records *records
	reloads *metrics.Reloads
	log     *zap.Logger

	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// Wait waits until the server has stopped. It stops when its context ends or its store fails.
func (r *Running) Wait() error {
	<-r.done
	return r.err
}

// Stop stops the server and waits until it has stopped.
func (r *Running) Stop() error {
	r.cancel()
	<-r.done
	return r.err
}

// startServer builds the agents of a configuration and serves them until ctx ends. Then it closes what was opened, also if it
// fails.
func startServer(ctx context.Context, file *config.Config, o resources, c server.Config) (*Running, error) {
	c.Settings, c.Loopback = settingsOf(file, o.without), file.Loopback()
	c.Listeners, c.Store, c.Version, c.Meter = o.listeners, o.store, Version(), o.telemetry.meter()
	agents, err := manage.New(manage.Config{
		Store: o.store, Definitions: o.store, Boards: o.store, File: file, Open: !auth.Authenticates(c.Settings.GetAuth()), Clock: o.store.Now, Log: c.Log.Named("agents"),
	})
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	closing := func(err error) error { return errors.Join(err, agents.Close(), o.close()) }
	if err := agents.Refresh(ctx, nil); err != nil {
		return nil, closing(err)
	}
	reloads, err := metrics.NewReloads(o.telemetry.meter(), time.Now())
	if err != nil {
		return nil, closing(fmt.Errorf("metrics: %w", err))
	}
	teams := manage.NewManager(agents)
	c.Agents, c.Boards, c.Teams, c.Definitions, c.ExtendedCards = agents, agents, teams, agents, agents.ExtendedCards
	c.NamedInMetrics, c.Tracing = agents.InFile, o.telemetry.tracing(agents.Secrets)
	s, err := server.New(c)
	if err != nil { // it has closed the listeners
		return nil, errors.Join(err, agents.Close(), o.telemetry.close(), o.store.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{
		HTTP: addressOf(c.Listeners.HTTP), GRPC: addressOf(c.Listeners.GRPC), Metrics: o.telemetry.address(),
		Agents: agents, Teams: teams, file: file, server: s, without: o.without, level: o.level,
		records: newRecords(o.store, c.Log), reloads: reloads, log: c.Log, cancel: cancel, done: make(chan struct{}),
	}
	r.records.add(ctx, "server.start", file)
	go func() {
		defer close(r.done)
		defer cancel()
		var following sync.WaitGroup
		following.Go(func() { agents.Run(ctx) })
		following.Go(func() { r.records.run(ctx) })
		measuring, stopMeasuring := context.WithCancel(context.WithoutCancel(ctx)) // also while the server drains
		defer stopMeasuring()
		var scraped sync.WaitGroup
		scraped.Go(func() { o.telemetry.serve(measuring, c.Log) })
		err := s.Serve(ctx)
		cancel()
		following.Wait()
		stopMeasuring()
		scraped.Wait()
		r.err = errors.Join(err, agents.Close(), o.store.Close())
	}()
	return r, nil
}

// Temporal is the client of Temporal, which is not in every program.
type Temporal struct {
	// New makes an engine that lets Temporal schedule the runs.
	New func(engine.Config, *teamv1.TemporalSettings) (engine.Engine, error)
	// Check returns what was found at Temporal, and the search attributes that are not registered there. The error says what
	// else is missing.
	Check func(context.Context, *teamv1.TemporalSettings) (found string, missing []string, err error)
	// Register registers the search attributes, and returns the names of those that were not registered.
	Register func(context.Context, *teamv1.TemporalSettings) (added []string, err error)
}

// OtherProgram says which program serves files with server.engine.temporal.
const OtherProgram = "team-server-temporal, which is in the same release, serves this file; it has all commands of team-server"

// Role says what a process does beside others with the same store.
type Role = server.Role

// Roles are the roles of a process; the first one is the default.
var Roles = []Role{server.RoleAll, server.RoleFront, server.RoleWorker}

// Config overrides settings of the configuration file.
type Config struct {
	// HTTP and GRPC are the addresses; "" means those of the file, else the defaults. GRPC may be
	// Off, which disables gRPC.
	HTTP, GRPC string
	// Store is the URL of the store; "" means that of the file, else memory.
	Store string
	// Lease is the time after which a replica that has stopped responding loses its runs; 0 means
	// the default.
	Lease time.Duration
	// Replica names this process in the records of runs; "" generates a random name.
	Replica string
	// Role says what the process does beside others with the same store; "" means server.RoleAll.
	Role Role
	// Temporal makes the engine of a file with server.engine.temporal; nil refuses to serve the file.
	Temporal *Temporal
	// Log is the log of the server. It must not be nil.
	Log *zap.Logger
	// Level is the level of Log, which follows server.log.level of the file; nil if it does not.
	Level *zap.AtomicLevel
}

// engine returns what makes the engine that a file names, nil for that of the store.
func (c Config) engine(def *config.Config) (func(engine.Config) (engine.Engine, error), error) {
	t := config.TemporalOf(def)
	if t == nil {
		return nil, nil
	}
	if c.Temporal == nil {
		return nil, source.Faults{setting{key: "server.engine.temporal"}.fault(def, errors.New(OtherProgram))}
	}
	return func(e engine.Config) (engine.Engine, error) { return c.Temporal.New(e, t) }, nil
}

// Start serves a configuration until ctx ends. It does not try other ports, and it refuses to
// listen on a non-loopback address without authentication or without TLS.
func Start(ctx context.Context, def *config.Config, c Config) (*Running, error) {
	if faults := Check(def, c); len(faults) > 0 {
		return nil, faults
	}
	makeEngine, err := c.engine(def)
	if err != nil {
		return nil, err
	}
	file := settings.WithDefaults(def.Server.GetServer())
	http, grpc := cmp.Or(c.HTTP, file.GetHttp()), cmp.Or(c.GRPC, file.GetGrpc())
	setLevel(c.Level, def)
	url := cmp.Or(c.Store, def.StoreURL(), store.MemoryURL)
	if own := def.StoreURL(); own != "" && own != url {
		c.Log.Warn("server.store of the file is not used, because another store is given with --store", zap.String("used", store.Redacted(url)), zap.String("not_used", store.Redacted(own)))
	}
	measure, err := startTelemetry(ctx, file, c.Log)
	if err != nil {
		return nil, err
	}
	kept, err := openStore(ctx, url, def, c.Lease, measure.meter(), c.Log)
	if err != nil {
		return nil, errors.Join(err, measure.close())
	}
	var l server.Listeners
	if c.Role != server.RoleWorker {
		l, err = listenOn(ctx, http, grpc)
	}
	if err != nil {
		return nil, errors.Join(err, measure.close(), kept.Close())
	}
	r, err := startServer(ctx, def, resources{l, kept, measure, nil, c.Level}, server.Config{Log: c.Log, Replica: c.Replica, Role: c.Role, Engine: makeEngine, NoReflection: true})
	if err == nil {
		sayWhere(c.Log, url)
		if c.Role == server.RoleFront {
			c.Log.Info("this server drives no tasks; servers with --role worker or all do")
		}
		warnUnheld(def, c.Log)
	}
	return r, err
}

// sayWhere logs the store and warns if it is not persistent.
func sayWhere(log *zap.Logger, url string) {
	if inMemory(url) {
		log.Warn("tasks are stored in memory and are lost when the server stops; keep them with --store sqlite:FILE or postgres://…")
		return
	}
	log.Info("store opened", zap.String("store", store.Redacted(url)))
}

func listenOn(ctx context.Context, http, grpc string) (server.Listeners, error) {
	h, err := Listen(ctx, "http", http)
	if err != nil {
		return server.Listeners{}, err
	}
	if grpc == Off {
		return server.Listeners{HTTP: h}, nil
	}
	g, err := Listen(ctx, "grpc", grpc)
	if err != nil {
		return server.Listeners{}, errors.Join(err, h.Close())
	}
	return server.Listeners{HTTP: h, GRPC: g}, nil
}

// Check returns why Start would refuse a file, as far as that is known without starting a server: addresses
// beyond loopback without authentication or TLS, equal addresses, URLs of stores, and roles and engines that need another store.
func Check(def *config.Config, c Config) (faults source.Faults) {
	s := settings.WithDefaults(def.Server.GetServer())
	add := func(of setting, err error) {
		if err != nil {
			faults = append(faults, of.fault(def, err))
		}
	}
	http, grpc := choose("http", c.HTTP, s.GetHttp()), choose("grpc", c.GRPC, s.GetGrpc())
	metrics := choose("metrics", "", s.GetMetrics())
	if c.Role == server.RoleWorker { // it does not listen on them
		http.value, grpc.value = Off, Off
	}
	add(http, checkAddress(def, http.value))
	add(grpc, checkAddress(def, grpc.value))
	for _, c := range collisions(http, grpc, metrics) {
		add(c.of, c)
	}
	url := choose("store", c.Store, cmp.Or(def.StoreURL(), store.MemoryURL))
	if url.value != store.MemoryURL {
		add(url, db.CheckURL(url.value))
	}
	if def.Server.GetServer().GetEngine().GetTemporal() != nil && !store.IsPostgres(url.value) {
		add(setting{key: "server.engine.temporal"}, errors.New("needs a store that servers share; write server.store: postgres://USER@HOST/DATABASE"))
	}
	if (c.Role == server.RoleFront || c.Role == server.RoleWorker) && !store.IsPostgres(url.value) {
		add(setting{"--role", string(c.Role)}, fmt.Errorf("%s needs a store that servers share; write server.store: postgres://USER@HOST/DATABASE, or leave out --role", c.Role))
	}
	if listen := def.StoreListen().Reveal(); listen != "" && url.value == def.StoreURL() {
		add(choose("store_listen", "", listen), db.CheckURL(listen))
	}
	add(metrics, checkMetrics(s))
	return faults
}

// setting is a value of the configuration and where it is from: a key of the file, or a flag that replaces it.
type setting struct{ key, value string }

// choose returns the value of a flag, or if that is "" the value of the file.
func choose(name, flag, file string) setting {
	if flag != "" {
		return setting{"--" + name, flag}
	}
	return setting{"server." + name, file}
}

// fault returns the fault of a setting.
func (s setting) fault(def *config.Config, err error) source.Fault {
	f := source.Fault{File: def.File, Message: s.key + ": " + err.Error()}
	if strings.HasPrefix(s.key, "--") {
		f.File = "command line"
	}
	return f
}

// checkMetrics returns an error for an address of metrics beyond loopback that is not declared so.
func checkMetrics(s *teamv1.ServerSettings) error {
	if s.GetMetrics() == "" || s.GetMetricsBeyondLoopback() || Loopback(s.GetMetrics()) {
		return nil
	}
	return fmt.Errorf("refusing to serve metrics on %s, because they need no authentication there; "+
		"listen on loopback, or, in a network that only your monitoring reaches, add server.metrics_beyond_loopback: true", s.GetMetrics())
}

// checkAddress returns an error for a non-loopback address if the file has no authentication or no TLS.
func checkAddress(def *config.Config, address string) error {
	if address == Off || Loopback(address) {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not a valid address; expected HOST:PORT, for example 127.0.0.1:8080", address)
	}
	s := def.Server.GetServer()
	return bindings.Refuse(cmp.Or(host, "0.0.0.0"), auth.Authenticates(s.GetAuth()), s.GetTls() != nil)
}

// resources are what a server needs besides its agents.
type resources struct {
	listeners server.Listeners
	store     server.Store
	telemetry *telemetry       // nil without metrics and traces
	without   []string         // the settings that have no effect
	level     *zap.AtomicLevel // may be nil
}

// close closes what was opened.
func (o resources) close() error {
	return errors.Join(closeListeners(o.listeners), o.telemetry.close(), o.store.Close())
}

// warnUnheld logs each question whose required role no configured key or client has.
func warnUnheld(def *config.Config, log *zap.Logger) {
	for _, path := range warnings.Unheld(def.Server) {
		log.Warn(warnings.UnheldMessage, zap.String("path", path))
	}
}

// Local serves a configuration on free loopback ports with a store in memory. Commands use it
// when no server is given.
func Local(ctx context.Context, def *config.Config, log *zap.Logger) (*Running, error) {
	kept, err := server.OpenStore(ctx, store.MemoryURL, server.StoreConfig{})
	if err != nil {
		return nil, err
	}
	l, err := listenOn(ctx, "127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return startServer(ctx, def, resources{l, kept, nil, notForDev, nil}, server.Config{Log: log})
}
