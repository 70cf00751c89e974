package agent

import (
	"context"
	"slices"
	"time"
)

// Pauses is a list of periods in which a clock did not advance. The zero value is empty. It
// is not safe for concurrent use.
type Pauses struct{ spans []span }

// span is the time from one point to another.
type span struct{ from, to time.Time }

// Add adds the period between from and to. It ignores a period that is empty or negative.
func (s *Pauses) Add(from, to time.Time) {
	if to.After(from) {
		s.spans = append(s.spans, span{from, to})
	}
}

// PausedFor returns for how long a clock that was started at start has not advanced until now: the
// periods in s, and the pauses of the run. Time in which periods overlap counts once.
func (r *Run) PausedFor(s *Pauses, start, now time.Time) time.Duration {
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
