package upstream

import (
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

// retry counts a retry and returns true, unless the budget is exhausted.
func (r *retries) retry(now time.Time) bool {
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
	if done >= max(r.cfg.Retries, calls*r.cfg.RetryShare/100) {
		return false
	}
	here.retries++
	return true
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
