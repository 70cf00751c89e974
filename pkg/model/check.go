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
}

// Check implements Checker for a provider.
func (c *Config) Check(ctx context.Context, l List) error {
	req, err := newRequest(ctx, http.MethodGet, c.base()+l.Path, l.Header, http.NoBody)
	if err != nil {
		return c.known(declined, "the request for the models of the endpoint of %q could not be created; check base_url", c.Name)
	}
	for name, value := range c.Headers {
		req.Header.Set(name, value.Reveal())
	}
	res, err := c.HTTPClient.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.unreached().Because(c.cause(err))
	}
	defer res.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return c.unknown(lost, "the response of the endpoint of model %q was interrupted; try again", c.Name).Because(c.cause(err))
	case res.StatusCode == http.StatusOK:
		return c.listed(body)
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusMethodNotAllowed, res.StatusCode == http.StatusNotImplemented:
		return ErrNoList
	}
	r := readReport(res.StatusCode, body)
	e := c.status(r, 0)
	if r.status >= http.StatusInternalServerError && r.words != "" { // whoever checks may see it
		e.Message += ": " + c.clean(r.words)
	}
	return e
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
