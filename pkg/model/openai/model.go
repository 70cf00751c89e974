// Package openai talks to models behind OpenAI-compatible chat completions:
// OpenAI itself, Ollama, vLLM, gateways (R-001-59).
package openai

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// DefaultBaseURL is the provider's own address.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config is what a model is made of.
type Config struct {
	// Name is the model's name at its provider; it is sent as it is. Required.
	Name string
	// BaseURL is the address up to and without /chat/completions, http or https;
	// default: DefaultBaseURL.
	BaseURL string
	// APIKey is sent as a bearer token; empty sends none.
	APIKey string
	// HTTPClient makes the calls; nil is a client of its own. Its Timeout should
	// be 0: a turn lasts as long as its context.
	HTTPClient *http.Client
	// Price of the model; the zero value counts no cost.
	Price Price
}

// Price is what a model costs, in USD per million tokens.
type Price struct {
	// Input is for tokens read, Output for tokens written.
	Input, Output float64
}

// Model is a model behind an endpoint. A turn is one HTTP request: nothing is
// repeated here. Safe for concurrent use.
type Model struct {
	name   string
	key    string
	config openai.ClientConfig
	client *http.Client
	price  Price
}

var _ agent.Model = (*Model)(nil)

// New returns a model. It makes no call. The error lists every fault, and never
// the key.
func New(c Config) (*Model, error) {
	c.APIKey = strings.TrimSpace(c.APIKey)
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.HTTPClient == nil {
		c.HTTPClient = &http.Client{}
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	config := openai.DefaultConfig(c.APIKey)
	config.BaseURL = c.BaseURL
	return &Model{name: c.Name, key: c.APIKey, config: config, client: c.HTTPClient, price: c.Price}, nil
}

func (c *Config) validate() error {
	var faults []error
	if c.Name == "" {
		faults = append(faults, errors.New("name is missing: the model's name at its provider"))
	}
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		faults = append(faults, errors.New("base_url must be an http or https address, for example "+DefaultBaseURL))
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
	return errors.Join(faults...)
}

// Name implements agent.Model.
func (m *Model) Name() string { return m.name }

// Generate implements agent.Model. Usage that the endpoint does not report is
// not counted. Reasoning that it streams beside the answer is left out.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		a, err := m.turn(ctx, req, func(text string) bool { return yield(agent.ModelChunk{Text: text}, nil) })
		switch {
		case errors.Is(err, errStopped):
		case err != nil:
			yield(agent.ModelChunk{}, err)
		default:
			yield(agent.ModelChunk{Turn: a.turn(m.name), Spent: m.spent(a.usage)}, nil)
		}
	}
}

// spent is what the endpoint counted. USD per million tokens are millionths of a
// USD per token.
func (m *Model) spent(u *openai.Usage) *teamv1.Spent {
	s := &teamv1.Spent{ModelCalls: 1}
	if u == nil {
		return s
	}
	in, out := max(u.PromptTokens, 0), max(u.CompletionTokens, 0)
	s.InputTokens, s.OutputTokens = int64(in), int64(out)
	s.CostMicros = int64(math.Round(float64(in)*m.price.Input + float64(out)*m.price.Output))
	return s
}
