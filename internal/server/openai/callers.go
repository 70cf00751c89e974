package openai

import (
	"context"
	"sync"
	"time"
)

// callers knows of each message whose caller waits, or has just got its answer. It is of this process alone: a repeat after
// a crash, or at another replica, is told by the time.
type callers struct {
	mu    sync.Mutex
	calls map[string]*caller // by id of the message; guarded by mu
}

// caller is a call that waits for the answer to a message.
type caller struct {
	left     chan struct{} // closed when it no longer waits
	answered bool          // set before left is closed
}

// enter notes that a caller waits for the answer to a message. The caller must call leave.
func (c *callers) enter(message string) *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := &caller{left: make(chan struct{})}
	c.calls[message] = of
	return of
}

// leave notes how a wait has ended. Only a caller without its answer posts the message again.
func (c *callers) leave(message string, of *caller, answered bool) {
	of.answered = answered
	close(of.left)
	if answered {
		time.AfterFunc(moment, func() { c.forget(message, of) })
		return
	}
	c.forget(message, of)
}

// forget forgets a call.
func (c *callers) forget(message string, of *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[message] == of {
		delete(c.calls, message)
	}
}

// waits reports whether a caller waits for the answer to a message.
func (c *callers) waits(message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.calls[message]
	if of == nil {
		return false
	}
	select {
	case <-of.left:
		return false
	default:
		return true
	}
}

// leaving is how long it may take until the end of a connection is known.
const leaving = time.Second

// have reports whether a caller waits for the answer to a message, or has just got it.
func (c *callers) have(ctx context.Context, message string) bool {
	c.mu.Lock()
	of := c.calls[message]
	c.mu.Unlock()
	if of == nil {
		return false
	}
	timer := time.NewTimer(leaving)
	defer timer.Stop()
	select {
	case <-of.left:
		return of.answered
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}
