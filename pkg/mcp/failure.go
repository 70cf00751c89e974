package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// unreachable returns the error of a call that was not made. An error that says so already is returned as it is.
func (s *Server) unreachable(ctx context.Context, err error, x outcome) error {
	var said *agent.Error
	if errors.As(err, &said) {
		return err
	}
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
		"the MCP server of tool %q could not be reached; check its command or url, and try again", s.config.Name)
	e.Retry, e.Fresh = true, true
	switch cause := context.Cause(ctx); {
	case x.status == http.StatusUnauthorized || x.status == http.StatusForbidden:
		e = s.tokenRefused(x.status)
	case errors.Is(cause, errStart):
		e.Message = fmt.Sprintf("the MCP server of tool %q did not list its tools within %s; check its command or url, or raise timeouts.start", s.config.Name, s.config.shownStartTimeout())
		if p := s.newest.Load(); p != nil && p.hasEnded() {
			err = &Crash{p.stderr.tail()}
		}
	case errors.Is(cause, errClosed) || errors.Is(err, errClosed):
		e.Message = fmt.Sprintf("the MCP server of tool %q is being stopped; try again later", s.config.Name)
	case cause != nil && !errors.Is(cause, errList):
		return cause
	default:
		if how, crash := s.crashed(ctx, err); crash != nil {
			e.Message = fmt.Sprintf("the MCP server of tool %q ended with %s before it answered; check its command", s.config.Name, how)
			err = crash
		}
	}
	err = withoutPath(err)
	if s.config.Place != "" {
		err = fmt.Errorf("%s: %w", s.config.Place, err)
	}
	return e.Because(err)
}

// shownStartTimeout returns the time limit for the start of the server, for people.
func (c *Config) shownStartTimeout() string {
	if c.StartTimeout == 0 {
		return StartTimeout.String() + " (default)"
	}
	return c.StartTimeout.String()
}

// withoutPath removes the path of the URL from the error of a request, because some
// servers expect a token there.
func withoutPath(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	at, bad := url.Parse(u.URL)
	if bad != nil {
		return u.Err
	}
	return fmt.Errorf("%s %s://%s: %w", u.Op, at.Scheme, at.Host, u.Err)
}

func (s *Server) tokenRefused(status int) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable,
		"the MCP server of tool %q refused the token (HTTP %d); check its bearer, oauth or headers", s.config.Name, status)
	e.Fresh = true
	return e
}

// hide returns a text of the server without its token and the values of its headers. Values of Env may be parts of any text, such as the
// name of a folder, and are not hidden.
func (s *Server) hide(text string) string {
	secrets := append(slices.Collect(maps.Values(s.config.Headers)), s.config.Bearer)
	if token := s.token.Load(); token != nil {
		secrets = append(secrets, *token)
	}
	return secret.Hide(text, secrets...)
}

// failure returns the error of a call that failed. If the server answered with an error, the
// outcome is known. If the connection broke or the server had an internal error, it is not known
// whether the tool was executed.
func (s *Server) failure(ctx context.Context, tool string, err error, x outcome) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errClosed):
		return lost(tool).Because(err)
	case errors.Is(cause, errCall):
		return s.config.late(tool)
	case cause != nil:
		return cause
	}
	e := s.status(x)
	var refused *jsonrpc.Error
	says := x.err == nil && errors.As(err, &refused) // the library uses the same type for requests that were not sent
	switch {
	case e != nil && says && e.Code == agent.CodeFailedPrecondition && refused.Message != "":
		e.Message += ": " + s.hide(refused.Message)
	case e != nil:
	case says && !x.resumed:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the server refused the call: %s", s.hide(refused.Message))
		e.Fresh = true
	default:
		e = lost(tool)
		if how, crash := s.crashed(ctx, err); crash != nil {
			e.Message = fmt.Sprintf("the MCP server of tool %q ended with %s while %s was called; it is unknown whether the call took effect", s.config.Name, how, tool)
			err = crash
		}
	}
	return e.Because(withoutPath(err))
}

// Crash is the cause of the error of a call whose program has exited. It must only be logged.
type Crash struct {
	// Stderr are the last lines that the program has written to its standard error, without values of Config.Env.
	Stderr []string
}

// Error returns the lines.
func (c *Crash) Error() string { return "stderr: " + cmp.Or(strings.Join(c.Stderr, " | "), "nothing") }

// crashed returns how the program ended, if that is why a call failed with err. Otherwise crash is nil.
func (s *Server) crashed(ctx context.Context, err error) (how string, crash *Crash) {
	p := s.newest.Load()
	hungUp := errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, io.EOF)
	if p == nil || !hungUp {
		return "", nil
	}
	how, stderr, ok := p.exit(ctx)
	if !ok {
		return "", nil
	}
	return how, &Crash{stderr}
}

// lost returns the error of a call whose outcome is unknown.
func lost(tool string) *agent.Error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the connection broke while %s was called; it is unknown whether the call took effect", tool)
	e.Retry = true
	return e
}

// status returns the error for the HTTP status of a call, or for a connection that could not be
// made. It returns nil if x has neither, or if a call was accepted and only the rest of its stream was refused.
func (s *Server) status(x outcome) *agent.Error {
	var e *agent.Error
	switch {
	case x.resumed:
	case x.status == http.StatusTooManyRequests:
		e = agent.Errorf(agent.CodeResourceExhausted, agent.ReasonUnavailable, "the server limits the rate of calls (HTTP %d); try again later", x.status)
		e.Retry, e.Fresh, e.RetryAfter = true, true, x.after
	case x.status == http.StatusNotFound, x.status == 0 && dialFailed(x.err):
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the server could not be reached; try again later")
		e.Retry, e.Fresh = true, true
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		e = s.tokenRefused(x.status)
	case x.status >= 300 && x.status < 500:
		e = agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "the server refused the call (HTTP %d)", x.status)
		e.Fresh = true
	case x.status >= 500:
		e = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the server failed (HTTP %d); it is unknown whether the call took effect", x.status)
		e.Retry = true
	}
	return e
}

// ended reports whether a call failed because its connection has ended. For a program this is the
// case whenever there is no response; over HTTP, other calls may still use the session.
func (s *Server) ended(ctx context.Context, err error) bool {
	var refused *jsonrpc.Error
	switch {
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, mcp.ErrSessionMissing):
		return true
	case errors.As(err, &refused), ctx.Err() != nil:
		return false
	}
	return s.config.URL == ""
}

// dialFailed reports whether no connection was made, so that nothing was sent.
func dialFailed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
