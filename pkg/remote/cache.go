package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// cache keeps the last answer of a peer about itself, and for a shorter time
// that there was none. One caller asks at a time and the others wait for its
// answer, except those deeper in a nesting: a circle of agents that contain each
// other would wait for itself, and must run into its depth limit instead.
type cache[T any] struct {
	good, bad time.Duration

	mu     sync.Mutex
	value  T         // guarded by mu
	err    error     // guarded by mu
	until  time.Time // guarded by mu
	flight *flight   // who is asking; guarded by mu
}

type flight struct {
	depth int
	done  chan struct{}
}

func newCache[T any](good, bad time.Duration) *cache[T] { return &cache[T]{good: good, bad: bad} }

// get returns what is kept, or what fetch answers.
func (c *cache[T]) get(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	return c.look(ctx, fetch, func(error) bool { return true })
}

// need is get for who cannot go on without: a failure that may be over is not
// taken from what is kept.
func (c *cache[T]) need(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	return c.look(ctx, fetch, func(err error) bool { return err == nil || !agent.AsError(err).Retry })
}

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

// renew returns what fetch answers and keeps it.
func (c *cache[T]) renew(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	own := c.start(ctx)
	c.mu.Unlock()
	return c.ask(ctx, own, fetch)
}

// start needs mu.
func (c *cache[T]) start(ctx context.Context) *flight {
	own := &flight{depth: agent.Depth(ctx), done: make(chan struct{})}
	if c.flight == nil {
		c.flight = own
	}
	return own
}

func (c *cache[T]) ask(ctx context.Context, own *flight, fetch func(context.Context) (T, error)) (T, error) {
	value, err := fetch(ctx)
	c.land(ctx, own, value, err)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return value, err
}

// land keeps an answer, except one that says nothing of the peer: that the
// caller has left, or that the caller's own path was too long.
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
