package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/agentteams/team-server/pkg/agent"
)

// unreachable is the failure of a call that has not been made.
func (s *Server) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStart) {
		return context.Cause(ctx)
	}
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
		"the MCP server of tool %q could not be reached; check its command or url, and try again", s.config.Name)
	e.Retry, e.Fresh = true, true
	return e.Because(err)
}

// failure says what is known of a call that has failed. What the server answered
// is known; after a connection that broke, and after a server's own fault, nobody
// knows whether the tool did its work.
func (s *Server) failure(ctx context.Context, tool string, err error, x *exchange) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var refused *jsonrpc.Error
	var e *agent.Error
	switch {
	case errors.As(err, &refused):
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the server refused the call: %s", refused.Message)
		e.Fresh = true
	case x.status == http.StatusTooManyRequests:
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the server takes no more calls for now (HTTP %d); try again later", x.status)
		e.Retry, e.Fresh, e.RetryAfter = true, true, x.after
	case x.status == http.StatusNotFound, x.status == 0 && dialed(x.err):
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the server could not be reached; try again later")
		e.Retry, e.Fresh = true, true
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the server refused the token (HTTP %d); check bearer of tool %q", x.status, s.config.Name)
		e.Fresh = true
	case x.status >= 300 && x.status < 500:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the server refused the call (HTTP %d)", x.status)
		e.Fresh = true
	default:
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the connection broke while %s was called; nobody knows whether it did its work", tool)
		e.Retry = true
	}
	return e.Because(err)
}

// dialed reports whether no connection was made, so that nothing was sent.
func dialed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
