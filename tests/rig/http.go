package rig

import (
	"bytes"
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

// Answer is an HTTP answer. Whoever reads its body closes it.
type Answer struct {
	Status int
	Header http.Header
	body   io.ReadCloser
}

// Do makes an HTTP request with the target's headers and those given.
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
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // an Answer has it
	if err != nil {
		return nil, err
	}
	return &Answer{Status: resp.StatusCode, Header: resp.Header, body: resp.Body}, nil
}

// PublicCard fetches an agent's card from its well-known address, the default
// agent's for an empty tenant.
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
	_ = a.body.Close() // read to its end
	return b, err
}

func prefix(tenant string) string {
	if tenant == "" {
		return ""
	}
	return "/" + url.PathEscape(tenant)
}

// Read reads a REST answer into m, or makes an *Error of it.
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

// events reads a stream of events, or the error that came instead of one.
func (a *Answer) events(read func(wire.Event) (*a2av1.StreamResponse, error), plain func(*Answer) error) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		defer func() { _ = a.body.Close() }() // the reader may leave early
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
