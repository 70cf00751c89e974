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

	file *config.Config // the configuration it was started with

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
func startLive(ctx context.Context, live *Live, kept server.Store, measure *telemetry, c server.Config) (*Running, error) {
	c.DefaultAgent, c.Version, c.Store, c.ExtendedCards = live.Default(), Version(), kept, live.ExtendedCards
	keys, err := live.Definition().SigningKeys()
	if err != nil {
		return nil, errors.Join(err, closeListeners(c.Listeners), measure.close(), live.Close(), kept.Close())
	}
	c.CardKeys = keys
	file := live.Definition()
	teams := manage.New(manage.Config{Store: kept, Live: live, File: file, Open: len(c.Keys)+len(c.Clients)+len(c.Issuers) == 0, Clock: kept.Now, Log: c.Log.Named("teams")})
	if err := teams.Refresh(ctx, nil); err != nil {
		return nil, errors.Join(err, closeListeners(c.Listeners), measure.close(), live.Close(), kept.Close())
	}
	c.Agents, c.Boards = agents{live, teams}, agents{live, teams}
	c.Teams, c.Definitions = teams, definitions{teams, live}
	s, err := server.New(c)
	if err != nil {
		return nil, errors.Join(err, measure.close(), live.Close(), kept.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{
		HTTP: addressOf(c.Listeners.HTTP), GRPC: addressOf(c.Listeners.GRPC), Metrics: measure.address(),
		Live: live, Teams: teams, file: file, cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		defer cancel()
		var following sync.WaitGroup
		following.Go(func() { teams.Run(ctx) })
		following.Go(func() { recordStart(ctx, kept, started(ctx, kept, file), c.Log) })
		measuring, stopMeasuring := context.WithCancel(context.WithoutCancel(ctx)) // also while the server drains
		defer stopMeasuring()
		var scraped sync.WaitGroup
		scraped.Go(func() { measure.serve(measuring, c.Log) })
		err := s.Serve(ctx)
		cancel()
		following.Wait()
		stopMeasuring()
		scraped.Wait()
		r.err = errors.Join(err, live.Close(), kept.Close())
	}()
	return r, nil
}

// recordStart appends the record of a start to the audit log, as soon as the store takes writes: a server
// also starts on a full disk, to be read.
func recordStart(ctx context.Context, kept server.Store, start *teamv1.AuditRecord, log *zap.Logger) {
	for said := false; ; said = true {
		err := kept.AppendAudit(ctx, start)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !said {
			log.Warn("the start is not in the audit log yet; trying again", zap.Error(err))
		}
		if agent.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// started returns the record of the audit log that names the version and the configuration file with
// which a server starts.
func started(ctx context.Context, kept server.Store, file *config.Config) *teamv1.AuditRecord {
	r := audit.New(ctx, kept.Now(), "server.start", Version())
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
	keys, clients, tokens, secure := apiKeys(settings), certificateClients(settings), issuers(def), tlsOf(def)
	url := cmp.Or(c.Store, def.StoreURL(), store.MemoryURL)
	proxies, err := config.TrustedProxies(settings)
	if err != nil {
		return nil, err
	}
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
	r, err := startServer(ctx, def, kept, measure, server.Config{
		Listeners: l, Keys: keys, Clients: clients, Issuers: tokens, EndedRights: endedRights(settings), TLS: secure, TrustedProxies: proxies, NoReflection: true, Log: c.Log, Replica: c.Replica,
		PublicURL: settings.GetPublicUrl(), PublicGRPC: settings.GetPublicGrpc(),
	})
	if err == nil {
		sayWhere(c.Log, url)
		for _, path := range def.Unheld() {
			c.Log.Warn(config.UnheldWarning, zap.String("path", path))
		}
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

// startServer builds the agents of a configuration and serves them. If it fails, it closes the
// listeners and the store.
func startServer(ctx context.Context, def *config.Config, kept server.Store, measure *telemetry, c server.Config) (*Running, error) {
	live, err := NewLive(def, kept, kept, c.Log.Named("agents"))
	if err != nil {
		return nil, errors.Join(err, closeListeners(c.Listeners), measure.close(), kept.Close())
	}
	for _, r := range def.Reordered() {
		c.Log.Warn(r.String()+". "+config.KeepOrder, zap.Int("line", r.Line))
	}
	settings := def.Server.GetServer()
	c.Egress = append(c.Egress, def.EgressAllow()...)
	c.Origins, c.OriginHeaders = settings.GetCors().GetOrigins(), settings.GetCors().GetHeaders()
	c.NoV03, c.StrictVersion = noV03(settings), settings.GetProtocol().GetStrictVersion()
	_, c.ForgetMessageIDs = deduplicate(settings)
	c.CardInterfaces, c.Accounts, c.Limits = settings.GetCard().GetInterfaces(), settings.GetAccounts(), settings.GetLimits()
	c.RefuseWhileWorking = settings.GetProtocol().GetRefuseWhileWorking()
	c.NoPush, c.RequireTeamRun, c.Streams = noPush(settings), settings.GetProtocol().GetRequireTeamRun(), streams(settings.GetStreams())
	c.Meter, c.NamedInMetrics, c.Tracing = measure.meter(), live.inFile, measure.tracing(def)
	return startLive(ctx, live, kept, measure, c)
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
	return startServer(ctx, def, kept, nil, server.Config{Listeners: l, Log: log, Egress: egress.Loopback()})
}
