package model

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config is what a model at a provider is made of.
type Config struct {
	// Name is the model's name at its provider; it is sent as it is. Required.
	Name string
	// BaseURL is the provider's address, http or https; the default is the
	// provider's own, and its package says up to where.
	BaseURL string
	// APIKey is sent as the provider wants it; empty sends none.
	APIKey string
	// HTTPClient makes the calls; nil is a client of its own. Its Timeout should
	// be 0: a turn lasts as long as its context.
	HTTPClient *http.Client
	// Price of the model; the zero value counts no cost.
	Price Price
	// MaxOutput is how many tokens an answer may have at most; 0 is the provider's
	// own limit. A request may ask for less.
	MaxOutput int64
}

// Price is what a model costs, in USD per million tokens.
type Price struct {
	// Input is for tokens read, Output for tokens written.
	Input, Output float64
}

// Micros is the price in millionths of a USD, see agent.Pricer.
func (p Price) Micros() (input, output int64) {
	return agent.MicrosPerMillion(p.Input), agent.MicrosPerMillion(p.Output)
}

// Spent is what a turn cost.
func (p Price) Spent(in, out int64) *teamv1.Spent {
	in, out = max(in, 0), max(out, 0)
	price := agent.Price{}
	price.Input, price.Output = p.Micros()
	return &teamv1.Spent{ModelCalls: 1, InputTokens: in, OutputTokens: out, CostMicros: price.Round(in, out)}
}

// Complete returns c with its defaults in place. The error lists every fault,
// and never the key.
func (c Config) Complete(baseURL string) (Config, error) {
	c.APIKey = strings.TrimSpace(c.APIKey)
	if c.BaseURL == "" {
		c.BaseURL = baseURL
	}
	if c.HTTPClient == nil {
		c.HTTPClient = &http.Client{}
	}
	return c, c.validate(baseURL)
}

func (c *Config) validate(example string) error {
	var faults []error
	if c.Name == "" {
		faults = append(faults, errors.New("name is missing: the model's name at its provider"))
	}
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		faults = append(faults, errors.New("base_url must be an http or https address, for example "+example))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		faults = append(faults, errors.New("base_url must have no user, query or fragment; a key belongs in api_key"))
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		faults = append(faults, errors.New("api_key holds characters that no key has, such as spaces"))
	}
	for _, p := range []float64{c.Price.Input, c.Price.Output} {
		if p < 0 || math.IsNaN(p) || math.IsInf(p, 0) {
			faults = append(faults, fmt.Errorf("price must be 0 or more USD per million tokens, not %v", p))
		}
	}
	if c.MaxOutput < 0 || c.MaxOutput > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("the tokens of an answer must be 1 or more, or 0 for the provider's own limit, not %d", c.MaxOutput))
	}
	return errors.Join(faults...)
}

// Output is how many tokens an answer may have where a request asks for some
// number; 0 is the provider's own limit.
func (c *Config) Output(asked int64) int64 {
	switch {
	case asked <= 0:
		return c.MaxOutput
	case c.MaxOutput > 0:
		return min(asked, c.MaxOutput)
	}
	return min(asked, math.MaxInt32)
}
