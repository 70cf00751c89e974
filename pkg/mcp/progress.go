package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentteams/team-server/pkg/agent"
)

// errCall is the cause of a call that took longer than Config.CallTimeout.
var errCall = errors.New("no result and no progress in the time for a call")

// progress extends the time of calls when the server reports that they make progress. It is safe for concurrent use.
type progress struct {
	limit time.Duration // Config.CallTimeout

	mu     sync.Mutex
	calls  int               // number of calls so far; guarded by mu
	extend map[string]func() // by the token of each call in progress; guarded by mu
}

// begin returns a context for a call, which ends limit after its begin or its last progress, and the
// token by which the server reports progress. The caller must call done when the call has ended.
func (p *progress) begin(ctx context.Context) (_ context.Context, token string, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	extend := func() { agent.Progress(ctx) }
	stop := func() bool { return true }
	if p.limit > 0 {
		timer := time.AfterFunc(p.limit, func() { cancel(errCall) })
		extend, stop = func() { timer.Reset(p.limit); agent.Progress(ctx) }, timer.Stop
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	token = fmt.Sprintf("call-%d", p.calls)
	if p.extend == nil {
		p.extend = map[string]func(){}
	}
	p.extend[token] = extend
	return ctx, token, func() {
		p.mu.Lock()
		delete(p.extend, token)
		p.mu.Unlock()
		stop()
		cancel(nil)
	}
}

// notified handles a progress notification of the server.
func (p *progress) notified(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	p.mu.Lock()
	extend := p.extend[token]
	p.mu.Unlock()
	if extend != nil {
		extend()
	}
}

// late returns the error of a call that took longer than Config.CallTimeout.
func (c *Config) late(tool string) error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
		"%s had neither a result nor progress within %s (timeouts.call of tool %q); it is unknown whether the call took effect", tool, c.CallTimeout, c.Name)
	e.Retry = true
	return e
}
