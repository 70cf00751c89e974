package rig

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// do makes an HTTP request with the target's headers.
func (t Target) do(ctx context.Context, method, path string, body []byte, headers map[string]string) (*http.Response, error) {
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
	return http.DefaultClient.Do(req)
}

// PublicCard fetches an agent's card from its well-known address, the default
// agent's for an empty tenant.
func PublicCard(ctx context.Context, target Target, tenant string) (*a2av1.AgentCard, *http.Response, error) {
	resp, err := target.do(ctx, http.MethodGet, prefix(tenant)+"/.well-known/agent-card.json", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	card := &a2av1.AgentCard{}
	return card, resp, FromREST(resp, card)
}

func prefix(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/" + url.PathEscape(tenant)
}

// FromREST reads a REST answer into m, or makes an *Error of it.
func FromREST(resp *http.Response, m proto.Message) error {
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read to its end
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errorOf(wire.ParseRESTError(resp.StatusCode, b), resp.StatusCode)
	}
	return wire.Unmarshal(b, m)
}

// events reads a stream of events, or the error that came instead of one.
func events(resp *http.Response, read func(wire.Event) (*a2av1.StreamResponse, error), plain func(*http.Response) error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		defer func() { _ = resp.Body.Close() }() // the reader may leave early
		if resp.Header.Get("Content-Type") != wire.TypeSSE {
			yield(nil, plain(resp))
			return
		}
		for e, err := range wire.ReadEvents(resp.Body) {
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
