// Package fallback has models stand in for each other.
package fallback

import (
	"context"
	"errors"
	"iter"

	"github.com/agentteams/team-server/pkg/agent"
)

// Model asks one model, and the next one where that cannot answer: its error is
// one that may pass (Retry), and nothing of an answer has come yet. Each makes its
// one attempt; the loop repeats when the last one could not answer either, and
// begins with the first again. Turn.model names who answered. Safe for concurrent
// use.
type Model struct{ models []agent.Model }

var (
	_ agent.Model         = (*Model)(nil)
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
)

// New returns a model that is first, with others behind it.
func New(first agent.Model, others ...agent.Model) (*Model, error) {
	models := append([]agent.Model{first}, others...)
	for _, m := range models {
		if m == nil {
			return nil, errors.New("a model of the list is missing")
		}
	}
	return &Model{models}, nil
}

// Name implements agent.Model: the first one's.
func (m *Model) Name() string { return m.models[0].Name() }

// Price implements agent.Pricer: the highest of all.
func (m *Model) Price() (input, output int64) {
	for _, one := range m.models {
		p := agent.PriceOf(one)
		input, output = max(input, p.Input), max(output, p.Output)
	}
	return input, output
}

// MaxOutput implements agent.OutputLimiter: the highest of all, where all say it.
func (m *Model) MaxOutput() int64 {
	most := int64(0)
	for _, one := range m.models {
		l, ok := one.(agent.OutputLimiter)
		if !ok || l.MaxOutput() == 0 {
			return 0
		}
		most = max(most, l.MaxOutput())
	}
	return most
}

// Generate implements agent.Model. The error is the last one's, and Fresh only
// where the outcome of every attempt is known: the key of the call is the same for
// all of them.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		fresh := true
		var failed []error
		for i, next := range m.models {
			if i > 0 && ctx.Err() != nil {
				yield(agent.ModelChunk{}, context.Cause(ctx))
				return
			}
			err := attempt(ctx, next, req, i == len(m.models)-1, yield)
			if err == nil {
				return
			}
			fresh = fresh && err.Fresh
			failed = append(failed, err)
			if i == len(m.models)-1 {
				last := *err
				last.Fresh = fresh
				last.Err = errors.Join(failed...)
				yield(agent.ModelChunk{}, &last)
			}
		}
	}
}

// attempt asks one model and passes on what it yields; the error is one that the
// next model may make good.
func attempt(ctx context.Context, m agent.Model, req *agent.ModelRequest, last bool, yield func(agent.ModelChunk, error) bool) *agent.Error {
	began := false
	for chunk, err := range m.Generate(ctx, req) {
		var e *agent.Error
		if err != nil && !began && errors.As(err, &e) && (e.Retry || last) {
			return e
		}
		began = true
		if !yield(chunk, err) {
			return nil
		}
	}
	return nil
}
