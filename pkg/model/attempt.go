package model

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

var (
	// ErrStopped is returned if the consumer of the turn stopped reading.
	ErrStopped = errors.New("stopped")

	errTooLong = errors.New("the response is larger than 64 MiB")
)

// notStreamError is the error for a response that is not a stream.
type notStreamError struct{ mediaType string }

func (e *notStreamError) Error() string {
	return "the endpoint answered with " + e.mediaType + ", not with a stream"
}

// EndpointError is what an endpoint reports about a failure.
type EndpointError struct {
	// Status is the HTTP status, or the status that corresponds to an error within a stream.
	Status int
	// Message is the text from the endpoint.
	Message string
	// RetryAfter is the delay from the response body; 0 if unknown.
	RetryAfter time.Duration
	// QuotaExhausted reports that a quota is exhausted, so that retrying does not help.
	QuotaExhausted bool
	// KeyRefused reports that the API key was rejected, whatever Status is.
	KeyRefused bool
}

// Attempt makes the single request of a turn. receive makes it through the Call and reads the
// response; report extracts from an error what the endpoint reported, or returns nil. When Attempt
// returns, the connection is closed or available for the next turn. The error is ErrStopped, the
// cause of the end of ctx, or an *agent.Error. Its Spent is marked as estimated if the provider may
// bill the attempt: it has received the request and has not rejected it with an HTTP status.
func (c *Config) Attempt(ctx context.Context, key string, receive func(context.Context, *Call) error, report func(error) *EndpointError) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rctx, cancel := context.WithCancel(ctx)
	call := &Call{http: c.HTTPClient, base: c.base(), key: key, traces: c.SendTraceparent, cancel: cancel, idle: idleTimer{after: c.IdleTimeout, end: cancel}}
	whole := false
	defer func() { call.close(whole) }()
	err := receive(rctx, call)
	switch {
	case errors.Is(err, ErrStopped):
		return ErrStopped
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return c.failure(call, err, report(err))
	}
	whole = true
	return nil
}

// failure returns the error for callers. The error of the endpoint becomes its cause, which is
// logged. A caller sees an excerpt of it only if the request itself was rejected, and not if the
// key was rejected or a quota is exhausted.
func (c *Config) failure(call *Call, err error, report *EndpointError) *agent.Error {
	var odd *notStreamError
	var broken *BrokenError
	var e *agent.Error
	switch {
	case call.idle.expired.Load():
		e = c.lost("the endpoint of model %q sent nothing for %s (idle_timeout)", c.Name, c.IdleTimeout)
	case call.failed():
		e = c.status(call.res.StatusCode, call.retryAfter(time.Now()), report)
	case report != nil:
		e = c.status(report.Status, 0, report)
	case errors.As(err, &broken):
		e = c.status(http.StatusBadGateway, 0, nil)
		e.Message += broken.words()
	case errors.As(err, &odd):
		e = c.refuse("the endpoint of model %q answered with %s, not with a stream; check base_url", c.Name, odd.mediaType)
	case errors.Is(err, errTooLong), errors.Is(err, bufio.ErrTooLong):
		e = c.refuse("the response of model %q is too large; the limit is 64 MiB, and 16 MiB for one event", c.Name)
	case call.res == nil && !sent(err):
		e = c.refuse("the request for model %q could not be created", c.Name)
	case call.res == nil:
		e = c.lost("the endpoint of model %q could not be reached; try again later", c.Name)
	default:
		e = c.lost("the response of model %q was interrupted; try again", c.Name)
	}
	e.Spent = &teamv1.Spent{}
	if (call.sent.Load() || call.res != nil) && !call.failed() { // a RoundTripper may ignore traces
		e.Spent = &teamv1.Spent{ModelCalls: 1, Estimated: true}
	}
	return e.Because(&cause{err: err, key: c.APIKey})
}

// Partly adds to an error of Attempt what the provider has reported of the usage before it. Input
// tokens are reported at once and in full; the output so far is less than what is billed.
func (p Price) Partly(err error, u agent.Usage) error {
	var e *agent.Error
	if !errors.As(err, &e) || !e.Spent.GetEstimated() || u.Input <= 0 {
		return err
	}
	e = e.Because(e.Err)
	e.Spent = p.Spent(nil, u, false)
	return e
}

// status returns the error for an HTTP status, with the report of the endpoint if there is one.
func (c *Config) status(status int, after time.Duration, report *EndpointError) *agent.Error {
	if report == nil {
		return StatusError(c.Name, status, after)
	}
	if report.KeyRefused {
		status = http.StatusUnauthorized
	}
	e := StatusError(c.Name, status, max(after, bounded(report.RetryAfter.Seconds())))
	switch {
	case report.QuotaExhausted:
		e.Retry = false
		e.Message = fmt.Sprintf("the quota of model %q is exhausted (HTTP %d); retrying does not help", c.Name, status)
	case !e.Retry && status != http.StatusUnauthorized && status != http.StatusForbidden:
		if words := clean(report.Message, c.APIKey, 200); words != "" {
			e.Message += ": " + words
		}
	}
	return e
}

// refuse returns the error for a request that must not be retried.
func (c *Config) refuse(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, format, args...)
	e.Fresh = true
	return e
}

// lost returns the error for a request that the endpoint may or may not have processed.
func (c *Config) lost(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, format, args...)
	e.Retry = true
	return e
}

// sent reports whether the request may have been sent, as opposed to a failure to create it.
func sent(err error) bool {
	var u *url.Error
	return errors.As(err, &u)
}
