package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// checked is a health result and when it was taken.
type checked struct {
	health *teamv1.Health
	at     time.Time
}

// Health returns how an agent is, as last known, and never blocks. A result
// older than Config.HealthTTL starts one check in the background; until the
// first one is in, an agent counts as healthy, "not checked yet". An unknown id
// is unhealthy, "not registered" (R-000-34). The result is shared: read only.
func (m *Manager) Health(id string) *teamv1.Health {
	e, ok := m.lookup(id)
	if !ok {
		return agent.Unhealthy("not registered")
	}
	last := e.health.Load()
	if last == nil || time.Since(last.at) >= m.cfg.HealthTTL {
		m.refresh(id, e)
	}
	if last == nil {
		return notChecked
	}
	return last.health
}

// notChecked is the health of an agent before the first check. It is shared: read only.
var notChecked = &teamv1.Health{Healthy: true, Usable: true, Detail: "not checked yet"}

// Check asks an agent how it is, now, and keeps the answer for Health. A check
// that fails is an unhealthy result; the only errors are AGENT_NOT_FOUND, the
// end of ctx, and a nesting that is too deep. The result is shared: read only.
func (m *Manager) Check(ctx context.Context, id string) (*teamv1.Health, error) {
	e, ok := m.lookup(id)
	if !ok {
		return nil, m.notFound(id)
	}
	h, err := m.check(ctx, id, e)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil && agent.AsError(err).Reason == agent.ReasonMaxDepth {
		return nil, err
	}
	return h, nil
}

func (m *Manager) refresh(id string, e *entry) {
	if !e.checking.CompareAndSwap(false, true) {
		return
	}
	started := m.checks.start(func(ctx context.Context) {
		defer e.checking.Store(false)
		ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.CheckTimeout, errCheckTimeout)
		defer cancel()
		_, _ = m.check(ctx, id, e) // kept in e
	})
	if !started {
		e.checking.Store(false)
	}
}

// check asks and keeps the answer, except where the asking was given up.
func (m *Manager) check(ctx context.Context, id string, e *entry) (*teamv1.Health, error) {
	h, err := m.ask(ctx, id, e.agent)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		if !errors.Is(cause, errCheckTimeout) {
			return nil, err
		}
		err = cause
	}
	if err != nil {
		h = agent.Unhealthy(detail(err))
	}
	e.health.Store(&checked{health: h, at: time.Now()})
	return h, err
}

// ask makes a panic of an agent its own trouble only.
func (m *Manager) ask(ctx context.Context, id string, a agent.Agent) (h *teamv1.Health, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.cfg.Log.Error("health check panicked", zap.String("agent", id), zap.Any("panic", p), zap.Stack("stack"))
			h, err = nil, agent.Errorf(agent.CodeInternal, agent.ReasonAgentPanic, "health check panicked")
		}
	}()
	h, err = a.HealthCheck(ctx)
	if err == nil && h == nil {
		return nil, errNoHealth
	}
	return h, err
}

// detail is the text of an error that callers may read.
func detail(err error) string {
	if errors.Is(err, errCheckTimeout) {
		return errCheckTimeout.Error()
	}
	return "could not be asked: " + agent.AsError(err).Message
}

var (
	errCheckTimeout = errors.New("health check timed out")
	errNoHealth     = errors.New("agent returned neither health nor error")
	errClosed       = errors.New("manager closed")
)

// checks runs functions in the background, a bounded number at a time, until
// it is closed.
type checks struct {
	ctx     context.Context //nolint:containedctx // the life of the goroutines that checks owns
	cancel  context.CancelCauseFunc
	slots   chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex // orders start against close
}

func newChecks(slots int) *checks {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &checks{ctx: ctx, cancel: cancel, slots: make(chan struct{}, slots)}
}

// start reports false when the checks are closed.
func (c *checks) start(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.running.Go(func() {
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
		case <-c.ctx.Done():
			return
		}
		f(c.ctx)
	})
	return true
}

func (c *checks) close() {
	c.mu.Lock()
	c.cancel(errClosed)
	c.mu.Unlock()
	c.running.Wait()
}
