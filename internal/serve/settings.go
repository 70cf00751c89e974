package serve

import (
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/settings"
)

// notForDev are the settings that have no effect on a server that only its own machine reaches: who may call, at which
// addresses, and how load balancers notice that it stops.
var notForDev = []string{
	"auth", "tls", "public_url", "public_grpc", "trusted_proxies", "drain_delay", "store", "store_listen", "engine", "metrics_beyond_loopback", "log.format",
}

// pending returns the settings that have other values in a file than in the one with which the server was started, and
// take effect at the next start. without are those that have no effect.
func pending(started, file *config.Config, without []string) []string {
	var keys []string
	for _, key := range settings.AtStart() {
		if !slices.Contains(without, key) && !file.SameSetting(started, key) {
			keys = append(keys, "server."+key)
		}
	}
	return keys
}

// settingsOf returns the settings of a file for a server. without are those that have no effect. It is the same at the
// start and at each reload.
func settingsOf(file *config.Config, without []string) *teamv1.ServerSettings {
	s := file.Settings()
	settings.Clear(s, without...)
	if s.GetAuth() == nil && slices.Contains(s.GetCors().GetOrigins(), "*") { // has no effect without keys
		s.Cors = nil
	}
	return s
}

// setLevel sets a level to that of a file. A nil level does not follow the file.
func setLevel(level *zap.AtomicLevel, file *config.Config) {
	if level == nil {
		return
	}
	to, err := zapcore.ParseLevel(settings.WithDefaults(file.Server.GetServer()).GetLog().GetLevel())
	if err == nil { // the file was checked
		level.SetLevel(to)
	}
}
