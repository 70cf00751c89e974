package server

import (
	"cmp"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// settings are the part of a Config that Reload replaces. A request takes them once, so that it meets those of one
// configuration from its beginning to its end. They are not modified.
type settings struct {
	baseURL, publicURL            string
	strictVersion, requireTeamRun bool
	noV03                         bool
	jwks                          []byte
	trustedProxies                []netip.Prefix
	origins, originHeaders        []string
	drainDelay, drainTime         time.Duration
	requests                      *zap.Logger // logs some of the requests
}

// settings returns the settings of a configuration.
func (c *Config) settings(log *zap.Logger) *settings {
	return &settings{
		baseURL: c.BaseURL, publicURL: c.PublicURL, strictVersion: c.StrictVersion, requireTeamRun: c.RequireTeamRun, noV03: c.NoV03, jwks: c.JWKS,
		trustedProxies: c.TrustedProxies, origins: c.Origins, originHeaders: c.OriginHeaders,
		drainDelay: c.DrainDelay, drainTime: cmp.Or(c.DrainTime, defaultDrainTime), requests: c.LogSampling.logger(log),
	}
}

// defaultDrainTime is how long running calls may take to end when the server stops.
const defaultDrainTime = 20 * time.Second

// Reload replaces settings by those of c: BaseURL, PublicURL, StrictVersion, RequireTeamRun, NoV03, DrainDelay,
// DrainTime, JWKS, TrustedProxies, Origins, OriginHeaders, MaxConnections, MaxConnectionsFrom, MaxCalls and
// LogSampling. The other fields of c have no effect. Requests that have begun end with the previous settings, and
// connections that are open stay open.
func (s *Server) Reload(c Config) {
	s.settings.Store(c.settings(s.log))
	s.calls.limit(c.maxCalls())
	s.connections.limit(&c)
}

// Sampling says which lines about requests are left out of the log: of those that have the same method and code
// within a second. Failures of the server are always logged. The zero value leaves out all after the first 20,
// except each hundredth.
type Sampling struct {
	// Off logs each request.
	Off bool
	// First is how many lines are logged; 0 means 20.
	First int
	// Thereafter is N to log each Nth of further lines; 0 means 100, and a negative value none.
	Thereafter int
}

// logger returns a logger that leaves out lines.
func (p Sampling) logger(log *zap.Logger) *zap.Logger {
	if p.Off {
		return log
	}
	first, thereafter := cmp.Or(p.First, 20), max(cmp.Or(p.Thereafter, 100), 0)
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, first, thereafter)
	}))
}
