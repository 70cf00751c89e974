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

// healthResult is the result of a health check and its time.
type healthResult struct {
	health *teamv1.Health
	at     time.Time
}

// Health returns the last known health of an agent. It never blocks. If the result is older than
// Config.HealthTTL, it starts a check in the background. Until the first check has finished, an
// agent is reported as healthy with the detail "not checked yet". An unknown id is unhealthy, "not
// registered". The result is shared and must not be modified.
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

// Check checks the health of an agent now and stores the result for Health. A failed check is
// reported as an unhealthy result. An error is returned only for an unknown id (AGENT_NOT_FOUND),
// if ctx ends, and if agents are nested too deeply (MAX_DEPTH_EXCEEDED). The result is shared and
// must not be modified.
func (m *Manager) Check(ctx context.Context, id string) (*teamv1.Health, error) {
	e, ok := m.lookup(id)
	if !ok {
		return nil, notFound(id)
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

// refresh starts a check in the background unless one is running.
func (m *Manager) refresh(id string, e *entry) {
	if !e.checking.CompareAndSwap(false, true) {
		return
	}
	started := m.checks.start(func(ctx context.Context) {
		defer e.checking.Store(false)
		ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.CheckTimeout, errCheckTimeout)
		defer cancel()
		_, _ = m.check(ctx, id, e) // stores the result in e
	})
	if !started {
		e.checking.Store(false)
	}
}

// check checks the health of an agent and stores the result, unless the check was canceled.
func (m *Manager) check(ctx context.Context, id string, e *entry) (*teamv1.Health, error) {
	h, err := m.callHealthCheck(ctx, id, e.agent)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		if !errors.Is(cause, errCheckTimeout) {
			return nil, err
		}
		err = cause
	}
	if err != nil {
		h = agent.Unhealthy(detail(err))
	}
	e.health.Store(&healthResult{health: h, at: time.Now()})
	return h, err
}

// callHealthCheck calls the agent and converts a panic to an error.
func (m *Manager) callHealthCheck(ctx context.Context, id string, a agent.Agent) (h *teamv1.Health, err error) {
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

// detail returns the text of an error that callers may read.
func detail(err error) string {
	if errors.Is(err, errCheckTimeout) {
		return errCheckTimeout.Error()
	}
	return "health check failed: " + agent.AsError(err).Message
}

var (
	errCheckTimeout = errors.New("health check timed out")
	errNoHealth     = errors.New("agent returned neither health nor error")
	errClosed       = errors.New("manager closed")
)

// checks runs functions in the background, with bounded concurrency, until it is closed.
type checks struct {
	ctx     context.Context //nolint:containedctx // bounds the lifetime of the goroutines
	cancel  context.CancelCauseFunc
	slots   chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex // orders start against close
}

func newChecks(slots int) *checks {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &checks{ctx: ctx, cancel: cancel, slots: make(chan struct{}, slots)}
}

// start runs f in the background. It returns false if the checks are closed.
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

// close cancels the running functions and waits for them.
func (c *checks) close() {
	c.mu.Lock()
	c.cancel(errClosed)
	c.mu.Unlock()
	c.running.Wait()
}
