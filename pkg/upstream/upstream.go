// Package upstream protects a process and its upstreams from repeated failures: it has a circuit
// breaker for each agent and a retry budget for each upstream. All teams of a process share a
// Guard.
package upstream

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Guard. The zero value is valid.
type Config struct {
	// Failures is the percentage of failed calls at which a breaker opens; 0 means 50.
	Failures int
	// Calls is the minimum number of calls in Window before a breaker may open; 0 means 20.
	Calls int
	// Window is the time during which calls and retries count; 0 means 10 seconds.
	Window time.Duration
	// Probe is the time after which an open breaker lets one call through; 0 means 5 seconds.
	Probe time.Duration
	// Retries is the number of retries in Window that are always allowed; 0 means 3.
	Retries int
	// RetryShare is the maximum number of retries as a percentage of the calls in Window; 0 means
	// 10.
	RetryShare int
	// Clock returns the time for retry budgets; nil means time.Now.
	Clock func() time.Time
	// Log receives the state changes of breakers; nil discards them.
	Log *zap.Logger
}

func (c Config) withDefaults() Config {
	setDefault(&c.Failures, 50)
	setDefault(&c.Calls, 20)
	setDefault(&c.Window, 10*time.Second)
	setDefault(&c.Probe, 5*time.Second)
	setDefault(&c.Retries, 3)
	setDefault(&c.RetryShare, 10)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Guard keeps the circuit breakers and retry budgets of a process. It is safe for concurrent use.
type Guard struct {
	cfg Config

	mu       sync.Mutex
	breakers map[string]*breaker // by agent id; guarded by mu
	retries  map[string]*retries // by upstream; guarded by mu
	sweepAt  int                 // number of entries of both maps at which sweep is called; guarded by mu
}

// minSweep is the minimum number of entries at which sweep removes any.
const minSweep = 64

// New returns a Guard without any recorded calls.
func New(c Config) *Guard {
	return &Guard{cfg: c.withDefaults(), breakers: map[string]*breaker{}, retries: map[string]*retries{}, sweepAt: minSweep}
}

// Allow reports whether an agent may be called. If so, the caller must call done with the result;
// further calls of done have no effect. Otherwise the error is BREAKER_OPEN.
func (g *Guard) Allow(agentID string) (done func(agent.Judgement), err error) {
	b := g.enter(agentID)
	done, err = b.allow()
	if err != nil {
		b.leave()
	}
	return done, err
}

// Open describes why an agent is not called, or returns "" if it may be called.
func (g *Guard) Open(agentID string) string {
	g.mu.Lock()
	b := g.breakers[agentID]
	g.mu.Unlock()
	if b == nil {
		return ""
	}
	return b.open()
}

// Called counts a first attempt to call an agent, model or tool. The caller chooses the name of the
// upstream.
func (g *Guard) Called(upstream string) { g.retriesOf(upstream).call(g.cfg.Clock()) }

// MayRetry reports whether a call may be retried now, and counts the retry if so. The number of
// retries is limited to RetryShare of the recent calls, but at least Retries are allowed.
func (g *Guard) MayRetry(upstream string) bool {
	ok := g.retriesOf(upstream).retry(g.cfg.Clock())
	if !ok {
		g.cfg.Log.Warn("retry budget exhausted: the call is not retried", zap.String("upstream", upstream))
	}
	return ok
}

// enter returns the breaker of an agent and counts a call in progress.
func (g *Guard) enter(id string) *breaker {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.breakers[id]
	if b == nil {
		g.sweep()
		b = newBreaker(id, &g.cfg)
		g.breakers[id] = b
	}
	b.under.Add(1)
	return b
}

// retriesOf returns the counts of an upstream.
func (g *Guard) retriesOf(upstream string) *retries {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.retries[upstream]
	if r == nil {
		g.sweep()
		r = &retries{cfg: &g.cfg}
		g.retries[upstream] = r
	}
	return r
}

// sweep removes entries that are equivalent to new ones, once the number of entries has doubled
// since it last did. It keeps upstreams called within the last two windows, breakers that are not
// closed, and agents with calls in progress. The caller holds mu.
func (g *Guard) sweep() {
	if len(g.breakers)+len(g.retries) < g.sweepAt {
		return
	}
	maps.DeleteFunc(g.breakers, func(_ string, b *breaker) bool { return b.idle() })
	now := g.cfg.Clock()
	maps.DeleteFunc(g.retries, func(_ string, r *retries) bool { return r.idle(now) })
	g.sweepAt = max(minSweep, 2*(len(g.breakers)+len(g.retries)))
}
