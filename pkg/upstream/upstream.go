// Package upstream keeps a process from calling what does not work: a circuit
// breaker for each agent, and a budget of repetitions for whatever is
// called. All teams of a process share one Guard.
package upstream

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Guard; the zero value is usable.
type Config struct {
	// Failures is the share of calls that must fail to open a breaker, in per
	// cent; 0 is 50.
	Failures int
	// Calls is how many there must be in Window before it opens; 0 is 20.
	Calls int
	// Window is how far back calls count, for breakers and for repetitions; 0 is 10 s.
	Window time.Duration
	// Probe is after what time an open breaker lets one call through; 0 is 5 s.
	Probe time.Duration
	// Retries is how many repetitions there may be in Window in any case; 0 is 3.
	Retries int
	// RetryShare is how many there may be of the calls in Window, in per cent; 0 is 10.
	RetryShare int
	// Clock tells the time of repetitions; nil is time.Now.
	Clock func() time.Time
	// Log gets every change of a breaker; nil is none.
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

// Guard knows how the calls of a process went. Safe for concurrent use.
type Guard struct {
	cfg Config

	mu       sync.Mutex
	breakers map[string]*breaker // by agent id; guarded by mu
	retries  map[string]*retries // by upstream; guarded by mu
	sweepAt  int                 // number of entries of both maps at which sweep is called; guarded by mu
}

// minSweep is the number of entries below which nothing is swept.
const minSweep = 64

// New returns a Guard of which nothing is known yet.
func New(c Config) *Guard {
	return &Guard{cfg: c.withDefaults(), breakers: map[string]*breaker{}, retries: map[string]*retries{}, sweepAt: minSweep}
}

// Allow asks whether an agent may be called. Where it may, done must be called
// with what came of it; further calls of done change nothing. The error is
// BREAKER_OPEN.
func (g *Guard) Allow(agentID string) (done func(agent.Judgement), err error) {
	b := g.enter(agentID)
	done, err = b.allow()
	if err != nil {
		b.leave()
	}
	return done, err
}

// Open says why an agent is not called, in words for people; empty: it is called.
func (g *Guard) Open(agentID string) string {
	g.mu.Lock()
	b := g.breakers[agentID]
	g.mu.Unlock()
	if b == nil {
		return ""
	}
	return b.open()
}

// Called counts a call of an agent, a model or a tool by a name of the caller's
// choice: a first attempt, no repetition.
func (g *Guard) Called(upstream string) { g.counted(upstream).call(g.cfg.Clock()) }

// MayRetry reports whether a call may be repeated now, and counts the repetition:
// at most RetryShare of the last calls, but never fewer than Retries.
func (g *Guard) MayRetry(upstream string) bool {
	ok := g.counted(upstream).retry(g.cfg.Clock())
	if !ok {
		g.cfg.Log.Warn("too many repetitions: a call is not repeated", zap.String("upstream", upstream))
	}
	return ok
}

// enter returns the breaker of an agent and counts one more running call.
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

func (g *Guard) counted(upstream string) *retries {
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

// sweep removes entries that are equal to new ones. It is called each time the maps
// have doubled since the last sweep, so they hold only the calls of the last two
// windows, breakers that are not closed, and agents with running calls. The caller
// holds mu.
func (g *Guard) sweep() {
	if len(g.breakers)+len(g.retries) < g.sweepAt {
		return
	}
	maps.DeleteFunc(g.breakers, func(_ string, b *breaker) bool { return b.idle() })
	now := g.cfg.Clock()
	maps.DeleteFunc(g.retries, func(_ string, r *retries) bool { return r.idle(now) })
	g.sweepAt = max(minSweep, 2*(len(g.breakers)+len(g.retries)))
}
