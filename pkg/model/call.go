package model

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/secret"
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

// Call makes the HTTP request of a turn. It closes bodies and limits how much is read. It is not safe for
// concurrent use.
type Call struct {
	http   *http.Client
	base   string // base URL without a slash at its end
	header map[string]secret.Secret
	key    string // idempotency key
	traces bool   // the request has the trace context
	cancel context.CancelFunc
	res    *http.Response
	sent   atomic.Bool // the headers of the request have been written
	idle   idleTimer

	succeeded func() // called when the turn is complete; may be nil
}

// Rejection is the error for a response whose status is not 2xx.
type Rejection struct {
	// Status is the HTTP status.
	Status int
	// Body is the body of the response, at most 64 KiB of it.
	Body []byte
}

func (r *Rejection) Error() string { return fmt.Sprintf("HTTP %d: %s", r.Status, r.Body) }

// Post sends body as JSON to path, which follows the base URL and may have a query. It returns a
// *Rejection if the status of the response is not 2xx; then Post may be called again.
func (c *Call) Post(ctx context.Context, path string, header http.Header, body any) error {
	c.res = nil
	c.sent.Store(false)
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	req, err := newRequest(ctx, http.MethodPost, c.base+path, header, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range c.header {
		req.Header.Set(name, value.Reveal())
	}
	res, err := c.do(req)
	if err != nil || !c.failed() {
		return err
	}
	data, _ = io.ReadAll(res.Body) // what was read of a broken body is better than nothing
	_ = res.Body.Close()
	return &Rejection{res.StatusCode, data}
}

// newRequest returns a request to an endpoint with the given headers.
func newRequest(ctx context.Context, method, address string, header http.Header, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", "team-server")
	return req, nil
}

// do makes the request. It does not retry.
func (c *Call) do(req *http.Request) (*http.Response, error) {
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
	res, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		return nil, err
	}
	c.res = res
	if c.failed() {
		res.Body = body{io.LimitReader(res.Body, maxFailure), res.Body}
	} else {
		res.Body = body{&limitedReader{idleReader{res.Body, &c.idle}, maxStream}, res.Body}
	}
	return res, nil
}

// failed reports whether the response has a status other than 2xx.
func (c *Call) failed() bool {
	return c.res != nil && (c.res.StatusCode < 200 || c.res.StatusCode > 299)
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
	if s, err := strconv.ParseFloat(h.Get("Llm_provider-Retry-After"), 64); err == nil { // LiteLLM passes it on by this name
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
