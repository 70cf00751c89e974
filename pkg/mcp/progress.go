package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentteams/team-server/pkg/agent"
)

// errCall is the cause of a call that took longer than Config.CallTimeout.
var errCall = errors.New("no result and no progress in the time for a call")

// limited returns a context for a call, which ends Config.CallTimeout after its begin or its last progress, and the
// token by which the server reports progress. The caller must call done when the call has ended.
func (s *Server) limited(ctx context.Context) (_ context.Context, token string, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	extend := func() { agent.Progress(ctx) }
	stop := func() bool { return true }
	if limit := s.config.CallTimeout; limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errCall) })
		extend, stop = func() { timer.Reset(limit); agent.Progress(ctx) }, timer.Stop
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling++
	token = fmt.Sprintf("call-%d", s.calling)
	s.progress[token] = extend
	return ctx, token, func() {
		s.mu.Lock()
		delete(s.progress, token)
		s.mu.Unlock()
		stop()
		cancel(nil)
	}
}

// progressed handles a progress notification of the server.
func (s *Server) progressed(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	s.mu.Lock()
	extend := s.progress[token]
	s.mu.Unlock()
	if extend != nil {
		extend()
	}
}

// late returns the error of a call that took longer than Config.CallTimeout.
func (s *Server) late(tool string) error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
		"%s had neither a result nor progress within %s (timeouts.call of tool %q); it is unknown whether the call took effect", tool, s.config.CallTimeout, s.config.Name)
	e.Retry = true
	return e
}
