package scripted

import (
	"context"
	"errors"
	"iter"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// Config is what a scripted model is made of.
type Config struct {
	// Script says what it answers. Required.
	Script *Script
	// Name is its name; default: scripted.
	Name string
}

// Model answers from a script. Safe for concurrent use.
type Model struct {
	name   string
	script *Script
}

var _ agent.Model = (*Model)(nil)

// New returns a scripted model.
func New(c Config) (*Model, error) {
	if c.Script == nil {
		return nil, errors.New("a scripted model needs a script")
	}
	if c.Name == "" {
		c.Name = "scripted"
	}
	return &Model{name: c.Name, script: c.Script}, nil
}

// Name implements agent.Model.
func (m *Model) Name() string { return m.name }

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
		yield(agent.ModelChunk{Turn: turn, Spent: Estimate(req, turn)}, nil)
	}
}

func (m *Model) answer(ctx context.Context, req *agent.ModelRequest) (*Answer, error) {
	a, err := m.script.Answer(req)
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
	t := &teamv1.Turn{Text: a.Text, ToolCalls: a.ToolCalls, FinishReason: "stop", Model: name}
	if len(t.ToolCalls) > 0 {
		t.FinishReason = "tool_calls"
	}
	return t
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
