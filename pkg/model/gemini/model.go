// Package gemini calls Google's Gemini models through the Gemini API.
package gemini

import (
	"context"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// DefaultBaseURL is the provider's address. A BaseURL does not include /v1beta.
const DefaultBaseURL = "https://generativelanguage.googleapis.com"

// provider identifies this package in the state that turns store, see model.PackState.
const provider = "gemini"

// Config configures a Model. The key is sent as X-Goog-Api-Key.
type Config = model.Config

// Model is a Gemini model. A turn is one HTTP request, which is neither retried nor continued.
// Thoughts are not part of the text; their signatures are stored in Turn.state. A Model is safe for
// concurrent use.
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
func (*Model) Provider() string { return "gcp.gemini" }

// Price implements agent.Pricer.
func (m *Model) Price() agent.Price { return m.config.Price.Micros() }

// MaxOutput implements agent.OutputLimiter.
func (m *Model) MaxOutput() int64 { return m.config.MaxOutput }

// Files implements agent.FileTaker. All models take images, PDF documents, audio and videos, unless
// the configuration says otherwise.
func (m *Model) Files() agent.Files { return m.config.Files(provider, "*/*") }

// Generate implements agent.Model. Tokens of thoughts count as output tokens. The provider sends
// arguments of calls as JSON objects only.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return m.config.Generate(ctx, req, func() model.Exchange {
		return model.Exchange{
			Send:   func(ctx context.Context, c *model.Call) error { return m.send(ctx, c, req) },
			Answer: &answer{by: m.config.Name, before: req.Messages}, MaxOutput: m.config.Output(req.MaxOutput),
		}
	})
}

// Turn implements model.Answer. Calls without an id get one that is unique in the conversation.
func (a *answer) Turn(text, _ string) *teamv1.Turn {
	t := &teamv1.Turn{Text: text, FinishReason: a.finish, Model: a.model}
	parts, signed := a.content()
	turn := 1
	for _, msg := range a.before {
		if msg.Role == agent.RoleAssistant {
			turn++
		}
	}
	for _, p := range parts {
		switch {
		case p.FunctionCall != nil:
			t.ToolCalls = append(t.ToolCalls, toolCall(p.FunctionCall, turn, len(t.ToolCalls)+1))
		case p.InlineData != nil && !p.Thought:
			t.Files = append(t.Files, model.File(p.InlineData.MIMEType, p.InlineData.Data, len(t.Files)+1))
		}
	}
	if signed {
		t.State = model.PackState(provider, a.by, parts)
	}
	return t
}
