// Package openai talks to models behind OpenAI-compatible chat completions:
// OpenAI itself, Ollama, vLLM, gateways.
package openai

import (
	"context"
	"errors"
	"iter"

	openai "github.com/sashabaranov/go-openai"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// DefaultBaseURL is the provider's own address. One of your own goes up to and
// without /chat/completions.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config is what a model is made of. The key is sent as a bearer token.
type Config = model.Config

// Price is what a model costs.
type Price = model.Price

// Model is a model behind an endpoint. A turn is one HTTP request: nothing is
// repeated here. Safe for concurrent use.
type Model struct {
	config Config
	client openai.ClientConfig
}

var (
	_ agent.Model         = (*Model)(nil)
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
)

// New returns a model. It makes no call. The error lists every fault, and never
// the key.
func New(c Config) (*Model, error) {
	c, err := c.Complete(DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	client := openai.DefaultConfig(c.APIKey)
	client.BaseURL = c.BaseURL
	return &Model{config: c, client: client}, nil
}

// Name implements agent.Model.
func (m *Model) Name() string { return m.config.Name }

// Price implements agent.Pricer.
func (m *Model) Price() (input, output int64) { return m.config.Price.Micros() }

// MaxOutput implements agent.OutputLimiter.
func (m *Model) MaxOutput() int64 { return m.config.MaxOutput }

// Generate implements agent.Model. Usage that the endpoint does not report is
// not counted. Reasoning that it streams beside the answer is left out.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		a := &answer{}
		err := m.config.Attempt(ctx, req.Key, func(ctx context.Context, c *model.Call) error {
			return m.receive(ctx, c, req, a, func(text string) bool { return yield(agent.ModelChunk{Text: text}, nil) })
		}, said)
		switch {
		case errors.Is(err, model.ErrStopped):
		case err != nil:
			yield(agent.ModelChunk{}, err)
		default:
			yield(agent.ModelChunk{Turn: a.turn(m.config.Name), Spent: m.spent(a.usage)}, nil)
		}
	}
}

// spent is what the endpoint counted.
func (m *Model) spent(u *openai.Usage) *teamv1.Spent {
	if u == nil {
		u = &openai.Usage{}
	}
	return m.config.Price.Spent(int64(u.PromptTokens), int64(u.CompletionTokens))
}
