// Package upstream protects a process and its upstreams from repeated failures: it has a circuit
// breaker for each agent and a retry budget for each upstream, of each account. All teams of a process share a
// Guard.
package upstream

import (
	"fmt"
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
	// Retries is the number of retries in Window that are always allowed without a wait; 0 means 3.
	Retries int
	// RetryShare is the number of retries that are allowed without a wait, as a percentage of the calls in Window; 0
	// means 10.
	RetryShare int
	// Busy is the number of calls of an account in a tenth of Window from which on retries beyond RetryShare are
	// refused, for as long as that tenth is in Window; 0 means 50.
	Busy int
	// RetryEvery is the time between retries of an account that is not busy, beyond RetryShare; 0 means 20
	// milliseconds.
	RetryEvery time.Duration
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
	setDefault(&c.Busy, 50)
	setDefault(&c.RetryEvery, 20*time.Millisecond)
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
	breakers map[key]*breaker // by account and agent id; guarded by mu
	retries  map[key]*retries // by account and upstream, and by account alone; guarded by mu
	sweepAt  int              // number of entries of both maps at which sweep is called; guarded by mu
}

// key names what an account calls: an agent or an upstream.
type key struct{ account, called string }

// minSweep is the minimum number of entries at which sweep removes any.
const minSweep = 64

// New returns a Guard without any recorded calls.
func New(c Config) *Guard {
	return &Guard{cfg: c.withDefaults(), breakers: map[key]*breaker{}, retries: map[key]*retries{}, sweepAt: minSweep}
}

// Allow reports whether an account may call an agent. If so, the caller must call done with the result;
// further calls of done have no effect. Otherwise the error is BREAKER_OPEN.
func (g *Guard) Allow(account, agentID string) (done func(agent.Judgement), err error) {
	b := g.enter(key{account, agentID})
	done, err = b.allow()
	if err != nil {
		b.leave()
	}
	return done, err
}

// Open describes why an account does not call an agent, or returns "" if it may.
func (g *Guard) Open(account, agentID string) string {
	g.mu.Lock()
	b := g.breakers[key{account, agentID}]
	g.mu.Unlock()
	if b == nil {
		return ""
	}
	return b.open()
}

// Called counts a first attempt of an account to call an agent, model or tool. The caller chooses the name of the
// upstream, which is not empty.
func (g *Guard) Called(account, upstream string) {
	now := g.cfg.Clock()
	g.retriesOf(key{account, ""}).call(now)
	g.retriesOf(key{account, upstream}).call(now)
}

// Retry counts a retry, and returns how long it has to wait at least. Retries beyond RetryShare of the recent calls, but
// at least Retries, wait for their turn. If the account has made many calls, they are refused instead: the error says
// that the retry budget is used up.
func (g *Guard) Retry(account, upstream string) (wait time.Duration, err error) {
	now := g.cfg.Clock()
	wait, ok := g.retriesOf(key{account, upstream}).retry(now, g.retriesOf(key{account, ""}).busy(now))
	if ok {
		return wait, nil
	}
	g.cfg.Log.Warn("retry budget exhausted: the call is not retried", zap.String("account", account), zap.String("upstream", upstream))
	return 0, fmt.Errorf("the retry budget of the account is used up; while it makes %d calls or more in %v, it may retry %d %% of the calls of each agent, model and tool", g.cfg.Busy, g.cfg.Window/slots, g.cfg.RetryShare)
}

// enter returns the breaker of an agent for an account, and counts a call in progress.
func (g *Guard) enter(k key) *breaker {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.breakers[k]
	if b == nil {
		g.sweep()
		b = newBreaker(k, &g.cfg)
		g.breakers[k] = b
	}
	b.under.Add(1)
	return b
}

// retriesOf returns the counts of an upstream for an account, or of the account if it names none.
func (g *Guard) retriesOf(k key) *retries {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.retries[k]
	if r == nil {
		g.sweep()
		r = &retries{cfg: &g.cfg}
		g.retries[k] = r
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
	maps.DeleteFunc(g.breakers, func(_ key, b *breaker) bool { return b.idle() })
	now := g.cfg.Clock()
	maps.DeleteFunc(g.retries, func(_ key, r *retries) bool { return r.idle(now) })
	g.sweepAt = max(minSweep, 2*(len(g.breakers)+len(g.retries)))
}
