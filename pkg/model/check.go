package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Checker is implemented by models whose endpoint can be checked by a call that costs no tokens.
type Checker interface {
	// Check asks the endpoint for its models. It returns nil if the endpoint accepts the key and lists the
	// model. The error is ErrNoList or ErrNotListed, or an *agent.Error as for a turn that has failed.
	Check(ctx context.Context) error
}

var (
	// ErrNoList means that the endpoint answers, but has no list of models, so that it is unknown whether it
	// accepts the key.
	ErrNoList = errors.New("the endpoint has no list of models")
	// ErrNotListed means that the endpoint accepts the key, but does not list the model.
	ErrNotListed = errors.New("the endpoint does not list the model")
)

// maxList is the maximum size of a list of models in bytes.
const maxList = 8 << 20

// List is how a provider lists its models.
type List struct {
	// Path is what follows the base URL.
	Path string
	// Header authenticates the request; its values may hold the key.
	Header http.Header
	// KeyRefused reports whether the body of an error with a status other than 401 and 403 means that the key
	// was rejected; nil means that none does.
	KeyRefused func(body []byte) bool
}

// Check implements Checker for a provider.
func (c *Config) Check(ctx context.Context, l List) error {
	req, err := newRequest(ctx, http.MethodGet, c.base()+l.Path, l.Header, http.NoBody)
	if err != nil {
		return c.refuse("the request for the models of the endpoint of %q could not be created; check base_url", c.Name)
	}
	res, err := c.HTTPClient.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.lost("the endpoint of model %q could not be reached; check base_url and the network", c.Name).Because(&cause{err: err, key: c.APIKey})
	}
	defer res.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return c.lost("the response of the endpoint of model %q was interrupted; try again", c.Name).Because(&cause{err: err, key: c.APIKey})
	case res.StatusCode == http.StatusOK:
		return c.listed(body)
	case l.KeyRefused != nil && l.KeyRefused(body):
		return StatusError(c.Name, http.StatusUnauthorized, 0)
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusMethodNotAllowed, res.StatusCode == http.StatusNotImplemented:
		return ErrNoList
	}
	return StatusError(c.Name, res.StatusCode, 0)
}

// listed returns nil if a list of models has the model.
func (c *Config) listed(body []byte) error {
	var list struct {
		Data []struct { // of OpenAI and Anthropic
			ID string `json:"id"`
		} `json:"data"`
		Models []struct { // of Gemini
			Name string `json:"name"`
		} `json:"models"`
	}
	if json.Unmarshal(body, &list) != nil || list.Data == nil && list.Models == nil {
		return ErrNoList
	}
	for _, m := range list.Data {
		if m.ID == c.Name {
			return nil
		}
	}
	for _, m := range list.Models {
		if strings.TrimPrefix(m.Name, "models/") == strings.TrimPrefix(c.Name, "models/") {
			return nil
		}
	}
	return fmt.Errorf("%w %q", ErrNotListed, c.Name)
}
