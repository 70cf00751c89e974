package model

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
)

// maxForms is the maximum number of forms in which one request is sent.
const maxForms = 6

// Refusals remembers which optional parts of requests an endpoint has refused, each by a word of the
// provider's package, so that only the first request is sent twice. The zero value is ready for use. It is
// safe for concurrent use.
type Refusals struct {
	mu    sync.Mutex
	known map[string]bool // guarded by mu
}

// Post sends a request without the parts that the endpoint has refused. If it is rejected, learn returns
// the word for the part to blame; "" means that none is. Then the request is sent once more, without it,
// and the word is remembered if the turn succeeds. without holds the words that body must heed.
func (r *Refusals) Post(ctx context.Context, c *Call, path string, header http.Header, body func(without map[string]bool) any, learn func(without map[string]bool, why *Rejection) string) error {
	without := r.copy()
	for form := 1; ; form++ {
		err := c.Post(ctx, path, header, body(without))
		var why *Rejection
		if !errors.As(err, &why) {
			c.succeeded = func() { r.remember(without) }
			return err
		}
		word := ""
		if form < maxForms {
			word = learn(without, why)
		}
		if word == "" || without[word] {
			return err
		}
		without[word] = true
	}
}

// copy returns the words that are remembered.
func (r *Refusals) copy() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		return map[string]bool{}
	}
	return maps.Clone(r.known)
}

// remember adds words.
func (r *Refusals) remember(words map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]bool{}
	}
	maps.Copy(r.known, words)
}
