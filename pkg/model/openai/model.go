// Package openai calls models with an OpenAI-compatible chat completions API: OpenAI, Ollama, vLLM
// and gateways.
package openai

import (
	"context"
	"iter"
	"slices"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// DefaultBaseURL is the address of OpenAI. A BaseURL does not include /chat/completions.
const DefaultBaseURL = "https://api.openai.com/v1"

// provider identifies this package in the state that turns store, see model.PackState.
const provider = "openai"

// Config configures a Model. The key is sent as a bearer token.
type Config = model.Config

// Price is the price of a model.
type Price = model.Price

// Model is a model behind an endpoint. A turn is one HTTP request, which is not retried. A Model is
// safe for concurrent use.
type Model struct {
	config  Config
	refused model.Refusals
}

var (
	_ agent.Model         = (*Model)(nil)
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
	_ agent.FileTaker     = (*Model)(nil)
)

// New returns a model. It makes no request. The error lists all faults and never contains the key.
func New(c Config) (*Model, error) {
	c, err := c.Complete(DefaultBaseURL)
	if err != nil {
		return nil, err
	}
	return &Model{config: c}, nil
}

// Name implements agent.Model.
func (m *Model) Name() string { return m.config.Name }

// Provider implements agent.ProviderNamer.
func (*Model) Provider() string { return provider }

// Price implements agent.Pricer.
func (m *Model) Price() agent.Price { return m.config.Price.Micros() }

// MaxOutput implements agent.OutputLimiter.
func (m *Model) MaxOutput() int64 { return m.config.MaxOutput }

// Files implements agent.FileTaker. Models of OpenAI take images and PDF documents, models of other
// endpoints only files of text, unless the configuration says otherwise.
func (m *Model) Files() agent.Files {
	if m.isOpenAI() {
		return m.config.Files(provider, append(slices.Clip(agent.TextFiles), "image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf")...)
	}
	return m.config.Files(provider, agent.TextFiles...)
}

// Generate implements agent.Model. Reasoning is not part of the text. That of a turn with calls, and
// whatever else the endpoint sends beside them, is stored in Turn.state.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return m.config.Generate(ctx, req, func() model.Exchange {
		return model.Exchange{
			Send:   func(ctx context.Context, c *model.Call) error { return m.send(ctx, c, req) },
			Answer: &answer{by: m.config.Name}, MaxOutput: m.config.Output(req.MaxOutput),
		}
	})
}
