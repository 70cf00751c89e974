// Package anthropic calls Anthropic's models through the messages API.
package anthropic

import (
	"cmp"
	"context"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

const (
	// DefaultBaseURL is the provider's address. A BaseURL does not include /v1/messages.
	DefaultBaseURL = "https://api.anthropic.com"
	// DefaultMaxOutput is the maximum number of tokens of an answer if neither the
	// model nor the request sets one, because the API requires it.
	DefaultMaxOutput = 8192
)

// provider identifies this package in the state that turns store, see model.PackState.
const provider = "anthropic"

// Config configures a Model. The key is sent as X-Api-Key.
type Config = model.Config

// Model is a model of Anthropic. A turn is one HTTP request, which is not retried. The text does not
// contain thinking blocks; they are stored in Turn.state, because the provider needs them in the next
// request. A Model is safe for concurrent use.
type Model struct {
	config  Config
	refused model.Refusals // schemas
}

var (
	_ agent.Model         = (*Model)(nil)
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
	_ agent.FileTaker     = (*Model)(nil)
)

// New returns a model. It makes no request and reads no environment variables. The error lists all
// faults and never contains the key.
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
func (*Model) Provider() string { return "anthropic" }

// Price implements agent.Pricer.
func (m *Model) Price() agent.Price { return m.config.Price.Micros() }

// MaxOutput implements agent.OutputLimiter.
func (m *Model) MaxOutput() int64 { return m.config.MaxOutput }

// maxOutput returns the limit of a request, which the API requires.
func (m *Model) maxOutput(req *agent.ModelRequest) int64 {
	return cmp.Or(m.config.Output(req.MaxOutput), DefaultMaxOutput)
}

// Files implements agent.FileTaker. All models take images and PDF documents, unless the
// configuration says otherwise.
func (m *Model) Files() agent.Files { return m.config.Files(provider, "*/*") }

// Generate implements agent.Model.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return m.config.Generate(ctx, req, func() model.Exchange {
		return model.Exchange{
			Send:   func(ctx context.Context, c *model.Call) error { return m.send(ctx, c, req) },
			Answer: &answer{by: m.config.Name}, MaxOutput: m.maxOutput(req),
		}
	})
}

// Turn implements model.Answer.
func (a *answer) Turn(text, _ string) *teamv1.Turn {
	t := &teamv1.Turn{Text: text, FinishReason: a.finish, Model: a.model}
	thinks, blocks := false, a.content()
	for _, b := range blocks {
		switch b.Type {
		case "text":
		case "tool_use":
			t.ToolCalls = append(t.ToolCalls, b.call())
		default:
			thinks = true
		}
	}
	if thinks {
		t.State = model.PackState(provider, a.by, blocks)
	}
	return t
}
