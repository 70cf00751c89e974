package model

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

var (
	// ErrStopped: the caller wants no more.
	ErrStopped = errors.New("stopped")
	// ErrBroken: the endpoint ended the answer with an error it does not explain.
	ErrBroken = errors.New("the endpoint reported an error within the stream")

	errTooLong = errors.New("the answer is longer than 64 MiB")
)

// notStream is an answer that cannot be a stream.
type notStream struct{ mediaType string }

func (e *notStream) Error() string {
	return "the endpoint answered with " + e.mediaType + ", not with a stream"
}

// Said is what an endpoint reports of a failure.
type Said struct {
	// Status is the HTTP status, or the one that a report within a stream stands for.
	Status int
	// Message is in the endpoint's words.
	Message string
	// After is how long to wait, where the body says so; 0 is unknown.
	After time.Duration
	// UsedUp: a quota is used up, and waiting does not help.
	UsedUp bool
	// KeyRefused: the key is not known, whatever the status is.
	KeyRefused bool
}

// Attempt makes one turn's one request. receive makes it through the Call and
// reads the answer; said finds in an error what the endpoint reports, or is nil.
// The connection is closed when it returns, or free for the next turn. The error
// is ErrStopped, the cause of the end of ctx, or an *agent.Error.
func (c *Config) Attempt(ctx context.Context, key string, receive func(context.Context, *Call) error, said func(error) *Said) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rctx, cancel := context.WithCancel(ctx)
	call := &Call{http: c.HTTPClient, key: key, cancel: cancel}
	whole := false
	defer func() { call.close(whole) }()
	err := receive(rctx, call)
	switch {
	case errors.Is(err, ErrStopped):
		return ErrStopped
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return c.failure(call, err, said(err))
	}
	whole = true
	return nil
}

// failure is the caller's view of what went wrong. What the endpoint said is the
// cause and goes to the log; a caller sees a piece of it where the request was
// refused, and never of answers about keys and quotas.
func (c *Config) failure(call *Call, err error, said *Said) *agent.Error {
	var odd *notStream
	var e *agent.Error
	switch {
	case call.Failed():
		e = c.status(call.res.StatusCode, call.retryAfter(time.Now()), said)
	case said != nil:
		e = c.status(said.Status, 0, said)
	case errors.Is(err, ErrBroken):
		e = c.status(http.StatusBadGateway, 0, nil)
	case errors.As(err, &odd):
		e = c.refuse("the endpoint of model %q answered with %s, not with a stream; check base_url", c.Name, odd.mediaType)
	case errors.Is(err, errTooLong), errors.Is(err, bufio.ErrTooLong):
		e = c.refuse("model %q answered with more than a turn may have, 64 MiB in pieces of 16 MiB", c.Name)
	case call.res == nil && !sent(err):
		e = c.refuse("model %q cannot be asked like this", c.Name)
	case call.res == nil:
		e = c.lost("the endpoint of model %q could not be reached; try again later", c.Name)
	default:
		e = c.lost("the answer of model %q broke off; try again", c.Name)
	}
	return e.Because(&cause{err: err, key: c.APIKey})
}

// status is the error for an HTTP status, with what the endpoint says about it.
func (c *Config) status(status int, after time.Duration, said *Said) *agent.Error {
	if said == nil {
		return StatusError(c.Name, status, after)
	}
	if said.KeyRefused {
		status = http.StatusUnauthorized
	}
	e := StatusError(c.Name, status, max(after, bounded(said.After.Seconds())))
	switch {
	case said.UsedUp:
		e.Retry = false
		e.Message = fmt.Sprintf("the quota of model %q is used up (HTTP %d); waiting does not help", c.Name, status)
	case !e.Retry && status != http.StatusUnauthorized && status != http.StatusForbidden:
		if words := clean(said.Message, c.APIKey, 200); words != "" {
			e.Message += ": " + words
		}
	}
	return e
}

func (c *Config) refuse(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, format, args...)
	e.Fresh = true
	return e
}

// lost is a failure after which nobody knows what the endpoint did.
func (c *Config) lost(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, format, args...)
	e.Retry = true
	return e
}

// sent reports whether the failure is one of the request on its way, and not of
// making it.
func sent(err error) bool {
	var u *url.Error
	return errors.As(err, &u)
}
