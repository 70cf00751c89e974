package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// cache holds the last description of a peer or, for a shorter time, the error of reading it.
// One caller reads the description at a time, and the others wait for its result. A caller at
// a deeper level of nesting than the reader does not wait but reads it as well: if agents
// contain each other, the deeper call is a part of the read that it would wait for. Such a
// circle ends at its depth limit.
type cache[T any] struct {
	good, bad time.Duration

	mu     sync.Mutex
	value  T         // guarded by mu
	err    error     // guarded by mu
	until  time.Time // guarded by mu
	flight *flight   // the read in progress; nil if there is none; guarded by mu
}

// flight is a read of the description.
type flight struct {
	depth int
	done  chan struct{}
}

// newCache returns an empty cache. good and bad are how long a description or an error is cached.
func newCache[T any](good, bad time.Duration) *cache[T] { return &cache[T]{good: good, bad: bad} }

// get returns the cached result, or else that of fetch.
func (c *cache[T]) get(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	return c.look(ctx, fetch, func(error) bool { return true })
}

// need returns the cached result, or else that of fetch. It does not return a cached error
// that a retry may resolve.
func (c *cache[T]) need(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	return c.look(ctx, fetch, func(err error) bool { return err == nil || !agent.AsError(err).Retry })
}

// look returns the cached result if holds returns true for its error, or else the result of fetch.
func (c *cache[T]) look(ctx context.Context, fetch func(context.Context) (T, error), holds func(error) bool) (T, error) {
	for {
		c.mu.Lock()
		if time.Now().Before(c.until) && holds(c.err) {
			defer c.mu.Unlock()
			return c.value, c.err
		}
		if c.flight == nil || agent.Depth(ctx) > c.flight.depth {
			own := c.start(ctx)
			c.mu.Unlock()
			return c.ask(ctx, own, fetch)
		}
		other := c.flight
		c.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		}
	}
}

// renew returns the result of fetch and caches it.
func (c *cache[T]) renew(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	own := c.start(ctx)
	c.mu.Unlock()
	return c.ask(ctx, own, fetch)
}

// start begins a read. The caller must hold mu.
func (c *cache[T]) start(ctx context.Context) *flight {
	own := &flight{depth: agent.Depth(ctx), done: make(chan struct{})}
	if c.flight == nil {
		c.flight = own
	}
	return own
}

// ask calls fetch for the read own and caches the result.
func (c *cache[T]) ask(ctx context.Context, own *flight, fetch func(context.Context) (T, error)) (T, error) {
	value, err := fetch(ctx)
	c.land(ctx, own, value, err)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return value, err
}

// land ends a read and caches its result, unless that is an error of the caller: its context
// was canceled, or its own path was too long.
func (c *cache[T]) land(ctx context.Context, own *flight, value T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flight == own {
		c.flight = nil
	}
	close(own.done)
	ttl := c.good
	if err != nil {
		ttl = c.bad
		left := ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		if left || agent.AsError(err).Reason == agent.ReasonMaxDepth {
			return
		}
	}
	c.value, c.err, c.until = value, err, time.Now().Add(ttl)
}
