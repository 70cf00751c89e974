package agent

import (
	"context"
	"time"
)

// Names of the limits that an Expired event can name.
const (
	// LimitTimeout is the timeout of a whole run.
	LimitTimeout = "timeout"
	// LimitMemberTimeout is the timeout of a step, including its retries.
	LimitMemberTimeout = "member_timeout"
	// LimitNodeTimeout is the timeout of a member that control was handed to.
	LimitNodeTimeout = "node_timeout"
	// LimitQuestion is the time in which a question of the event's scope must be answered.
	LimitQuestion = "question"
)

// timeout is the context that WithTimeout returns.
type timeout struct {
	context.Context
	run    *Run
	expire func()

	timer *time.Timer   // nil while the run is paused; guarded by run.mu
	at    time.Time     // deadline while timer is set; guarded by run.mu
	left  time.Duration // remaining time while timer is nil; guarded by run.mu
}

// WithTimeout returns a context that is canceled with the given cause after d, not counting the
// time for which the run is paused. If d is not positive, that happens at once, or when a current
// pause ends. Its Err is context.Canceled and not context.DeadlineExceeded; context.Cause returns
// the cause. While the run is paused, its Deadline is that of ctx. The caller must call the
// CancelFunc.
func (r *Run) WithTimeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &timeout{Context: ctx, run: r, expire: func() { cancel(cause) }, left: d}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timeouts == nil {
		r.timeouts = map[*timeout]struct{}{}
	}
	r.timeouts[t] = struct{}{}
	if !r.pause.paused {
		t.start()
	}
	return t, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.timeouts, t)
		if t.timer != nil {
			t.timer.Stop()
		}
		cancel(nil)
	}
}

// start starts the timer. The caller holds run.mu.
func (t *timeout) start() {
	if t.left <= 0 {
		t.expire()
		return
	}
	t.at = time.Now().Add(t.left)
	t.timer = time.AfterFunc(t.left, t.expire)
}

// stop stops the timer unless it has expired, and keeps the remaining time. The caller holds
// run.mu.
func (t *timeout) stop() {
	if t.timer == nil {
		return
	}
	t.timer.Stop()
	t.timer = nil
	if t.left = time.Until(t.at); t.left <= 0 { // the timer has not fired yet
		t.expire()
	}
}

// Deadline implements context.Context.
func (t *timeout) Deadline() (time.Time, bool) {
	at, ok := t.Context.Deadline()
	t.run.mu.Lock()
	defer t.run.mu.Unlock()
	if t.timer != nil && (!ok || t.at.Before(at)) {
		return t.at, true
	}
	return at, ok
}

type progressKey struct{}

// WithProgress returns a context whose Progress calls extend, and then what those of ctx call. extend may be called at
// any time and concurrently.
func WithProgress(ctx context.Context, extend func()) context.Context {
	outer, _ := ctx.Value(progressKey{}).(func())
	if outer == nil {
		return context.WithValue(ctx, progressKey{}, extend)
	}
	return context.WithValue(ctx, progressKey{}, func() { extend(); outer() })
}

// Progress tells everything that limits the time of a step in ctx that the step is making progress. Each of these steps
// has its whole time again from now on; the time limit of the run stays as it is.
func Progress(ctx context.Context) {
	if extend, ok := ctx.Value(progressKey{}).(func()); ok {
		extend()
	}
}

// Sleep waits for d and returns nil, or returns the cause of ctx as soon as ctx ends. If d is not
// positive, it returns at once.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
