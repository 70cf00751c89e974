package serve

import (
	"cmp"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/server"
)

// atStart are the keys of server: that take effect at the next start. A reload applies all others, which is what
// settings and Running.apply do. docs/configuration.md lists both.
var atStart = []string{
	"http", "grpc", "metrics", "metrics_beyond_loopback", "tracing", // listeners, and exporters
	"tls",                                                                     // what a listener does; its files are read again by themselves
	"store", "store_listen", "encryption", "retention", "keep", "deduplicate", // the store is open
	"log.format",
}

// pending returns the keys of server: that have other values in a file than in the one with which the server
// was started, and that a reload does not apply.
func pending(started, file *config.Config) []string {
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
	c.Keys, c.Clients, c.Issuers, c.EndedRights = apiKeys(s), certificateClients(s), issuers(file), endedRights(s)
	c.DrainDelay = s.GetDrainDelay().AsDuration()
	c.TLS, c.PublicURL, c.PublicGRPC, c.NoReflection = tlsOf(file), s.GetPublicUrl(), s.GetPublicGrpc(), true
	c.TrustedProxies, err = config.TrustedProxies(s)
	return c, err
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
