package mcp

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

const (
	maxAnswer     = 16 << 20 // bytes of an answer that is no stream
	maxRetryAfter = 24 * time.Hour
)

// exchange is what is known of the HTTP request of a call.
type exchange struct {
	err    error // why there is no answer
	status int   // 0: no answer came
	after  time.Duration
}

type exchangeKey struct{}

// observed returns a context whose request e is told of.
func observed(ctx context.Context, e *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// httpClient makes the calls: with the token, and bounded.
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
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token goes nowhere else
	return &c
}

type transport struct {
	next   http.RoundTripper
	bearer string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.bearer != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+t.bearer)
	}
	res, err := t.next.RoundTrip(req)
	e, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if err != nil {
		if e != nil {
			e.err = err
		}
		return nil, err
	}
	if e != nil {
		e.status, e.after = res.StatusCode, retryAfter(res.Header)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		res.Body = bounded{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, nil
}

// bounded reads from one and closes the other.
type bounded struct {
	io.Reader
	io.Closer
}

// retryAfter is what the server asks to wait; 0 is unknown.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
