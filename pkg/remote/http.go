package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
)

// exchangeHTTP sends a request; without an answer the peer is UNAVAILABLE.
func exchangeHTTP(c *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return resp, nil
}

func newRequest(ctx context.Context, method, url, token string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	setHeaders(req, token)
	if uris := extensionsOf(ctx); uris != "" {
		req.Header.Set("A2A-Extensions", uris)
	}
	return req, nil
}

func readAll(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	b, err := egress.ReadBody(resp.Body, maxBody)
	switch {
	case errors.Is(err, egress.ErrTooLarge):
		return nil, tooLarge(err)
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return b, nil
}

// readREST yields the responses of an answer of REST that is a stream of events, each
// read by parse or, where it is an error, by refused.
func readREST(resp *http.Response, refused func(int, []byte) *status.Status, parse func([]byte) (*a2av1.StreamResponse, error), yield func(*a2av1.StreamResponse, error) bool) {
	if !wire.IsEventStream(resp.Header) {
		_ = resp.Body.Close()
		yield(nil, unreadable(fmt.Errorf("the answer to a call that streams has the content type %q; expected %s", resp.Header.Get("Content-Type"), wire.TypeSSE)))
		return
	}
	readStream(resp.Body, func(e wire.Event) (*a2av1.StreamResponse, error) {
		if e.Failed() {
			return nil, refused(http.StatusInternalServerError, e.Data).Err()
		}
		return parse(e.Data)
	}, yield)
}

// readStream yields the responses of a stream of events, each read by read; the
// first that cannot be read is the last.
func readStream(body io.ReadCloser, read func(wire.Event) (*a2av1.StreamResponse, error), yield func(*a2av1.StreamResponse, error) bool) {
	defer func() { _ = body.Close() }()
	for e, err := range wire.ReadEvents(body) {
		switch {
		case errors.Is(err, wire.ErrEventTooLarge):
			yield(nil, tooLarge(err))
			return
		case err != nil:
			yield(nil, status.Error(codes.Unavailable, err.Error()))
			return
		}
		r, err := read(e)
		if !yield(r, err) || err != nil {
			return
		}
	}
}

func parseBare(b []byte) (*a2av1.StreamResponse, error) {
	r := &a2av1.StreamResponse{}
	if err := wire.UnmarshalAnswer(b, r); err != nil {
		return nil, unreadable(err)
	}
	return r, nil
}
