package model

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

var (
	// errStopped is returned if the consumer of the turn stopped reading.
	errStopped = errors.New("stopped")

	errTooLong = errors.New("the response is larger than 64 MiB")
)

// errEmpty is the error for a response of 2xx without an event.
var errEmpty = errors.New("the response has no event")

// notStreamError is the error for a response that is not a stream. mediaType may be "".
type notStreamError struct{ mediaType string }

func (e *notStreamError) Error() string {
	return "the endpoint answered with " + e.mediaType + ", not with a stream"
}

// attempt makes the single request of a turn. receive makes it through the Call and reads the
// response. When attempt returns, the connection is closed or available for the next turn. The error is
// errStopped, the cause of the end of ctx, or an *agent.Error. Its Spent is marked as estimated if the
// provider may bill the attempt: it has received the request, has not rejected it with an HTTP status, and
// has sent an event.
func (c *Config) attempt(ctx context.Context, key string, receive func(context.Context, *Call) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rctx, cancel := context.WithCancel(ctx)
	call := &Call{http: c.HTTPClient, base: c.base(), header: c.Headers, key: key, traces: c.SendTraceparent, cancel: cancel, idle: idleTimer{after: c.IdleTimeout, end: cancel}}
	whole := false
	defer func() { call.close(whole) }()
	err := receive(rctx, call)
	switch {
	case errors.Is(err, errStopped):
		return errStopped
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return c.failure(call, err)
	}
	whole = true
	if call.succeeded != nil {
		call.succeeded()
	}
	return nil
}

// failure returns the error for callers. The error of the endpoint becomes its cause, which is logged. A
// caller sees the beginning of it if the endpoint refused the request with a status of 4xx.
func (c *Config) failure(call *Call, err error) *agent.Error {
	e := c.explain(call, err)
	e.Spent = &teamv1.Spent{}
	if (call.sent.Load() || call.res != nil) && !call.failed() && !errors.Is(err, errEmpty) { // a RoundTripper may ignore traces
		e.Spent = &teamv1.Spent{ModelCalls: 1, Estimated: true}
	}
	return e.Because(c.cause(err))
}

// explain returns the error for callers without its cause and costs.
func (c *Config) explain(call *Call, err error) *agent.Error {
	var rejected *Rejection
	var reported *StreamError
	var odd *notStreamError
	var broken *BrokenError
	switch {
	case call.idle.expired.Load():
		return c.unknown(silent, "the endpoint of model %q sent nothing for %s (idle_timeout)", c.Name, c.IdleTimeout)
	case errors.As(err, &rejected):
		return c.status(readReport(rejected.Status, rejected.Body), call.retryAfter(time.Now()))
	case errors.As(err, &reported):
		return c.status(readReport(0, reported.Body), 0)
	case errors.As(err, &broken):
		e := c.status(&report{status: http.StatusBadGateway}, 0)
		e.Message += broken.words()
		return e
	case errors.Is(err, errEmpty):
		return kindError(empty, c.Name, call.res.StatusCode, "")
	case errors.As(err, &odd):
		return c.known(noStream, "the endpoint of model %q answered with %s, not with a stream; check base_url", c.Name, cmp.Or(odd.mediaType, "something else"))
	case errors.Is(err, errTooLong), errors.Is(err, bufio.ErrTooLong):
		return c.known(tooLarge, "the response of model %q is too large; the limit is 64 MiB, and 16 MiB for one event", c.Name)
	case call.res == nil && !sent(err):
		return c.known(declined, "the request for model %q could not be created", c.Name)
	case call.res == nil:
		return c.unreached()
	}
	return c.unknown(lost, "the response of model %q was interrupted; try again", c.Name)
}

// unreached returns the error for an endpoint that gave no answer at all.
func (c *Config) unreached() *agent.Error {
	return c.unknown(lost, "the endpoint of model %q could not be reached; check base_url and the network, and that the server runs", c.Name)
}

// partly adds to an error of attempt what the provider has reported of the usage before it. Input
// tokens are reported at once and in full; the output so far is less than what is billed.
func (p Price) partly(err error, u agent.Usage) error {
	var e *agent.Error
	if !errors.As(err, &e) || !e.Spent.GetEstimated() || u.Input <= 0 {
		return err
	}
	e = e.Because(e.Err)
	e.Spent = p.Spent(nil, u, false)
	return e
}

// status returns the error for what an endpoint reports.
func (c *Config) status(r *report, after time.Duration) *agent.Error {
	f := r.kind()
	if f.name == keyless.name && r.status < http.StatusInternalServerError && r.status != http.StatusForbidden {
		r.status = http.StatusUnauthorized // whatever the endpoint has answered with
	}
	e := kindError(f, c.Name, r.status, c.clean(r.words))
	if e.Retry {
		e.RetryAfter = max(after, bounded(r.retryAfter.Seconds()))
	}
	return e
}

// known returns the error for a failure whose outcome is known.
func (c *Config) known(f failure, format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, format, args...)
	e.Retry, e.Elsewhere, e.Fresh = f.retry, f.other, true
	return e
}

// unknown returns the error for a request that the endpoint may or may not have processed.
func (c *Config) unknown(f failure, format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, format, args...)
	e.Retry, e.Elsewhere = f.retry, f.other
	return e
}

// sent reports whether the request may have been sent, as opposed to a failure to create it.
func sent(err error) bool {
	var u *url.Error
	return errors.As(err, &u)
}
