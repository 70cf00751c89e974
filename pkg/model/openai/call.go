package openai

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// What an endpoint may send, so that a broken one costs no memory.
const (
	maxStream     = 64 << 20 // bytes of one turn
	maxLine       = 16 << 20 // bytes of one piece of it
	maxFailure    = 64 << 10 // bytes of an error
	maxRetryAfter = 24 * time.Hour
)

var errTooLong = errors.New("the answer is longer than 64 MiB")

// drainTime is how long a complete answer may take to end, so that its
// connection can be used again.
const drainTime = 50 * time.Millisecond

// call makes the one HTTP request of a turn. The library keeps the headers of
// errors to itself, leaves their bodies open and reads without a limit; call
// sees to that. Not safe for concurrent use.
type call struct {
	http   *http.Client
	key    string // idempotency key
	cancel context.CancelFunc
	res    *http.Response
}

var _ openai.HTTPDoer = (*call)(nil)

// Do implements openai.HTTPDoer.
func (c *call) Do(req *http.Request) (*http.Response, error) {
	if c.key != "" {
		// Not in canonical form: with "Idempotency-Key" net/http would send the
		// request again by itself when a connection breaks.
		req.Header["idempotency-key"] = []string{c.key}
	}
	res, err := c.http.Do(req) //nolint:gosec // G704: the address is the configuration's
	if err != nil {
		return nil, err
	}
	c.res = res
	if c.failed() {
		res.Body = body{io.LimitReader(res.Body, maxFailure), res.Body}
	} else {
		res.Body = body{&limited{res.Body, maxStream}, res.Body}
	}
	return res, nil
}

// failed reports whether the endpoint answered with a status that is no success.
func (c *call) failed() bool {
	return c.res != nil && (c.res.StatusCode < 200 || c.res.StatusCode > 299)
}

// noStream returns the media type of an answer that cannot be a stream.
func (c *call) noStream() (string, bool) {
	t, _, _ := mime.ParseMediaType(c.res.Header.Get("Content-Type"))
	return t, t == "text/html" || t == "application/json"
}

// close ends the request. After a whole answer what is left of the body is read,
// but not for long; otherwise the connection is closed.
func (c *call) close(whole bool) {
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

// retryAfter is what the endpoint asks to wait: milliseconds, seconds or a date.
func (c *call) retryAfter(now time.Time) time.Duration {
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

func bounded(seconds float64) time.Duration {
	switch {
	case !(seconds > 0): // NaN too
		return 0
	case seconds > maxRetryAfter.Seconds():
		return maxRetryAfter
	}
	return time.Duration(seconds * float64(time.Second))
}

// body reads from one and closes the other.
type body struct {
	io.Reader
	io.Closer
}

// limited is a reader that ends with errTooLong.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
