package gemini

import (
	"context"
	"errors"
	"net/http"

	"github.com/agentteams/team-server/pkg/model"
)

// noKey replaces an empty key, because the library requires one. It is not sent.
const noKey = "none"

// httpClient returns the client for the library. Each request is made by the Call in its context.
func httpClient() *http.Client {
	return &http.Client{
		Transport:     transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type callKey struct{}

// withCall returns a context whose request is made by c.
func withCall(ctx context.Context, c *model.Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// transport makes requests through the Call in their context.
type transport struct{}

// RoundTrip implements http.RoundTripper. It gives the library an empty body instead of the
// stream, because the library panics on malformed events and writes errors to the log of the
// process. The stream is read from the Call.
func (transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*model.Call)
	if !ok {
		return nil, errors.New("request outside of a turn")
	}
	req = req.Clone(req.Context())
	if req.Header.Get("X-Goog-Api-Key") == noKey {
		req.Header.Del("X-Goog-Api-Key")
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	if c.Failed() {
		return res, nil
	}
	empty := *res
	empty.Body = http.NoBody
	return &empty, nil
}
