package a2aclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/secret"
)

// connectTime is the timeout for connecting without Config.Dial.
const connectTime = 30 * time.Second

// web makes HTTP calls, and writes them to Config.Raw.
type web struct {
	cfg     Config
	version string // of the protocol
	http    *http.Client
	lines   sync.Mutex                    // held while a line is written to Config.Raw
	last    atomic.Pointer[secret.Secret] // the last of Config.Tokens; nil if there is none
}

// token returns the token of a call, zero if it has none.
func (w *web) token(ctx context.Context) (secret.Secret, error) {
	if w.cfg.Tokens == nil {
		return w.cfg.Token, nil
	}
	token, err := w.cfg.Tokens.Token(ctx)
	if err == nil {
		w.last.Store(&token)
	}
	return token, err
}

// sent returns the token that was sent last, which answers must not show.
func (w *web) sent() secret.Secret {
	if last := w.last.Load(); last != nil {
		return *last
	}
	return w.cfg.Token
}

func newWeb(cfg Config, version string) *web {
	return &web{cfg: cfg, version: version, http: &http.Client{
		Transport: cfg.transport(),
		// A token must not follow a redirect to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// transport returns Config.Transport, or a new transport with Config.Dial and Config.TLS.
func (cfg Config) transport() http.RoundTripper {
	if cfg.Transport != nil {
		return cfg.Transport
	}
	own := &http.Transport{
		DialContext: cfg.Dial, TLSClientConfig: cfg.TLS.Clone(),
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, MaxResponseHeaderBytes: 64 << 10,
	}
	if cfg.Dial == nil { // a proxy would bypass Dial
		own.Proxy, own.DialContext = http.ProxyFromEnvironment, (&net.Dialer{Timeout: connectTime}).DialContext
	}
	return own
}

// service returns the headers that each call carries.
func (w *web) service(ctx context.Context, token secret.Secret) http.Header {
	h := headerOf(ctx).Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("A2A-Version", w.version)
	traceparent.Set(ctx, h)
	if uris := slices.Concat(w.cfg.Extensions, extensionsOf(ctx)); len(uris) > 0 {
		name := "A2A-Extensions"
		if w.version == V03 {
			name = "X-A2A-Extensions"
		}
		h.Set(name, strings.Join(uris, ", "))
	}
	if !token.IsZero() {
		h.Set("Authorization", "Bearer "+token.Reveal())
	}
	for name, values := range w.cfg.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

// do makes a request; body is that of req, nil if it has none. A redirect is an error. A request that is refused with
// one of Config.Tokens is made once more, with a new one.
func (w *web) do(req *http.Request, body []byte) (*http.Response, error) {
	resp, used, err := w.once(req, body)
	if err != nil || w.cfg.Tokens == nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	w.cfg.Tokens.Discard(used)
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return resp, nil //nolint:nilerr // the answer stands
		}
	}
	done(resp)
	resp, _, err = w.once(again, body)
	return resp, err
}

// once makes a request, and returns the token that it was made with.
func (w *web) once(req *http.Request, body []byte) (*http.Response, secret.Secret, error) {
	token, err := w.token(req.Context())
	if err != nil {
		return nil, token, &TransportError{Address: origin(req), Err: err}
	}
	resp, err := w.roundTrip(req, body, token)
	return resp, token, err
}

func (w *web) roundTrip(req *http.Request, body []byte, token secret.Secret) (*http.Response, error) {
	maps.Copy(req.Header, w.service(req.Context(), token))
	w.raw("> %s %s", req.Method, wire.Redacted(req.URL.String()))
	w.rawHeader(">", req.Header, slices.Sorted(maps.Keys(req.Header))...)
	if body != nil {
		w.raw("> %s", body)
	}
	resp, err := w.http.Do(req) //nolint:gosec // the caller names the address, or trusts the card that does
	if err != nil {
		return nil, &TransportError{Address: origin(req), Err: egress.WithoutURL(err)}
	}
	w.raw("< %s", resp.Status)
	w.rawHeader("<", resp.Header, "Content-Type", "Location", "Retry-After", "A2a-Extensions", "X-A2a-Extensions")
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		done(resp)
		return nil, &AnswerError{Problem: fmt.Sprintf("%s has moved to %s; use that address", wire.Redacted(req.URL.String()), secret.Hide(wire.Redacted(to.String()), token)), kind: ErrMoved}
	}
	return resp, nil
}

func origin(req *http.Request) string { return req.URL.Scheme + "://" + req.URL.Host }

// request returns a request with a body of JSON; nil means no body.
func (w *web) request(ctx context.Context, method, url, media string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, fmt.Errorf("the card contains %q, which is not a valid address", wire.Redacted(url))
	}
	if body != nil {
		req.Header.Set("Content-Type", media)
	}
	return req, nil
}

