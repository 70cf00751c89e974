package serve

import (
	"cmp"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/server"
)

// atStart are the keys of server: that take effect at the next start of serve. A reload applies all others, which is
// what settings and Running.apply do. docs/configuration.md lists both.
var atStart = []string{
	"http", "grpc", "metrics", "metrics_beyond_loopback", "tracing", // listeners, and exporters
	"tls",                                                                     // what a listener does; its files are read again by themselves
	"store", "store_listen", "encryption", "retention", "keep", "deduplicate", // the store is open
	"log.format",
}

// devAtStart are those of atStart that dev uses.
var devAtStart = []string{"http", "grpc", "metrics", "tracing", "encryption", "retention", "keep", "deduplicate"}

// pending returns the keys of atStart that have other values in a file than in the one with which the server was
// started.
func pending(started, file *config.Config, atStart []string) []string {
	var keys []string
	for _, key := range atStart {
		if !file.SameSetting(started, key) {
			keys = append(keys, "server."+key)
		}
	}
	return keys
}

// settings returns the part of the configuration of a server that a file decides for every command. It is the same
// at the start and at each reload.
func settings(file *config.Config) (server.Config, error) {
	s := file.Server.GetServer()
	keys, err := file.SigningKeys()
	if err != nil {
		return server.Config{}, err
	}
	_, forget := deduplicate(s)
	return server.Config{
		CardKeys: keys, DefaultAgent: defaultAgent(file), Egress: slices.Clone(file.EgressAllow()),
		Origins: s.GetCors().GetOrigins(), OriginHeaders: s.GetCors().GetHeaders(),
		NoV03: noV03(s), StrictVersion: s.GetProtocol().GetStrictVersion(), RequireTeamRun: s.GetProtocol().GetRequireTeamRun(),
		RefuseWhileWorking: s.GetProtocol().GetRefuseWhileWorking(), ForgetMessageIDs: forget,
		CardInterfaces: s.GetCard().GetInterfaces(), Accounts: s.GetAccounts(), Limits: s.GetLimits(),
		NoPush: noPush(s), Streams: streams(s.GetStreams()),
		DrainTime: s.GetShutdownTimeout().AsDuration(), LogSampling: sampling(s.GetLog().GetSampling()),
	}, nil
}

// servedSettings is like settings, for a server that others may reach: also who may call, at which addresses, and how
// load balancers notice that it stops.
func servedSettings(file *config.Config) (server.Config, error) {
	c, err := settings(file)
	if err != nil {
		return c, err
	}
	s := file.Server.GetServer()
	c.Keys, c.Clients, c.Issuers, c.EndedRights = apiKeys(s), certificateClients(s), Issuers(file), endedRights(s)
	c.DrainDelay = s.GetDrainDelay().AsDuration()
	c.TLS, c.PublicURL, c.PublicGRPC, c.NoReflection = TLSOf(file), s.GetPublicUrl(), s.GetPublicGrpc(), true
	c.TrustedProxies, err = config.TrustedProxies(s)
	return c, err
}

// apiKeys returns the API keys of the file.
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

// Issuers returns the issuers of tokens of a configuration.
func Issuers(def *config.Config) []server.Issuer {
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

// TLSOf returns how the listeners of a configuration use TLS.
func TLSOf(def *config.Config) server.TLS {
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

// defaultAgent returns the agent that handles calls without a tenant: the configured one, else the only team of
// the configuration file. It returns "" if there is no such agent.
func defaultAgent(def *config.Config) string {
	if id := def.Server.GetServer().GetDefaultAgent(); id != "" {
		return id
	}
	if ids := slices.DeleteFunc(teamsOf(def), func(id string) bool { return def.Addition(id) != "" }); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// setLevel sets a level to that of a file. A nil level does not follow the file.
func setLevel(level *zap.AtomicLevel, file *config.Config) {
	if level == nil {
		return
	}
	to, err := zapcore.ParseLevel(cmp.Or(file.Server.GetServer().GetLog().GetLevel(), "info"))
	if err == nil { // the file was checked
		level.SetLevel(to)
	}
}

// sampling returns which lines about requests are not logged.
func sampling(s *teamv1.LogSampling) server.LogSampling {
	p := server.LogSampling{Off: s != nil && s.Enabled != nil && !s.GetEnabled(), First: int(s.GetFirst())}
	if s != nil && s.Thereafter != nil {
		p.Thereafter = cmp.Or(int(s.GetThereafter()), -1) // 0 would be the default
	}
	return p
}
