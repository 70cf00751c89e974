package fakellm

import (
	"context"
	"sync"
	"time"
)

// Turn is one answer of a model. The zero value is an empty text.
type Turn struct {
	// Text of the answer.
	Text string
	// Reasoning is streamed, or sent, beside the text.
	Reasoning string
	// Signature of the reasoning, where the provider signs it.
	Signature string
	// Calls of tools.
	Calls []Call
	// Chunks is how many pieces the text is streamed in; 0 is 1.
	Chunks int

	// Status is an HTTP status instead of an answer; 0 is 200.
	Status int
	// Message and Code are what the error says; each has a default.
	Message, Code string
	// RetryAfter is sent with Status where it is more than 0.
	RetryAfter time.Duration

	// Delay comes before the answer.
	Delay time.Duration
	// Gate holds the request after GateAfter pieces of the stream, until it is
	// opened or the client goes away. A plain answer is held as a whole.
	Gate      *Gate
	GateAfter int
	// Broken closes the connection after BreakAfter pieces of the stream; a plain
	// answer does not come at all.
	Broken     bool
	BreakAfter int
	// NoFinish ends the stream in order, but without a finish reason and [DONE].
	NoFinish bool
	// Raw replaces the body of the stream, byte for byte.
	Raw string

	// Usage is reported; nil reports a token a word.
	Usage *Usage
	// NoUsage reports none, as endpoints do that ignore stream_options.
	NoUsage bool

	// Forever makes this the answer to all further requests.
	Forever bool
}

// Call is a wish to call a tool. Arguments are sent as they are, JSON or not.
type Call struct {
	// ID of the call; default: one that is unique in the server.
	ID string
	// Name of the tool.
	Name string
	// Arguments as the model writes them.
	Arguments string
}

// Usage is what an answer cost.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// Gate holds requests until it is opened. Made by NewGate; safe for concurrent use.
type Gate struct {
	open    chan struct{}
	once    sync.Once
	mu      sync.Mutex
	arrived int           // guarded by mu
	changed chan struct{} // closed and replaced when arrived changes; guarded by mu
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{open: make(chan struct{}), changed: make(chan struct{})}
}

// Open lets through what waits and what comes. It may be called again.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Wait returns when n requests in all have arrived at the gate, or when ctx ends.
func (g *Gate) Wait(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		enough, changed := g.arrived >= n, g.changed
		g.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pass counts the request and holds it; an error means that it was given up.
func (g *Gate) pass(ctx context.Context) error {
	g.mu.Lock()
	g.arrived++
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
