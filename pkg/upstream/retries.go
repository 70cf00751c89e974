package upstream

import (
	"sync"
	"time"
)

// slots is into how many pieces the window is cut.
const slots = 10

// retries counts the calls of one upstream and their repetitions.
type retries struct {
	cfg *Config

	mu     sync.Mutex
	counts [slots]counted // guarded by mu
}

// counted is a piece of time.
type counted struct {
	at             int64 // which piece it is, since the beginning of time
	calls, retries int
}

// slot returns the piece of now. The caller holds mu.
func (r *retries) slot(now time.Time) *counted {
	at := now.UnixNano() / int64(r.cfg.Window/slots)
	c := &r.counts[at%slots]
	if c.at != at {
		*c = counted{at: at}
	}
	return c
}

func (r *retries) call(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slot(now).calls++
}

// retry counts a repetition, unless there were too many.
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
