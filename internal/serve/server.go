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
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/manage"
	"github.com/agentteams/team-server/internal/metrics"
	bindings "github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
)

// Running is a server that was started.
type Running struct {
	// HTTP and GRPC are the addresses it listens on, HOST:PORT. GRPC is Off if gRPC is disabled.
	HTTP, GRPC string
	// Metrics is the address at which it serves metrics, HOST:PORT, or Off.
	Metrics string
	// Live holds the agents that it serves.
	Live *Live
	// Teams manages the teams of Live.
	Teams *manage.Manager

	file     *config.Config // the configuration it was started with
	server   *server.TeamServer
	settings func(*config.Config) (server.Config, error) // what a file decides, at the start and at each reload
	level    *zap.AtomicLevel                            // follows the file; nil if it does not
	store    server.Store
	records  records
	reloads  *metrics.Reloads
	log      *zap.Logger

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

// startLive serves until ctx ends and then closes live and the store. If it fails, it closes them, too.
func startLive(ctx context.Context, live *Live, o resources, c server.Config) (*Running, error) {
	c.Version, c.Store, c.ExtendedCards = Version(), o.store, live.ExtendedCards
	file := live.Definition()
	closing := func(err error) error { return errors.Join(err, live.Close(), o.close()) }
	teams := manage.New(manage.Config{Store: o.store, Live: live, File: file, Open: len(c.Keys)+len(c.Clients)+len(c.Issuers) == 0, Clock: o.store.Now, Log: c.Log.Named("teams")})
	if err := teams.Refresh(ctx, nil); err != nil {
		return nil, closing(err)
	}
	reloads, err := metrics.NewReloads(o.measure.meter(), time.Now())
	if err != nil {
		return nil, closing(fmt.Errorf("metrics: %w", err))
	}
	c.Agents, c.Boards = agents{live, teams}, agents{live, teams}
	c.Teams, c.Definitions = teams, definitions{teams, live}
	s, err := server.New(c)
	if err != nil { // it has closed the listeners
		return nil, errors.Join(err, live.Close(), o.measure.close(), o.store.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{
		HTTP: addressOf(c.Listeners.HTTP), GRPC: addressOf(c.Listeners.GRPC), Metrics: o.measure.address(),
		Live: live, Teams: teams, file: file, server: s, settings: o.settings, level: o.level, store: o.store,
		records: make(records, maxRecords), reloads: reloads, log: c.Log, cancel: cancel, done: make(chan struct{}),
	}
	r.recordChange(ctx, "server.start", file)
	go func() {
		defer close(r.done)
		defer cancel()
		var following sync.WaitGroup
		following.Go(func() { teams.Run(ctx) })
		following.Go(func() { r.records.write(ctx, o.store, c.Log) })
		measuring, stopMeasuring := context.WithCancel(context.WithoutCancel(ctx)) // also while the server drains
		defer stopMeasuring()
		var scraped sync.WaitGroup
		scraped.Go(func() { o.measure.serve(measuring, c.Log) })
		err := s.Serve(ctx)
		cancel()
		following.Wait()
		stopMeasuring()
		scraped.Wait()
		r.err = errors.Join(err, live.Close(), o.store.Close())
	}()
	return r, nil
}

// write appends records to the audit log, each as soon as the store takes writes, until ctx ends: a server also
// starts on a full disk, to be read. What waits then is written if the store takes it at once.
func (all records) write(ctx context.Context, kept server.Store, log *zap.Logger) {
	for {
		select {
		case r := <-all:
			record(ctx, kept, r, log)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRecords)
			defer cancel()
			for ; len(all) > 0 && last.Err() == nil; record(last, kept, <-all, log) {
			}
			return
		}
	}
}

// lastRecords is how long a server that stops may take to write records.
const lastRecords = 2 * time.Second

// record appends a record to the audit log, and tries again until it succeeds or ctx ends.
func record(ctx context.Context, kept server.Store, r *teamv1.AuditRecord, log *zap.Logger) {
	for said := false; ; said = true {
		err := kept.AppendAudit(ctx, r)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !said {
			log.Warn("not in the audit log yet; trying again", zap.String("action", r.GetAction()), zap.Error(err))
		}
		if agent.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// fileRecord returns a record of the audit log that names the version and the configuration file with
// which a server works from now on.
func fileRecord(ctx context.Context, kept server.Store, action string, file *config.Config) *teamv1.AuditRecord {
	r := audit.New(ctx, kept.Now(), action, Version())
	r.Details = map[string]string{"file_sha256": file.Digest()}
	return r
}

func apiKeys(s *teamv1.ServerSettings) []server.APIKey {
	var keys []server.APIKey
	for _, k := range s.GetAuth().GetApiKeys() {
		p := permissionsOf(k.GetPermissions())
		if k.GetManage() {
			p |= a2a.PermissionManage | a2a.PermissionHalt
		}
		keys = append(keys, server.APIKey{
			Name: k.GetName(), Account: k.GetAccount(), SHA256: k.GetSha256(), Permissions: p, Roles: k.GetRoles(), Expires: config.KeyExpiry(k.GetExpires()),
		})
	}
	return keys
}

// certificateClients returns the clients that are known by their certificates.
func certificateClients(s *teamv1.ServerSettings) []server.CertificateClient {
	var clients []server.CertificateClient
	for _, c := range s.GetAuth().GetMtls() {
		clients = append(clients, server.CertificateClient{
			SAN: c.GetSan(), Name: c.GetName(), Account: c.GetAccount(), Permissions: permissionsOf(c.GetPermissions()), Roles: c.GetRoles(),
		})
	}
	return clients
}

// endedRights returns what becomes of tasks whose owners may no longer call.
func endedRights(s *teamv1.ServerSettings) server.EndedRights {
	return map[teamv1.EndedRights_Value]server.EndedRights{
		teamv1.EndedRights_CANCEL: server.CancelTasks, teamv1.EndedRights_CONTINUE: server.ContinueTasks,
	}[s.GetAuth().GetEnded()]
}

// issuers returns the issuers of tokens.
func issuers(def *config.Config) []server.Issuer {
	var all []server.Issuer
	for _, i := range def.Server.GetServer().GetAuth().GetJwt() {
		one := server.Issuer{
			Name: i.GetName(), URL: i.GetIssuer(), Audiences: i.GetAudiences(), Algorithms: i.GetAlgorithms(), JWKSURL: i.GetJwksUrl(),
			Account: i.GetAccount(), AccountClaim: i.GetClaims().GetAccount(), PrincipalClaim: i.GetClaims().GetPrincipal(),
			RolesClaim: i.GetClaims().GetRoles(), PermissionsClaim: i.GetClaims().GetPermissions(), Permissions: permissionsOf(i.GetPermissions()),
		}
		if p := i.GetPage(); p != nil {
			one.Page = &server.PageClient{ClientID: p.GetClientId(), Scopes: p.GetScopes(), Audience: p.GetAudience(), Resource: p.GetResource()}
		}
		if i.GetCa() != "" {
			one.CAFile = def.Path(i.GetCa())
		}
		if i.Leeway != nil {
			one.Leeway = cmp.Or(i.GetLeeway().AsDuration(), -1) // 0 would be the default
		}
		all = append(all, one)
	}
	return all
}

// permissionsOf returns the permissions that a list of the file names, or the default ones.
func permissionsOf(list []teamv1.Permission_Value) a2a.Permissions {
	return cmp.Or(a2a.PermissionsOf(list), a2a.DefaultPermissions)
}

// tlsOf returns how the listeners use TLS.
func tlsOf(def *config.Config) server.TLS {
	t := def.Server.GetServer().GetTls()
	path := func(name string) string {
		if name == "" {
			return ""
		}
		return def.Path(name)
	}
	return server.TLS{
		CertFile: path(t.GetCert()), KeyFile: path(t.GetKey()), ClientCAFile: path(t.GetClientCa()),
		RequireClient: t.GetClient() == teamv1.ClientCertificate_REQUIRED, ByProxy: t.GetTerminatedByProxy(),
	}
}

// noPush reports whether the configuration turns push notifications off.
func noPush(s *teamv1.ServerSettings) bool {
	p := s.GetPush()
	return p != nil && p.Enabled != nil && !p.GetEnabled()
}

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
	// Log is the log of the server. It must not be nil.
	Log *zap.Logger
	// Level is the level of Log, which follows server.log.level of the file; nil if it does not.
	Level *zap.AtomicLevel
}

// Start serves a configuration until ctx ends. It does not try other ports, and it refuses to
// listen on a non-loopback address without authentication or without TLS.
func Start(ctx context.Context, def *config.Config, c Config) (*Running, error) {
	settings := def.Server.GetServer()
	http, grpc := cmp.Or(c.HTTP, settings.GetHttp(), DefaultHTTP), cmp.Or(c.GRPC, settings.GetGrpc(), DefaultGRPC)
	for _, address := range []string{http, grpc} {
		if err := checkAddress(def, address); err != nil {
			return nil, err
		}
	}
	setLevel(c.Level, def)
	first, err := servedSettings(def)
	if err != nil {
		return nil, err
	}
	url := cmp.Or(c.Store, def.StoreURL(), store.MemoryURL)
	measure, err := startTelemetry(ctx, settings, c.Log)
	if err != nil {
		return nil, err
	}
	kept, err := openStore(ctx, url, def, c.Lease, measure.meter(), c.Log)
	if err != nil {
		return nil, errors.Join(err, measure.close())
	}
	l, err := listenOn(ctx, http, grpc)
	if err != nil {
		return nil, errors.Join(err, measure.close(), kept.Close())
	}
	first.Listeners, first.Log, first.Replica = l, c.Log, c.Replica
	r, err := startServer(ctx, def, resources{l, kept, measure, servedSettings, c.Level}, first)
	if err == nil {
		sayWhere(c.Log, url)
		warnUnheld(def, c.Log)
	}
	return r, err
}

// noV03 reports whether A2A 0.3 is turned off.
func noV03(s *teamv1.ServerSettings) bool {
	p := s.GetProtocol()
	return p != nil && p.V0_3 != nil && !p.GetV0_3()
}

// streams returns the settings of event streams.
func streams(s *teamv1.StreamSettings) a2a.Streams {
	rule := map[teamv1.StreamClose_Value]a2a.StreamClose{
		teamv1.StreamClose_INTERRUPTED: a2a.CloseAtInterrupt, teamv1.StreamClose_END: a2a.CloseAtEnd,
	}
	return a2a.Streams{PerTask: int(s.GetPerTask()), PerOwner: int(s.GetPerCaller()), Close: rule[s.GetClose()]}
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
// beyond loopback without authentication or TLS, equal addresses, and URLs of stores.
func Check(def *config.Config) (faults []error) {
	settings := def.Server.GetServer()
	http, grpc := cmp.Or(settings.GetHttp(), DefaultHTTP), cmp.Or(settings.GetGrpc(), DefaultGRPC)
	add := func(key string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("server.%s: %w", key, err))
		}
	}
	add("http", checkAddress(def, http))
	add("grpc", checkAddress(def, grpc))
	if http == grpc && !strings.HasSuffix(http, ":0") {
		add("grpc", fmt.Errorf("%s is the address of server.http, too; write another port", grpc))
	}
	if url := def.StoreURL(); url != "" && url != store.MemoryURL {
		add("store", sqlstore.CheckURL(url))
	}
	if url := def.StoreListen().Reveal(); url != "" {
		add("store_listen", sqlstore.CheckURL(url))
	}
	add("metrics", checkMetrics(settings))
	return faults
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
	auth := def.Server.GetServer().GetAuth()
	authenticates := len(auth.GetApiKeys())+len(auth.GetMtls())+len(auth.GetJwt()) > 0
	return bindings.Refuse(cmp.Or(host, "0.0.0.0"), authenticates, tlsOf(def) != (server.TLS{}))
}

// resources are what a server needs besides its agents.
type resources struct {
	listeners server.Listeners
	store     server.Store
	measure   *telemetry // nil without metrics and traces
	settings  func(*config.Config) (server.Config, error)
	level     *zap.AtomicLevel // may be nil
}

// close closes what was opened.
func (o resources) close() error {
	return errors.Join(closeListeners(o.listeners), o.measure.close(), o.store.Close())
}

// startServer builds the agents of a configuration and serves them. If it fails, it closes what was opened.
func startServer(ctx context.Context, def *config.Config, o resources, c server.Config) (*Running, error) {
	live, err := NewLive(def, o.store, o.store, c.Log.Named("agents"))
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	warnReordered(def, c.Log)
	c.Meter, c.NamedInMetrics, c.Tracing = o.measure.meter(), live.inFile, o.measure.tracing(def)
	return startLive(ctx, live, o, c)
}

// warnReordered logs the steps whose place in their list has a meaning that it did not have in earlier versions.
func warnReordered(def *config.Config, log *zap.Logger) {
	for _, r := range def.Reordered() {
		log.Warn(r.String()+". "+config.KeepOrder, zap.Int("line", r.Line))
	}
}

// warnUnheld logs the questions that nobody may answer.
func warnUnheld(def *config.Config, log *zap.Logger) {
	for _, path := range def.Unheld() {
		log.Warn(config.UnheldWarning, zap.String("path", path))
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
	local := func(def *config.Config) (server.Config, error) {
		c, err := settings(def)
		c.Egress = append(c.Egress, egress.Loopback()...)
		return c, err
	}
	c, err := local(def)
	if err != nil {
		return nil, errors.Join(err, closeListeners(l), kept.Close())
	}
	c.Listeners, c.Log = l, log
	return startServer(ctx, def, resources{l, kept, nil, local, nil}, c)
}
