package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// maxBody bounds one answer, in bytes.
const maxBody = 16 << 20

// web makes HTTP calls, and shows them where asked to.
type web struct {
	cfg     Config
	version string // of the protocol
	http    *http.Client
}

func newWeb(cfg Config) *web {
	version := V10
	if cfg.Version != "" {
		version = cfg.Version
	}
	return &web{cfg: cfg, version: version, http: &http.Client{
		// A token must not follow a redirect to who knows where.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// service are the parameters of every call, as headers or as metadata.
func (w *web) service() http.Header {
	h := http.Header{"A2a-Version": {w.version}}
	if len(w.cfg.Extensions) > 0 {
		name := "A2A-Extensions"
		if w.version == V03 {
			name = "X-A2A-Extensions"
		}
		h.Set(name, strings.Join(w.cfg.Extensions, ", "))
	}
	if w.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+w.cfg.Token)
	}
	maps.Copy(h, w.cfg.Headers)
	return h
}

func (w *web) raw(format string, args ...any) {
	if w.cfg.Raw != nil {
		fmt.Fprintln(w.cfg.Raw, inner.ReplaceAllString(fmt.Sprintf(format, args...), `$1"***"`))
	}
}

// inner are the secrets of push notifications, in JSON.
var inner = regexp.MustCompile(`("(?:credentials|token)"\s*:\s*)"(?:[^"\\]|\\.)*"`)

// secret are names of headers whose value is not shown.
var secret = regexp.MustCompile(`(?i)auth|token|key|secret|cookie|password|credential`)

func (w *web) rawHeader(direction string, h map[string][]string, names ...string) {
	for _, name := range names {
		for _, value := range h[name] {
			if secret.MatchString(name) {
				value = "***"
			}
			w.raw("%s %s: %s", direction, strings.Replace(name, "A2a-", "A2A-", 1), value)
		}
	}
}

func (w *web) do(req *http.Request, body []byte) (*http.Response, error) {
	maps.Copy(req.Header, w.service())
	w.raw("> %s %s", req.Method, req.URL.Redacted())
	w.rawHeader(">", req.Header, slices.Sorted(maps.Keys(req.Header))...)
	if body != nil {
		w.raw("> %s", body)
	}
	resp, err := w.http.Do(req) //nolint:gosec // the user names the address
	if err != nil {
		return nil, unreachable(req.URL.Scheme+"://"+req.URL.Host, err)
	}
	w.raw("< %s", resp.Status)
	w.rawHeader("<", resp.Header, "Content-Type", "Location", "Retry-After", "A2a-Extensions", "X-A2a-Extensions")
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		done(resp)
		return nil, fmt.Errorf("%s has moved to %s; call that", req.URL.Redacted(), to.Redacted())
	}
	return resp, nil
}

// request is a request with a body of JSON, nil for none.
func (w *web) request(ctx context.Context, method, url, media string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, fmt.Errorf("the card names %q, which is no address", url)
	}
	if body != nil {
		req.Header.Set("Content-Type", media)
	}
	return req, nil
}

// answer makes a request and reads its answer, whatever its status.
func (w *web) answer(req *http.Request, body []byte) (httpStatus int, data []byte, err error) {
	resp, err := w.do(req, body)
	if err != nil {
		return 0, nil, err
	}
	defer done(resp)
	data, err = w.read(resp)
	return resp.StatusCode, data, err
}

// done closes an answer; what was wanted of it has been read.
func done(resp *http.Response) { _ = resp.Body.Close() }

func (w *web) read(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	case len(data) > maxBody:
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	w.raw("< %s", bytes.TrimSpace(data))
	return data, nil
}

func (w *web) close() error {
	w.http.CloseIdleConnections()
	return nil
}

// judge is what an answer says to have gone wrong; OK for a good one.
type judge func(httpStatus int, body []byte) *status.Status

// byStatus is a judge of answers whose HTTP status says whether they are good.
func byStatus(of judge) judge {
	return func(httpStatus int, body []byte) *status.Status {
		if httpStatus/100 == 2 {
			return nil
		}
		return of(httpStatus, body)
	}
}

// events yields the events that a request is answered with. An answer that is no
// stream is an error, the one that judge finds in it.
func (w *web) events(req *http.Request, body []byte, of judge) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		req.Header.Set("Accept", wire.TypeSSE)
		resp, err := w.do(req, body)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		defer done(resp)
		if resp.StatusCode == http.StatusOK && wire.IsEventStream(resp.Header) {
			w.parse(resp.Body, yield)
			return
		}
		data, err := w.read(resp)
		if err == nil {
			err = refused(of(resp.StatusCode, data))
		}
		if err == nil {
			err = fmt.Errorf("the server answered %s, no stream of events", cmp.Or(resp.Header.Get("Content-Type"), resp.Status))
		}
		yield(wire.Event{}, err)
	}
}

// parse yields the events of a body. One that has no id is shown without: it comes
// with the newest one so far.
func (w *web) parse(body io.Reader, yield func(wire.Event, error) bool) {
	newest := ""
	for ev, err := range wire.ReadEvents(body) {
		switch {
		case err != nil:
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

// responses reads what events tell; the first that cannot be read is the last.
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

// failing is a stream that cannot be had.
func failing(err error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) { yield(nil, err) }
}

// behind asks for what comes after a cursor.
func behind(req *http.Request, after int64) {
	if after != 0 {
		req.Header.Set("Last-Event-Id", strconv.FormatInt(after, 10))
	}
}

func decode(data []byte, m proto.Message) error {
	if err := wire.UnmarshalAnswer(data, m); err != nil {
		return unreadable(err)
	}
	return nil
}

// unreadable is the error of an answer that is not what it should be; err is that of
// reading it.
func unreadable(err error) error { return errors.New(wire.AnswerFault(err)) }
