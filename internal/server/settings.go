package server

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
)

// sampled is the logger of requests that the settings of a snapshot ask for.
type sampled struct {
	*settings.Snapshot
	requests *zap.Logger
}

// requestLog returns the logger of requests that the settings in effect ask for.
func (s *Server) requestLog() *zap.Logger {
	now, known := s.config.Settings.Load(), s.sampled.Load()
	if known == nil || known.Snapshot != now {
		known = &sampled{now, sample(s.log, now.GetLog().GetSampling())}
		s.sampled.Store(known)
	}
	return known.requests
}

// sample returns a logger that leaves out lines about requests that have the same method and code within a second. Failures
// of the server are always logged.
func sample(log *zap.Logger, p *teamv1.LogSampling) *zap.Logger {
	if !p.GetEnabled() {
		return log
	}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, int(p.GetFirst()), int(p.GetThereafter()))
	}))
}
