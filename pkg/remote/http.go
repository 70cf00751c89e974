package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
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
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return b, nil
}

// unreadable is the error of an answer that is not what it should be.
func unreadable(err error) error {
	e := agent.Errorf(agent.CodeInternal, reasonInvalidResponse, "the agent's answer cannot be read").Because(err)
	e.Fresh = true
	return e
}

func isEventStream(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && kind == wire.TypeSSE
}

// readStream yields the responses of a stream of events, each read by parse.
func readStream(body io.ReadCloser, parse func([]byte) (*a2av1.StreamResponse, error), yield func(*a2av1.StreamResponse, error) bool) {
	defer func() { _ = body.Close() }()
	for e, err := range wire.ReadEvents(body) {
		if err != nil {
			yield(nil, status.Error(codes.Unavailable, err.Error()))
			return
		}
		if e.Kind == "error" || isError(e.Data) { // of REST: the last one
			yield(nil, wire.ParseRESTError(http.StatusInternalServerError, e.Data).Err())
			return
		}
		r, err := parse(e.Data)
		if !yield(r, err) || err != nil {
			return
		}
	}
}

// isError reports whether an event of REST holds an error: not every server says so
// in its type.
func isError(b []byte) bool {
	var e struct {
		Error struct {
			Status string `json:"status"`
		} `json:"error"`
	}
	return bytes.HasPrefix(b, []byte(`{"error"`)) && json.Unmarshal(b, &e) == nil && e.Error.Status != ""
}

func parseBare(b []byte) (*a2av1.StreamResponse, error) {
	r := &a2av1.StreamResponse{}
	if err := wire.Unmarshal(b, r); err != nil {
		return nil, unreadable(err)
	}
	return r, nil
}
