package agent

import (
	"context"
	"slices"
	"time"
)

// Standstill records the times when a clock was stopped. The zero value records none.
type Standstill struct{ spans []span }

type span struct{ from, to time.Time }

// Add adds the time between two moments.
func (s *Standstill) Add(from, to time.Time) {
	if to.After(from) {
		s.spans = append(s.spans, span{from, to})
	}
}

// Stood returns for how long a clock that began at start was stopped until now: during
// the times in s, and while the run was paused. Times that overlap count once.
func (r *Run) Stood(s *Standstill, start, now time.Time) time.Duration {
	r.mu.Lock()
	spans := slices.Concat(s.spans, r.pause.past.spans)
	if r.pause.paused {
		spans = append(spans, span{r.pause.since, now})
	}
	r.mu.Unlock()
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var total time.Duration
	upTo := start
	for _, one := range spans {
		if one.from.Before(upTo) {
			one.from = upTo
		}
		if one.to.After(one.from) {
			total += one.to.Sub(one.from)
			upTo = one.to
		}
	}
	return total
}

// timeout is the timeout of a whole run, or of a team in it, as a context.
type timeout struct {
	context.Context
	run    *Run
	expire func()

	timer *time.Timer   // nil while the run is paused; guarded by run.mu
	at    time.Time     // deadline while timer is set; guarded by run.mu
	left  time.Duration // remaining time while timer is nil; guarded by run.mu
}

// WithTimeout returns a context that is canceled with a cause when d has passed, not
// counting the time for which the run is paused. While the run is paused, its Deadline
// is that of ctx. Its Err is context.Canceled; context.Cause returns the cause.
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

// stop stops the timer, unless it has expired. The caller holds run.mu.
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
