package gemini

import (
	"context"
	"errors"
	"net/http"

	"github.com/agentteams/team-server/pkg/model"
)

// noKey stands for no key: the library wants one, also for an endpoint that does
// not. It is not sent.
const noKey = "none"

// httpClient is what the library calls: each request is made by the Call of its
// context.
func httpClient() *http.Client {
	return &http.Client{
		Transport:     transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type callKey struct{}

// through returns a context whose request c makes.
func through(ctx context.Context, c *model.Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

type transport struct{}

// RoundTrip implements http.RoundTripper. The library gets an empty answer in the
// place of a stream: it panics where a piece is not as it should be, and writes
// what breaks to the log of the process. The stream is read from the Call.
func (transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*model.Call)
	if !ok {
		return nil, errors.New("a request that belongs to no turn")
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
