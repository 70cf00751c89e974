package agent

import (
	"context"
	"slices"
	"time"
)

// Standstill is when a clock stood still. The zero value is never.
type Standstill struct{ spans []span }

type span struct{ from, to time.Time }

// Add adds the time between two moments.
func (s *Standstill) Add(from, to time.Time) {
	if to.After(from) {
		s.spans = append(s.spans, span{from, to})
	}
}

// Stood returns for how long a clock that began at start stood still: when s says so,
// and while the run was paused. Times that overlap count once.
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

// timeout is the time of a whole run, or of a team of it, as a context.
type timeout struct {
	context.Context
	run    *Run
	expire func()

	timer *time.Timer   // nil while the run is paused; guarded by run.mu
	at    time.Time     // when it expires, while there is a timer; guarded by run.mu
	left  time.Duration // while there is none; guarded by run.mu
}

// WithTimeout returns a context that is canceled with a cause when d has passed, not
// counting the time for which the run is paused. Its Deadline is that of ctx while the
// run is paused. Its Err is context.Canceled; context.Cause tells more.
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

// start has the time pass. The caller holds run.mu.
func (t *timeout) start() {
	if t.left <= 0 {
		t.expire()
		return
	}
	t.at = time.Now().Add(t.left)
	t.timer = time.AfterFunc(t.left, t.expire)
}

// stop has the time stand still, unless it is over. The caller holds run.mu.
func (t *timeout) stop() {
	if t.timer == nil {
		return
	}
	t.timer.Stop()
	t.timer = nil
	if t.left = time.Until(t.at); t.left <= 0 { // its timer is late
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
