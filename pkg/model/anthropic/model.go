// Package anthropic calls Anthropic's models through the messages API.
package anthropic

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"

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
			turn := m.turn(a)
			yield(agent.ModelChunk{Turn: turn, Spent: m.config.Price.Spent(turn, a.used, a.counted), MaxOutput: m.maxOutput(req)}, nil)
		}
	}
}

// turn converts a complete answer.
func (m *Model) turn(a *answer) *teamv1.Turn {
	t := &teamv1.Turn{FinishReason: a.finish, End: model.EndOf(a.finish), Model: a.model}
	if t.Model == "" {
		t.Model = m.config.Name
	}
	thinks, text, blocks := false, strings.Builder{}, a.content()
	for _, b := range blocks {
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "tool_use":
			t.ToolCalls = append(t.ToolCalls, b.call())
		default:
			thinks = true
		}
	}
	t.Text = model.WithoutThinking(text.String())
	if thinks {
		t.State = model.PackState(provider, m.config.Name, blocks)
	}
	return t
}
