package fakellm

import (
	"context"
	"sync"
	"time"
)

// Turn is an answer of a model. The zero value is an empty text.
type Turn struct {
	// Text is the text of the answer.
	Text string
	// Reasoning is sent beside the text.
	Reasoning string
	// Signature is the signature of the reasoning, for providers that sign it.
	Signature string
	// Calls are the tool calls.
	Calls []Call
	// Files are the files that the model makes; Anthropic's models make none.
	Files []File
	// Finish is the reason for the end of the turn; "" means that of a complete turn.
	Finish string
	// Chunks is the number of pieces in which the text is streamed; 0 means 1.
	Chunks int

	// Status is the HTTP status of an error response; 0 means 200.
	Status int
	// Message and Code describe the error; each has a default.
	Message, Code string
	// Body replaces the body of an error response.
	Body string
	// RetryAfter is sent with Status unless it is 0.
	RetryAfter time.Duration

	// Delay is the time to wait before the response.
	Delay time.Duration
	// Gate holds the response after GateAfter pieces of the stream, until it is opened or the
	// client disconnects. A response that is not streamed is held as a whole.
	Gate      *Gate
	GateAfter int
	// Broken closes the connection after BreakAfter pieces of the stream, or instead of a response
	// that is not streamed.
	Broken     bool
	BreakAfter int
	// NoFinish ends the stream without a finish reason and [DONE].
	NoFinish bool
	// Raw replaces the body of the stream.
	Raw string

	// Usage is the reported usage; nil counts each word as a token.
	Usage *Usage
	// NoUsage omits the usage, like endpoints that ignore stream_options.
	NoUsage bool

	// Forever answers all further requests with this turn.
	Forever bool
}

// Call is a tool call. Arguments are sent unchanged, even if they are not JSON.
type Call struct {
	// ID is the id of the call; "" generates one.
	ID string
	// Name is the name of the tool.
	Name string
	// Arguments are the arguments as the model writes them.
	Arguments string
}

// Usage is the consumption of an answer.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	// Details are parts of PromptTokens; chat completions and messages report them.
	Details *PromptDetails `json:"prompt_tokens_details,omitempty"`
	// Output are parts of CompletionTokens; chat completions report them.
	Output *OutputDetails `json:"completion_tokens_details,omitempty"`
}

// PromptDetails are parts of the tokens of a prompt.
type PromptDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
	// CacheWriteTokens are written to a prompt cache; only messages report them.
	CacheWriteTokens int64 `json:"-"`
}

// OutputDetails are parts of the tokens of an answer.
type OutputDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

// Gate holds requests until it is opened. Use NewGate to create one. It is safe for concurrent use.
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

// Open releases the requests at the gate and lets later ones pass. It may be called more than once.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Wait returns when n requests in total have arrived at the gate, or when ctx ends.
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

// pass counts a request and holds it until the gate is opened or ctx ends.
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
