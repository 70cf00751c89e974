package mcp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	maxAnswer     = 16 << 20 // bytes of a response that is not a stream
	maxRefusal    = 64 << 10 // bytes of a refusal that are searched for its reason
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
	// unknownSession says that the server refused the request because it does not know the session.
	unknownSession bool
	// resumed says that the request asked for the rest of a stream that was cut off.
	resumed bool
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
	c.Transport = &transport{next: next, server: s}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // do not send the token to another server
	return &c
}

// transport adds the token and the trace context to requests and records them in the exchange of their context.
type transport struct {
	next   http.RoundTripper
	server *Server
}

// authorize adds the headers of the configuration and the token, which it returns if it may be replaced by a new one.
func (t *transport) authorize(req *http.Request) (used secret.Secret, err error) {
	c := &t.server.config
	for name, value := range c.Headers {
		req.Header.Set(name, value.Reveal())
	}
	token := c.Bearer
	if c.Tokens != nil {
		if used, err = c.Tokens.Token(req.Context()); err != nil {
			return used, err
		}
		token = used
		t.server.token.Store(&used)
	}
	if !token.IsZero() {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	return used, nil
}

// send sends a request with a token. One that is refused with it is sent once more, with a new token.
func (t *transport) send(req *http.Request) (*http.Response, error) {
	used, err := t.authorize(req)
	if err != nil {
		return nil, err
	}
	res, err := t.next.RoundTrip(req)
	if err != nil || used.IsZero() || res.StatusCode != http.StatusUnauthorized || req.Body != nil && req.GetBody == nil {
		return res, err
	}
	t.server.config.Tokens.Discard(used)
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return res, nil //nolint:nilerr // the answer stands
		}
	}
	if _, err := t.authorize(again); err != nil {
		return res, nil //nolint:nilerr // the answer stands
	}
	_ = res.Body.Close() // it is not read
	return t.next.RoundTrip(again)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context()) // a RoundTripper must not change it
	traceparent.Set(req.Context(), req.Header)
	res, err := t.send(req)
	e, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if err != nil {
		if e != nil {
			e.record(outcome{err: err})
		}
		return nil, err
	}
	o := outcome{status: res.StatusCode, after: retryAfter(res.Header), resumed: req.Method == http.MethodGet}
	if o.unknownSession, err = refusesSession(req, res); err != nil {
		o = outcome{err: err}
	}
	if e != nil {
		e.record(o)
	}
	if err != nil {
		return nil, err
	}
	res.Body = exactBody(res)
	return res, nil
}

// exactBody returns the body of a response, of at most maxAnswer bytes unless it is a stream, with messages that are
// prepared by markNumbers.
func exactBody(res *http.Response) io.ReadCloser {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "text/event-stream" {
		return boundedBody{&exactEvents{from: bufio.NewReader(res.Body)}, res.Body}
	}
	return boundedBody{&exactDocument{from: io.LimitReader(res.Body, maxAnswer)}, res.Body}
}

// aboutSession matches the errors of servers that do not know a session, or miss its id. MCP leaves the words to
// servers, and has no code for it.
var aboutSession = regexp.MustCompile(`(?is)session.*(missing|required|not found|no such|unknown|unrecogni|invalid|expired|terminated|closed|ended|does ?n.t exist|does not exist)|(missing|requires|no|no valid|unknown|unrecogni[sz]ed|invalid|expired|terminated)[ -]+(mcp[ -]+)?session|not initialized`)

// refusesSession reports whether a response refuses a request because the server does not know its session: HTTP 404
// of a request with a session id, or HTTP 400 with an error about the session. The caller can still read the response.
func refusesSession(req *http.Request, res *http.Response) (bool, error) {
	switch {
	case res.StatusCode == http.StatusNotFound:
		return req.Header.Get("Mcp-Session-Id") != "", nil
	case res.StatusCode != http.StatusBadRequest:
		return false, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		_ = res.Body.Close() // reading has failed already
		return false, err
	}
	res.Body = boundedBody{io.MultiReader(bytes.NewReader(body), res.Body), res.Body}
	return aboutSession.Match(body), nil
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
