package model

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/internal/traceparent"
)

// Bounds on responses, so that a broken endpoint cannot exhaust memory.
const (
	maxStream     = 64 << 20 // bytes of a successful response
	maxFailure    = 64 << 10 // bytes of an error response
	maxRetryAfter = 24 * time.Hour
)

// drainTime is the timeout for reading the bytes that follow a complete turn, so that its
// connection can be reused.
const drainTime = 50 * time.Millisecond

// Call makes the single HTTP request of a turn; a provider's library uses it as its HTTP client.
// Call gives access to the headers of error responses, closes bodies and limits how much is read,
// which the libraries do not do. It is not safe for concurrent use.
type Call struct {
	http   *http.Client
	key    string // idempotency key
	traces bool   // the request has the trace context
	cancel context.CancelFunc
	res    *http.Response
	sent   atomic.Bool // the headers of the request have been written
	idle   idleTimer
}

// Do makes the request. It does not retry.
func (c *Call) Do(req *http.Request) (*http.Response, error) {
	if c.key != "" {
		// Not in canonical form: with "Idempotency-Key" net/http would send the
		// request again by itself when a connection breaks.
		req.Header["idempotency-key"] = []string{c.key}
	}
	if c.traces {
		traceparent.Set(req.Context(), req.Header)
	}
	trace := &httptrace.ClientTrace{WroteHeaders: func() { c.sent.Store(true) }}
	c.idle.start()
	defer c.idle.stop()
	res, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace))) //nolint:gosec // G704: the address is the configuration's
	if err != nil {
		return nil, err
	}
	c.res = res
	if c.Failed() {
		res.Body = body{io.LimitReader(res.Body, maxFailure), res.Body}
	} else {
		res.Body = body{&limitedReader{idleReader{res.Body, &c.idle}, maxStream}, res.Body}
	}
	return res, nil
}

// Status returns the HTTP status, or 0 if there is no response.
func (c *Call) Status() int {
	if c.res == nil {
		return 0
	}
	return c.res.StatusCode
}

// Failed reports whether the response has a status other than 2xx.
func (c *Call) Failed() bool {
	return c.res != nil && (c.res.StatusCode < 200 || c.res.StatusCode > 299)
}

// Streams returns an error if the response cannot be a stream, because it is HTML or JSON. There
// must be a response.
func (c *Call) Streams() error {
	t, _, _ := mime.ParseMediaType(c.res.Header.Get("Content-Type"))
	if t == "text/html" || t == "application/json" {
		return &notStreamError{t}
	}
	return nil
}

// close ends the request. If whole is true, the turn was read completely, and close drains what
// remains of the body for at most drainTime, so that the connection can be reused. Otherwise close
// aborts the request.
func (c *Call) close(whole bool) {
	defer c.cancel()
	if c.res == nil {
		return
	}
	if whole {
		timer := time.AfterFunc(drainTime, c.cancel)
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, c.res.Body, maxFailure)
	}
	_ = c.res.Body.Close()
}

// retryAfter returns the delay that the endpoint asks for: in milliseconds, in seconds or as a
// date. It returns 0 if unknown.
func (c *Call) retryAfter(now time.Time) time.Duration {
	h := c.res.Header
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return bounded(ms / 1000)
	}
	after := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(after, 64); err == nil {
		return bounded(s)
	}
	if t, err := http.ParseTime(after); err == nil {
		return bounded(t.Sub(now).Seconds())
	}
	return 0
}

// bounded converts seconds to a duration from 0 to maxRetryAfter.
func bounded(seconds float64) time.Duration {
	switch {
	case !(seconds > 0): // NaN too
		return 0
	case seconds > maxRetryAfter.Seconds():
		return maxRetryAfter
	}
	return time.Duration(seconds * float64(time.Second))
}

// body reads from Reader and closes Closer.
type body struct {
	io.Reader
	io.Closer
}

// limitedReader is a reader that returns errTooLong after left bytes.
type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// idleTimer ends a request if the endpoint sends nothing for too long while it is waited for.
type idleTimer struct {
	after   time.Duration // 0 means no limit
	end     func()
	timer   *time.Timer
	expired atomic.Bool
}

// start begins to wait for the endpoint.
func (t *idleTimer) start() {
	switch {
	case t.after <= 0:
	case t.timer == nil:
		t.timer = time.AfterFunc(t.after, func() {
			t.expired.Store(true)
			t.end()
		})
	default:
		t.timer.Reset(t.after)
	}
}

// stop ends the wait.
func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// idleReader limits how long each read may wait.
type idleReader struct {
	io.Reader
	idle *idleTimer
}

func (r idleReader) Read(p []byte) (int, error) {
	r.idle.start()
	defer r.idle.stop()
	return r.Reader.Read(p)
}
