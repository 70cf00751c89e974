package mcp

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	maxAnswer     = 16 << 20 // bytes of a response that is not a stream
	maxRetryAfter = 24 * time.Hour
)

// exchange records the outcome of the last HTTP request of a call, or of connecting. It is safe for
// concurrent use.
type exchange struct {
	mu   sync.Mutex
	last outcome // guarded by mu
}

// outcome is that of an HTTP request.
type outcome struct {
	err    error         // why there is no response
	status int           // 0 if there is no response
	after  time.Duration // Retry-After; 0 if unknown
}

func (e *exchange) record(o outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = o
}

// outcome returns the outcome of the last request; zero if there was none.
func (e *exchange) outcome() outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

type exchangeKey struct{}

// observed returns a context whose HTTP requests are recorded in e.
func observed(ctx context.Context, e *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// httpClient returns the client for all requests. It adds the token and the trace context, does not follow redirects, and
// limits the size of responses that are not event streams.
func (s *Server) httpClient() *http.Client {
	c := http.Client{}
	if s.config.HTTPClient != nil {
		c = *s.config.HTTPClient
	}
	next := c.Transport
	if next == nil {
		next = &http.Transport{}
	}
	c.Transport = &transport{next: next, bearer: s.config.Bearer}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // do not send the token to another server
	return &c
}

// transport adds the token and the trace context to requests and records them in the exchange of their context.
type transport struct {
	next   http.RoundTripper
	bearer secret.Secret
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context()) // a RoundTripper must not change it
	traceparent.Set(req.Context(), req.Header)
	if !t.bearer.IsZero() {
		req.Header.Set("Authorization", "Bearer "+t.bearer.Reveal())
	}
	res, err := t.next.RoundTrip(req)
	e, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if err != nil {
		if e != nil {
			e.record(outcome{err: err})
		}
		return nil, err
	}
	if e != nil {
		e.record(outcome{status: res.StatusCode, after: retryAfter(res.Header)})
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		res.Body = boundedBody{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, nil
}

// boundedBody reads from Reader and closes Closer.
type boundedBody struct {
	io.Reader
	io.Closer
}

// retryAfter returns the delay that the server asks for, or 0.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
