package upstream

import (
	"slices"
	"sync"
	"time"
)

// slots is the number of parts that the window is divided into.
const slots = 10

// retries counts the calls and retries of an upstream.
type retries struct {
	cfg *Config

	mu     sync.Mutex
	counts [slots]slotCount // guarded by mu
	turn   time.Time        // of the last retry that has to wait; guarded by mu
}

// slotCount holds the counts of one part of the window.
type slotCount struct {
	at             int64 // number of the part, counted from the Unix epoch
	calls, retries int
}

// slot returns the counts of the current part of the window. The caller holds mu.
func (r *retries) slot(now time.Time) *slotCount {
	at := now.UnixNano() / int64(r.cfg.Window/slots)
	c := &r.counts[at%slots]
	if c.at != at {
		*c = slotCount{at: at}
	}
	return c
}

func (r *retries) call(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slot(now).calls++
}

// retry counts a retry and returns how long it has to wait, unless the budget is exhausted: ok is false then. busy
// says that retries beyond the share of the calls are not allowed.
func (r *retries) retry(now time.Time, busy bool) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := r.slot(now)
	calls, done := 0, 0
	for _, c := range r.counts {
		if here.at-c.at < slots {
			calls += c.calls
			done += c.retries
		}
	}
	switch within := done < max(r.cfg.Retries, calls*r.cfg.RetryShare/100); {
	case !within && busy:
		return 0, false
	case !within:
		r.turn = r.turn.Add(r.cfg.RetryEvery)
		if r.turn.Before(now) {
			r.turn = now.Add(r.cfg.RetryEvery)
		}
		wait = r.turn.Sub(now)
	}
	here.retries++
	return wait, true
}

// busy reports whether there were many calls in one of the parts of the window.
func (r *retries) busy(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := now.UnixNano() / int64(r.cfg.Window/slots)
	return slices.ContainsFunc(r.counts[:], func(c slotCount) bool { return here-c.at < slots && c.calls >= r.cfg.Busy })
}

// idle reports whether there was no call and no retry within the last window.
func (r *retries) idle(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	here := now.UnixNano() / int64(r.cfg.Window/slots)
	for _, c := range r.counts {
		if here-c.at < slots {
			return false
		}
	}
	return true
}