// answer makes a request and returns its answer of at most limit bytes, whatever its
// status.
func (w *web) answer(req *http.Request, body []byte, limit int64) (httpStatus int, data []byte, err error) {
	resp, err := w.do(req, body) //nolint:bodyclose // read closes it
	if err != nil {
		return 0, nil, err
	}
	data, err = w.read(req, resp, limit)
	return resp.StatusCode, data, err
}

// done closes an answer. Nothing more is read from it.
func done(resp *http.Response) { _ = resp.Body.Close() }

// read reads the body of the answer to a request and closes it.
func (w *web) read(req *http.Request, resp *http.Response, limit int64) ([]byte, error) {
	defer done(resp)
	data, err := egress.ReadBody(resp.Body, limit)
	switch {
	case errors.Is(err, egress.ErrTooLarge):
		return nil, tooLarge("the answer is larger than %d bytes", limit)
	case err != nil:
		return nil, &TransportError{Address: origin(req), Broken: true, Err: err}
	}
	w.raw("< %s", bytes.TrimSpace(data))
	return data, nil
}

func (w *web) close() error {
	w.http.CloseIdleConnections()
	return nil
}

// events makes a request and yields the events of the answer. It passes an answer that is
// not a stream of events to plain, and yields what that returns.
func (w *web) events(req *http.Request, body []byte, plain func(resp *http.Response, data []byte) (wire.Event, error)) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		resp, err := w.do(req, body)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		if resp.StatusCode == http.StatusOK && wire.IsEventStream(resp.Header) {
			defer done(resp)
			w.parse(req, resp.Body, yield)
			return
		}
		data, err := w.read(req, resp, MaxAnswer)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		yield(plain(resp, data))
	}
}

// noStream returns the error for an answer that is not the expected stream of events.
func noStream(resp *http.Response) error {
	media := resp.Header.Get("Content-Type")
	if media == "" {
		media = resp.Status
	}
	return badAnswer("the server answered %s, not an event stream", media)
}

// parse yields the events of the answer to a request. An event without an id of its own has
// the id of the event before it, which is not written to Config.Raw again.
func (w *web) parse(req *http.Request, body io.Reader, yield func(wire.Event, error) bool) {
	newest := ""
	for ev, err := range wire.ReadEvents(body) {
		switch {
		case errors.Is(err, wire.ErrEventTooLarge):
			err = tooLarge("%v", err)
		case err != nil:
			err = &TransportError{Address: origin(req), Broken: true, Err: err}
		case ev.ID != newest:
			w.raw("< id: %s data: %s", ev.ID, ev.Data)
			newest = ev.ID
		default:
			w.raw("< data: %s", ev.Data)
		}
		if !yield(ev, err) || err != nil {
			return
		}
	}
}

// responses converts events to responses with read. It ends at the first error.
func responses(events iter.Seq2[wire.Event, error], read func(wire.Event) (*a2av1.StreamResponse, error)) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		for ev, err := range events {
			var r *a2av1.StreamResponse
			if err == nil {
				r, err = read(ev)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// inEvent returns the error that an event of a stream is. It has no HTTP status.
func inEvent(err error) error {
	var e *ServerError
	if errors.As(err, &e) {
		e.HTTPStatus = 0
	}
	return err
}

// failing returns a stream that yields an error only.
func failing(err error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) { yield(nil, err) }
}

// behind makes req a request for the events behind a cursor, unless that is 0.
func behind(req *http.Request, after int64) {
	if after != 0 {
		req.Header.Set("Last-Event-Id", strconv.FormatInt(after, 10))
	}
}

// decode reads an answer of 1.0 into m. One that is not in the form of 1.0, or not as a whole, is read
// as a mixture of the forms of all versions.
func decode(data []byte, m proto.Message) error {
	err := wire.UnmarshalAnswer(data, m)
	if err == nil && a2av03.Complete(m) {
		return nil
	}
	read, mixed := mixture(data, m)
	if mixed == nil {
		proto.Reset(m)
		proto.Merge(m, read)
		return nil
	}
	return unreadable(cmp.Or(err, mixed))
}

// mixture reads an answer of the type of m in which the forms of several versions are mixed.
func mixture(data []byte, m proto.Message) (proto.Message, error) {
	read := m.ProtoReflect().New().Interface()
	return read, a2av03.ReadMixed(data, read)
}
