// Package fallback combines models so that one can answer in place of another.
package fallback

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/pkg/agent"
)

// Model calls its first model, and the next one if that fails with an error that may be retried, or that
// another model may not have (agent.Error.Elsewhere), before it has yielded anything, and costs nothing. Each model makes one attempt. If the last model
// fails too, the caller may retry, which begins with the first model again. After an attempt that
// may be billed the caller has to book its cost first, so Model returns the error, and the next
// attempt begins with the next model; see agent.ModelRequest.Lost. Turn.model names the model that
// answered. A model that is halted counts as one that has failed. A Model is safe for concurrent use.
type Model struct {
	models []agent.Model
	keys   []string // further names of the models, for halts; nil if there are none
}

var (
	_ agent.Model         = (*Model)(nil)
	_ agent.Pricer        = (*Model)(nil)
	_ agent.OutputLimiter = (*Model)(nil)
	_ agent.FileTaker     = (*Model)(nil)
)

// New returns a model that calls first, and others in their order if it fails.
func New(first agent.Model, others ...agent.Model) (*Model, error) {
	models := append([]agent.Model{first}, others...)
	for _, m := range models {
		if m == nil {
			return nil, errors.New("a model of the list is nil")
		}
	}
	return &Model{models: models}, nil
}

// NewNamed is like New for models that have a key in a configuration. A halt may name a model by its
// key as well.
func NewNamed(keys []string, models []agent.Model) (*Model, error) {
	if len(models) == 0 || len(keys) != len(models) {
		return nil, fmt.Errorf("there are %d keys for %d models", len(keys), len(models))
	}
	m, err := New(models[0], models[1:]...)
	if err == nil {
		m.keys = keys
	}
	return m, err
}

// Alternatives returns the names of each model, by which it can be halted.
func (m *Model) Alternatives() [][]string {
	names := make([][]string, len(m.models))
	for i := range m.models {
		names[i] = m.names(i)
	}
	return names
}

// Place returns the index of one of the models, or -1.
func (m *Model) Place(one agent.Model) int { return slices.Index(m.models, one) }

// names returns the names of a model.
func (m *Model) names(i int) []string {
	if m.keys == nil {
		return []string{m.models[i].Name()}
	}
	return []string{m.keys[i], m.models[i].Name()}
}

// Name implements agent.Model. It returns the name of the first model.
func (m *Model) Name() string { return m.models[0].Name() }

// Provider implements agent.ProviderNamer. It returns the provider of the first model.
func (m *Model) Provider() string { return agent.ProviderOf(m.models[0]) }

// Price implements agent.Pricer. It returns the highest prices of all models.
func (m *Model) Price() agent.Price {
	var most agent.Price
	for _, one := range m.models {
		p := agent.PriceOf(one)
		most = agent.Price{
			Input: max(most.Input, p.Input), CachedInput: max(most.CachedInput, p.CachedInput), CacheWrite: max(most.CacheWrite, p.CacheWrite),
			Output: max(most.Output, p.Output), Reasoning: max(most.Reasoning, p.Reasoning),
		}
	}
	return most
}

// MaxOutput implements agent.OutputLimiter. It returns the highest limit, or 0 if a model has none.
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

// Files implements agent.FileTaker. It returns the files that all models take, and the highest
// numbers of tokens.
func (m *Model) Files() agent.Files {
	all := agent.FilesOf(m.models[0])
	for _, one := range m.models[1:] {
		f := agent.FilesOf(one)
		all = agent.Files{
			Types: agent.CommonMedia(all.Types, f.Types), URLs: agent.CommonMedia(all.URLs, f.URLs),
			ImageTokens: max(all.ImageTokens, f.ImageTokens), Window: max(all.Window, f.Window),
		}
	}
	return all
}

// Generate implements agent.Model. If all models fail, the error is that of the last one called, or inforce.ErrHeld if
// a halt pauses the runs that need one of them. It is
// Fresh only if the outcome of every attempt is known, because all attempts use the same
// idempotency key.
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		fresh := true
		var failed []error
		from := min(req.From, len(m.models)-1)
		n := len(m.models) - from
		for i := range n {
			next := from + (req.Lost+i)%n
			if i > 0 && ctx.Err() != nil {
				yield(agent.ModelChunk{}, context.Cause(ctx))
				return
			}
			err := m.attempt(ctx, next, req, i == n-1, yield)
			if err == nil {
				return
			}
			fresh = fresh && err.Fresh
			failed = append(failed, err)
			if i == n-1 && m.held(ctx, failed, from, req.Lost) {
				yield(agent.ModelChunk{}, inforce.ErrHeld)
				return
			}
			if i == n-1 || err.MayBeBilled() || agent.CostOf(err.Spent) != (agent.Cost{}) {
				last := *err
				last.Fresh = fresh
				last.Retry = last.Retry || last.Elsewhere && i < len(m.models)-1 // with the next model
				last.Err = errors.Join(failed...)
				yield(agent.ModelChunk{}, &last)
				return
			}
		}
	}
}

// held reports whether one of the models that was not called could have been, if no halt paused the runs that need
// it; failed are the errors of all. The run is paused then, and the call is repeated after it has been resumed.
func (m *Model) held(ctx context.Context, failed []error, from, lost int) bool {
	for i, err := range failed {
		if agent.AsError(err).Reason != agent.ReasonHalted {
			continue
		}
		names := m.names(from + (lost+i)%len(failed))
		use, _, err := inforce.Of(ctx).Begin(ctx, "", inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Names: [][]string{names}})
		use.End() // it was resumed meanwhile
		if errors.Is(err, inforce.ErrHeld) {
			return true
		}
	}
	return false
}

// attempt calls one model and passes on what it yields. It returns an error if the next model
// should be called.
func (m *Model) attempt(ctx context.Context, next int, req *agent.ModelRequest, last bool, yield func(agent.ModelChunk, error) bool) *agent.Error {
	use, ctx, err := inforce.Of(ctx).Begin(ctx, "", inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Names: [][]string{m.names(next)}, Optional: true})
	if err != nil {
		return agent.AsError(err)
	}
	defer use.End()
	began := false
	for chunk, err := range m.models[next].Generate(ctx, req) {
		var e *agent.Error
		if err = inforce.By(ctx, err); errors.As(err, &e) && e.Reason == agent.ReasonHalted && !last {
			again := *e
			again.Retry, err = true, &again // with the next model
		}
		if err != nil && !began && errors.As(err, &e) && (e.Retry || e.Elsewhere || last) {
			return e
		}
		began = true
		if chunk.Turn != nil && chunk.By == nil {
			chunk.By = m.models[next]
		}
		if !yield(chunk, err) {
			return nil
		}
	}
	return nil
}
