package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/pkg/agent"
)

// breaker is the circuit breaker of one agent for one account.
type breaker struct {
	account, agent string

	cfg   *Config
	cb    circuitbreaker.CircuitBreaker[any]
	age   atomic.Int64 // number of state changes; a result counts only if the state is that in which the call began
	under atomic.Int64 // number of calls in progress
	last  atomic.Int64 // when the last call ended, in Unix nanoseconds
}

func newBreaker(k key, cfg *Config) *breaker {
	b := &breaker{account: k.account, agent: k.called, cfg: cfg}
	b.cb = circuitbreaker.NewBuilder[any]().
		WithFailureRateThreshold(float64(cfg.Failures)/100, uint(cfg.Calls), cfg.Window).
		WithDelay(cfg.Probe).
		WithSuccessThreshold(1).
		OnStateChanged(b.changed).
		Build()
	return b
}

// changed logs a state change.
func (b *breaker) changed(e circuitbreaker.StateChangedEvent) {
	b.age.Add(1)
	log := b.cfg.Log.Info
	if e.NewState == circuitbreaker.OpenState {
		log = b.cfg.Log.Warn
	}
	log("circuit breaker", zap.String("account", b.account), zap.String("agent", b.agent), zap.Stringer("was", e.OldState), zap.Stringer("is", e.NewState))
}

// allow returns a function to report the result of a call, or the error if the call must not be
// made.
func (b *breaker) allow() (func(agent.Judgement), error) {
	if !b.cb.TryAcquirePermit() {
		return nil, b.refusal()
	}
	age := b.age.Load()
	var once sync.Once
	return func(v agent.Judgement) {
		once.Do(func() {
			if b.age.Load() == age {
				b.record(v)
			}
			b.leave()
		})
	}, nil
}

// leave records that a call ended.
func (b *breaker) leave() {
	b.last.Store(time.Now().UnixNano())
	b.under.Add(-1)
}

// idle reports whether the breaker has no state worth keeping: it is closed, and no
// call is running or ended within two windows.
func (b *breaker) idle() bool {
	return b.under.Load() == 0 && b.cb.IsClosed() && time.Since(time.Unix(0, b.last.Load())) > 2*b.cfg.Window
}

// record counts the result of a call. A probe whose result is neither success nor failure counts as
// a failure, so that another probe is made later.
func (b *breaker) record(v agent.Judgement) {
	switch {
	case v == agent.JudgementAnswered:
		b.cb.RecordSuccess()
	case v == agent.JudgementFailed, b.cb.IsHalfOpen():
		b.cb.RecordFailure()
	}
}

// refusal returns the error for a call that must not be made.
func (b *breaker) refusal() error {
	wait := max(b.cb.RemainingDelay(), time.Second)
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonBreakerOpen,
		"agent %q is temporarily not called, because too many recent calls failed (%s); try again in %s", b.agent, b.open(), wait.Round(time.Second))
	e.Retry, e.RetryAfter = true, wait
	return e.With("agent", b.agent)
}

// open describes the state of a breaker that is not closed, or returns "".
func (b *breaker) open() string {
	switch b.cb.State() {
	case circuitbreaker.OpenState:
		return "circuit breaker open"
	case circuitbreaker.HalfOpenState:
		return "circuit breaker half open"
	case circuitbreaker.ClosedState:
	}
	return ""
}
