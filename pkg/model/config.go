package model

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// Config configures a model of a provider.
type Config struct {
	// Name is the provider's name of the model. Required.
	Name string
	// BaseURL is the http or https address of the endpoint; "" means the provider's own. The
	// packages of the providers say which path it includes.
	BaseURL string
	// APIKey authenticates requests; the zero value sends none.
	APIKey secret.Secret
	// HTTPClient makes the requests; nil means a new client. Its Timeout should be 0, because the
	// context limits a turn.
	HTTPClient *http.Client
	// Price is the price of the model; the zero value counts no cost.
	Price Price
	// IdleTimeout is the time for which the endpoint may send nothing; 0 means no limit.
	IdleTimeout time.Duration
	// MaxOutput is the maximum number of tokens of an answer; 0 means the provider's limit. A
	// request may lower it.
	MaxOutput int64
	// Accepts are the media types of the files that the model takes; nil means those that the models
	// of the provider usually take. Types that the provider's API does not take are ignored.
	Accepts []string
	// ContextWindow is the maximum number of input tokens that the provider accepts in one request;
	// 0 means that of its largest models.
	ContextWindow int64
	// Settings are those of the answers; nil leaves them to the provider. Its headers are in Headers.
	Settings *teamv1.ModelSettings
	// Headers are further headers of requests, whose values are secrets.
	Headers map[string]secret.Secret
	// SendTraceparent says that requests have the header traceparent of the W3C if their context has a span.
	SendTraceparent bool
}

// Price is the price of a model in USD per million tokens.
type Price struct {
	// Input is the price of tokens that are read, Output that of tokens that are written.
	Input, Output float64
	// CachedInput is the price of tokens that are read from a prompt cache, and CacheWrite that of
	// tokens that are written to it; nil means that of Input.
	CachedInput, CacheWrite *float64
	// Reasoning is the price of tokens that are used for reasoning; nil means that of Output.
	Reasoning *float64
}

// PriceOf returns the price that a configuration states; p may be nil.
func PriceOf(p *teamv1.Price) Price {
	if p == nil {
		return Price{}
	}
	return Price{Input: p.GetInput(), Output: p.GetOutput(), CachedInput: p.CachedInput, CacheWrite: p.CacheWrite, Reasoning: p.Reasoning}
}

// Micros returns the price in the unit of agent.Price.
func (p Price) Micros() agent.Price {
	or := func(usd *float64, other float64) int64 {
		if usd == nil {
			usd = &other
		}
		return agent.MicrosPerMillion(*usd)
	}
	return agent.Price{
		Input: agent.MicrosPerMillion(p.Input), CachedInput: or(p.CachedInput, p.Input), CacheWrite: or(p.CacheWrite, p.Input),
		Output: agent.MicrosPerMillion(p.Output), Reasoning: or(p.Reasoning, p.Output),
	}
}

// amounts returns all prices that are set.
func (p Price) amounts() []float64 {
	all := []float64{p.Input, p.Output}
	for _, usd := range []*float64{p.CachedInput, p.CacheWrite, p.Reasoning} {
		if usd != nil {
			all = append(all, *usd)
		}
	}
	return all
}

// Spent returns the consumption of a turn. It is nil if u counts no input: every request has input, so
// the provider did not report the usage. It is marked as estimated if the provider reported only a
// part of the usage: whole is false, or u counts no output although the turn has some.
func (p Price) Spent(turn *teamv1.Turn, u agent.Usage, whole bool) *teamv1.Spent {
	if u.Input <= 0 {
		return nil
	}
	spent := p.Micros().Spent(u)
	spent.Estimated = !whole || u.Output <= 0 && (turn.GetText() != "" || len(turn.GetToolCalls())+len(turn.GetFiles()) > 0)
	return spent
}

// Complete returns c with defaults for BaseURL and HTTPClient. The error lists all faults and never
// contains the key.
func (c Config) Complete(baseURL string) (Config, error) {
	c.APIKey = secret.New(strings.TrimSpace(c.APIKey.Reveal()))
	if c.BaseURL == "" {
		c.BaseURL = baseURL
	}
	if c.HTTPClient == nil {
		c.HTTPClient = &http.Client{}
	}
	return c, c.validate(baseURL)
}

// base returns the base URL without a slash at its end.
func (c *Config) base() string { return strings.TrimRight(c.BaseURL, "/") }

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
	if strings.ContainsFunc(c.APIKey.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		faults = append(faults, errors.New("api_key contains invalid characters, such as spaces"))
	}
	for _, p := range c.Price.amounts() {
		if p < 0 || math.IsNaN(p) || math.IsInf(p, 0) {
			faults = append(faults, fmt.Errorf("price must be 0 or more USD per million tokens, not %v", p))
		}
	}
	if c.IdleTimeout < 0 {
		faults = append(faults, fmt.Errorf("idle_timeout must be more than 0, or 0 for no limit, not %s", c.IdleTimeout))
	}
	if c.ContextWindow < 0 {
		faults = append(faults, fmt.Errorf("context_window must be 1 or more, or 0 for that of the provider's largest models, not %d", c.ContextWindow))
	}
	if c.MaxOutput < 0 || c.MaxOutput > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("max_output_tokens must be 1 or more, or 0 for the provider's limit, not %d", c.MaxOutput))
	}
	return errors.Join(faults...)
}

// Output returns the maximum number of tokens of an answer to a request that asks for at most
// asked; 0 means the provider's limit.
func (c *Config) Output(asked int64) int64 {
	switch {
	case asked <= 0:
		return c.MaxOutput
	case c.MaxOutput > 0:
		return min(asked, c.MaxOutput)
	}
	return min(asked, math.MaxInt32)
}
