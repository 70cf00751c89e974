// Package gemini calls Google's Gemini models through the Gemini API.
package gemini

import (
	"context"
	"errors"
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
	return func(yield func(agent.ModelChunk, error) bool) {
		a := &answer{}
		var thinking model.Thinking // of models behind gateways
		err := m.config.Attempt(ctx, req.Key, func(ctx context.Context, c *model.Call) error {
			return m.receive(ctx, c, req, a, func(text string) bool {
				text = thinking.Add(text)
				return text == "" || yield(agent.ModelChunk{Text: text}, nil)
			})
		})
		switch {
		case errors.Is(err, model.ErrStopped):
		case err != nil:
			yield(agent.ModelChunk{}, m.config.Price.Partly(err, a.used))
		default:
			if rest := thinking.End(); rest != "" && !yield(agent.ModelChunk{Text: rest}, nil) {
				return
			}
			turn := m.turn(a, req)
			yield(agent.ModelChunk{Turn: turn, Spent: m.config.Price.Spent(turn, a.used, a.counted), MaxOutput: m.config.Output(req.MaxOutput)}, nil)
		}
	}
}

// turn converts a complete answer. Calls without an id get one that is unique in the conversation.
func (m *Model) turn(a *answer, req *agent.ModelRequest) *teamv1.Turn {
	t := &teamv1.Turn{Text: model.WithoutThinking(a.text.String()), FinishReason: a.finish, End: model.EndOf(a.finish), Model: a.model}
	if t.Model == "" {
		t.Model = m.config.Name
	}
	parts, signed := a.content()
	turn := 1
	for _, msg := range req.Messages {
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
		t.State = model.PackState(provider, m.config.Name, parts)
	}
	return t
}
