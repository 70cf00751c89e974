// Package call has what the calls of all bindings have in common: who calls, what a caller may do, how many calls and how
// much memory one may have, how long a call may last, and how it is logged, measured and traced. A binding reads the headers
// into an Inbound, passes it to Identify, and to Hold and Count in either order, before it reads the body, and then calls Intercept, Unary or Stream.
package call

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Chain. Only Settings is required; what is nil is not checked, limited or measured.
type Config struct {
	Settings        *settings.Live
	Auth            auth.Authenticator
	Use             Use
	Memory          *inflight.Budget
	Refused         *audit.Refusals
	Metrics         *metrics.Calls
	Traces          *tracing.Tracer
	RecheckInterval time.Duration
	Log             *zap.Logger
}

// Chain does what the calls of all bindings have in common: it identifies callers, checks and counts calls, and records
// how they end. It is safe for concurrent use.
type Chain struct {
	config Config
	log    *zap.Logger
	// refusals logs some of the callers that are refused.
	refusals *zap.Logger
	sampled  atomic.Pointer[sampled]
	calls    *calls
	rechecks rechecks
	closing  context.Context //nolint:containedctx // canceled with cause ErrShutdown when the server stops
	close    context.CancelCauseFunc
}

// New returns a Chain.
func New(config Config) *Chain {
	c := &Chain{config: config, log: config.Log, refusals: sampledRefusals(config.Log), calls: newCalls(config.Settings)}
	c.closing, c.close = context.WithCancelCause(context.Background())
	return c
}

// Closing is canceled with the cause ErrShutdown by Close.
func (s *Chain) Closing() context.Context { return s.closing }

// Close ends streams and calls that wait for work.
func (s *Chain) Close() { s.close(agent.ErrShutdown) }

// Authenticates reports whether callers are authenticated. Otherwise each is local/local.
func (s *Chain) Authenticates() bool { return s.config.Auth != nil }

// LogPanic logs a panic outside of a call.
func (s *Chain) LogPanic(where string, p any) {
	s.log.Error("panic", zap.String("in", where), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
}
