package rig

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Answer is an HTTP response. Its body must be read with Read, Body or another method that
// closes it.
type Answer struct {
	Status int
	Header http.Header
	body   io.ReadCloser
}

// Do sends an HTTP request with the target's headers and additional ones.
func (t Target) Do(ctx context.Context, method, path string, body []byte, headers map[string]string) (*Answer, error) {
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.HTTP+path, from)
	if err != nil {
		return nil, err
	}
	for k, v := range t.headers() {
		req.Header.Set(k, v)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	if t.Patience > 0 {
		req.Header.Set("Grpc-Timeout", strconv.FormatInt(t.Patience.Milliseconds(), 10)+"m")
	}
	resp, err := cmp.Or(t.web, http.DefaultClient).Do(req) //nolint:bodyclose // the Answer closes it
	if err != nil {
		return nil, err
	}
	return &Answer{Status: resp.StatusCode, Header: resp.Header, body: resp.Body}, nil
}

// PublicCard gets the public card of an agent; an empty tenant means the default agent.
func PublicCard(ctx context.Context, target Target, tenant string) (*a2av1.AgentCard, *Answer, error) {
	resp, err := target.Do(ctx, http.MethodGet, prefix(tenant)+"/.well-known/agent-card.json", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	card := &a2av1.AgentCard{}
	return card, resp, resp.Read(card)
}

func (a *Answer) all() ([]byte, error) {
	b, err := io.ReadAll(a.body)
	_ = a.body.Close() // the body was read to its end
	return b, err
}

func prefix(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/" + url.PathEscape(tenant)
}

// Read decodes a REST response into m, or returns its *Error.
func (a *Answer) Read(m proto.Message) error {
	b, err := a.all()
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if a.Status != http.StatusOK {
		return errorOf(wire.ParseRESTError(a.Status, b), a.Status)
	}
	return wire.Unmarshal(b, m)
}

// events reads a stream of server-sent events, or the error that the server returned
// instead.
func (a *Answer) events(read func(wire.Event) (*a2av1.StreamResponse, error), plain func(*Answer) error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		defer func() { _ = a.body.Close() }() // the reader may stop early
		if a.Header.Get("Content-Type") != wire.TypeSSE {
			yield(nil, plain(a))
			return
		}
		for e, err := range wire.ReadEvents(a.body) {
			var u *a2av1.StreamResponse
			if err == nil {
				u, err = read(e)
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}

func failed(err error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) { yield(nil, err) }
}
