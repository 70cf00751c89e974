package agent

import (
	"context"
	"sync"
)

// Room is memory that is reserved for a call.
type Room interface {
	// Grow adds bytes. It never blocks.
	Grow(bytes int64)
	// Release gives the memory back. Further calls do nothing.
	Release()
}

// call is the memory of a call of a model, a tool or another agent.
type call struct {
	run *Run

	mu    sync.Mutex
	room  Room // nil while the call needs little; guarded by mu
	large bool // its answer is large; guarded by mu
}

type callKey struct{}

// BeginCall waits until there is memory for a call that is given bytes, and returns a context for it. end must be
// called when the call has ended. The error is INSUFFICIENT_RESOURCES if the wait takes too long.
func (r *Run) BeginCall(ctx context.Context, bytes int64) (of context.Context, end func(), err error) {
	if r.CallMemory == nil {
		return ctx, func() {}, nil
	}
	c := &call{run: r}
	if c.room, err = r.CallMemory(ctx, bytes); err != nil {
		return ctx, func() {}, err
	}
	return context.WithValue(ctx, callKey{}, c), c.end, nil
}

func (c *call) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room != nil {
		c.room.Release()
	}
}

// LargeAnswer reserves memory for a call whose answer is larger than LargeBytes, and waits for it unless the call
// has memory. What reads an answer calls it before it reads on. Without a call that BeginCall has begun it does
// nothing. The error is INSUFFICIENT_RESOURCES if the wait takes too long.
func LargeAnswer(ctx context.Context) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.large {
		return nil
	}
	c.large = true
	if c.room != nil { // a call that has memory must not wait for more: others may do the same
		c.room.Grow(MaxText)
		return nil
	}
	var err error
	c.room, err = c.run.CallMemory(ctx, MaxText)
	return err
}

// LargeBytes is how much of an answer is read before LargeAnswer must be called.
const LargeBytes = 64 << 10
