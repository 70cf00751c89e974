package scripted

import (
	"cmp"
	"context"
	"errors"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// Config configures a scripted Model.
type Config struct {
	// Script is the script to answer from. Required.
	Script *Script
	// Name is the name of the model; "" means scripted.
	Name string
	// Price is the price to account for; nil counts no cost.
	Price *teamv1.Price
	// Accepts are the media types of the files that the model takes; nil means all.
	Accepts []string
	// Used has the answers of recorded scripts that were given; nil means that of this model only.
	Used *Used
}

// Model answers from a script. It is safe for concurrent use.
type Model struct {
	name    string
	script  *Script
	price   *teamv1.Price
	accepts []string
	used    *Used
}

var (
	_ agent.Model     = (*Model)(nil)
	_ agent.Pricer    = (*Model)(nil)
	_ agent.FileTaker = (*Model)(nil)
)

// New returns a scripted model.
func New(c Config) (*Model, error) {
	if c.Script == nil {
		return nil, errors.New("a scripted model needs a script")
	}
	if c.Name == "" {
		c.Name = "scripted"
	}
	if len(c.Accepts) == 0 {
		c.Accepts = []string{"*/*"}
	}
	return &Model{name: c.Name, script: c.Script, price: c.Price, accepts: c.Accepts, used: cmp.Or(c.Used, &Used{})}, nil
}

// Name implements agent.Model.
func (m *Model) Name() string { return m.name }

// Provider implements agent.ProviderNamer.
func (*Model) Provider() string { return "scripted" }

// Generate implements agent.Model.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		a, err := m.answer(ctx, req)
		if err != nil {
			yield(agent.ModelChunk{}, err)
			return
		}
		for _, piece := range a.Pieces() {
			if !yield(agent.ModelChunk{Text: piece}, nil) {
				return
			}
			if ctx.Err() != nil {
				yield(agent.ModelChunk{}, context.Cause(ctx))
				return
			}
		}
		turn := a.turn(m.name)
		usage := UsageOf(req, turn)
		if a.Usage != nil {
			usage = *a.Usage
		}
		yield(agent.ModelChunk{Turn: turn, Spent: m.Price().Spent(usage), MaxOutput: req.MaxOutput}, nil)
	}
}

// Price implements agent.Pricer.
func (m *Model) Price() agent.Price { return model.PriceOf(m.price).Micros() }

// Files implements agent.FileTaker. The model counts the line that stands for a file in the text of
// a message, and no tokens for the file itself.
func (m *Model) Files() agent.Files { return agent.Files{Types: m.accepts, URLs: m.accepts} }

func (m *Model) answer(ctx context.Context, req *agent.ModelRequest) (*Answer, error) {
	a, err := m.script.answer(req, m.used)
	if err != nil {
		return nil, err
	}
	if err := agent.Sleep(ctx, a.Delay); err != nil {
		return nil, err
	}
	if a.Failure != nil {
		return nil, a.Failure.err(m.name)
	}
	return a, nil
}

func (a *Answer) turn(name string) *teamv1.Turn {
	finish := "stop"
	if len(a.ToolCalls) > 0 {
		finish = "tool_calls"
	}
	finish = cmp.Or(a.FinishReason, finish)
	return &teamv1.Turn{Text: a.Text, Files: a.Files, ToolCalls: a.ToolCalls, FinishReason: finish, End: model.EndOf(finish), Model: name}
}

func (f *Failure) err(name string) *agent.Error {
	e := model.StatusError(name, f.Status, f.RetryAfter)
	if f.Reason != "" {
		e.Reason = f.Reason
	}
	if f.Message != "" {
		e.Message = f.Message
	}
	return e
}
