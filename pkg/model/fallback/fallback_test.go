package fallback_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/anthropic"
	"github.com/agentteams/team-server/pkg/model/fallback"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func of(t *testing.T, first agent.Model, others ...agent.Model) *fallback.Model {
	t.Helper()
	m, err := fallback.New(first, others...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// play is a scripted model.
func play(t *testing.T, script string) agent.Model {
	t.Helper()
	s, err := scripted.Parse("test.script.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	m, err := scripted.New(scripted.Config{Name: "script", Script: s})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestModel: with models that cannot answer before and behind it a model behaves
// as it does alone.
func TestModel(t *testing.T) {
	down := `agents: {writer: [{error: {status: 500}}]}`
	modeltest.Run(t, func(t *testing.T, script string) modeltest.Subject {
		return modeltest.Subject{Model: of(t, play(t, down), play(t, script))}
	})
	modeltest.Run(t, func(t *testing.T, script string) modeltest.Subject {
		return modeltest.Subject{Model: of(t, play(t, script))}
	})
}

// steps is a model that yields chunks and then an error.
type steps struct {
	name   string
	chunks []agent.ModelChunk
	err    error
	calls  int
}

func (s *steps) Name() string { return s.name }

func (s *steps) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	s.calls++
	return func(yield func(agent.ModelChunk, error) bool) {
		for _, c := range s.chunks {
			if !yield(c, nil) {
				return
			}
		}
		if s.err != nil {
			yield(agent.ModelChunk{}, s.err)
		}
	}
}

func answers(name string) *steps {
	return &steps{name: name, chunks: []agent.ModelChunk{{Turn: &teamv1.Turn{Model: name, FinishReason: "stop"}, Spent: &teamv1.Spent{}}}}
}

func TestWhoIsAsked(t *testing.T) {
	busy := &agent.Error{Reason: agent.ReasonUnavailable, Message: "busy", Retry: true, Fresh: true}
	down := &agent.Error{Reason: agent.ReasonUnavailable, Message: "down", Retry: true, Spent: &teamv1.Spent{}}
	lost := &agent.Error{Reason: agent.ReasonUnavailable, Message: "lost", Retry: true}
	refused := &agent.Error{Reason: agent.ReasonUnavailable, Message: "refused", Fresh: true}
	keyless := &agent.Error{Reason: agent.ReasonUnavailable, Message: "no key", Elsewhere: true, Fresh: true}
	page := &agent.Error{Reason: agent.ReasonUnavailable, Message: "a page", Elsewhere: true, Spent: &teamv1.Spent{ModelCalls: 1, Estimated: true}}
	for name, c := range map[string]struct {
		models []*steps
		calls  []int
		model  string // who answered; else
		says   string // the error
		retry  bool
		fresh  bool
	}{
		"the first answers":                  {[]*steps{answers("a"), answers("b")}, []int{1, 0}, "a", "", false, false},
		"the first is busy":                  {[]*steps{{name: "a", err: busy}, answers("b")}, []int{1, 1}, "b", "", false, false},
		"two are busy":                       {[]*steps{{name: "a", err: busy}, {name: "b", err: down}, answers("c")}, []int{1, 1, 1}, "c", "", false, false},
		"all are busy":                       {[]*steps{{name: "a", err: busy}, {name: "b", err: busy}}, []int{1, 1}, "", "busy", true, true},
		"one is down, the last is busy":      {[]*steps{{name: "a", err: down}, {name: "b", err: busy}}, []int{1, 1}, "", "busy", true, false},
		"what may be billed is booked first": {[]*steps{{name: "a", err: busy}, {name: "b", err: lost}, answers("c")}, []int{1, 1, 0}, "", "lost", true, false},
		"what is refused is not asked again": {[]*steps{{name: "a", err: refused}, answers("b")}, []int{1, 0}, "", "refused", false, true},
		"another may have a key":             {[]*steps{{name: "a", err: keyless}, answers("b")}, []int{1, 1}, "b", "", false, false},
		"none has a key":                     {[]*steps{{name: "a", err: keyless}, {name: "b", err: keyless}}, []int{1, 1}, "", "no key", false, true},
		"another may help, booked first":     {[]*steps{{name: "a", err: page}, answers("b")}, []int{1, 0}, "", "a page", true, false},
		"the last refuses":                   {[]*steps{{name: "a", err: busy}, {name: "b", err: refused}}, []int{1, 1}, "", "refused", false, true},
		"it broke off":                       {[]*steps{{name: "a", chunks: []agent.ModelChunk{{Text: "hal"}}, err: lost}, answers("b")}, []int{1, 0}, "", "lost", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			models := make([]agent.Model, len(c.models))
			for i, m := range c.models {
				models[i] = m
			}
			m := of(t, models[0], models[1:]...)
			if m.Name() != "a" {
				t.Errorf("name = %q", m.Name())
			}
			a := modeltest.Collect(t.Context(), t, m, modeltest.Ask("x"))
			if c.model != a.Turn.GetModel() {
				t.Errorf("%q answered, want %q", a.Turn.GetModel(), c.model)
			}
			var e *agent.Error
			if c.says != "" && (!errors.As(a.Err, &e) || e.Message != c.says || e.Retry != c.retry || e.Fresh != c.fresh) {
				t.Errorf("error = %#v, want %q", a.Err, c.says)
			}
			for i, m := range c.models {
				if m.calls != c.calls[i] {
					t.Errorf("%s was asked %d times, want %d", m.name, m.calls, c.calls[i])
				}
			}
		})
	}
	if busy.Err != nil || !busy.Fresh {
		t.Error("the error of a model was changed")
	}
}

func TestPriceIsTheHighest(t *testing.T) {
	one := func(in, out float64, most int64) agent.Model {
		m, err := openai.New(openai.Config{Name: "m", BaseURL: "http://model.invalid", Price: openai.Price{Input: in, Output: out}, MaxOutput: most})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := of(t, one(1, 4, 100), one(2, 3, 50), answers("free"))
	if p := m.Price(); p.Input != 2_000_000 || p.Output != 4_000_000 || m.MaxOutput() != 0 {
		t.Error(p, m.MaxOutput())
	}
	if got := of(t, one(1, 4, 100), one(2, 3, 50)).MaxOutput(); got != 100 {
		t.Error(got)
	}
}

func TestMissing(t *testing.T) {
	if _, err := fallback.New(answers("a"), nil); err == nil {
		t.Error("a model that is missing is taken")
	}
}

// TestOtherProvider: the one behind is of another provider, and gets the whole
// conversation.
func TestOtherProvider(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("first", fakellm.Turn{Status: 529}, fakellm.Turn{Status: 529})
	llm.Script("second", fakellm.Turn{Text: "from the second"})
	first, err := anthropic.New(anthropic.Config{Name: "first", BaseURL: llm.Root})
	if err != nil {
		t.Fatal(err)
	}
	second, err := openai.New(openai.Config{Name: "second", BaseURL: llm.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := modeltest.Collect(t.Context(), t, of(t, first, second), modeltest.Ask("tides"))
	if a.Err != nil || a.Turn.GetModel() != "second" || a.Turn.GetText() != "from the second" {
		t.Error(a.Turn, a.Err)
	}
	if r := llm.Requests("second"); len(r) != 1 || r[0].Last() != "tides" || len(llm.Requests("first")) != 1 {
		t.Errorf("requests %+v", r)
	}
}

// failing is a model that ends its context, and then says that it is down.
type failing struct{ end context.CancelCauseFunc }

func (*failing) Name() string { return "failing" }

func (f *failing) Generate(context.Context, *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		f.end(agent.ErrCanceled)
		yield(agent.ModelChunk{}, &agent.Error{Reason: agent.ReasonUnavailable, Message: "down", Retry: true, Fresh: true})
	}
}

// TestCanceledBetweenTwo: a call that is canceled while one model fails calls no other model,
// and reports the cancellation.
func TestCanceledBetweenTwo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	next := answers("b")
	a := modeltest.Collect(ctx, t, of(t, &failing{end: cancel}, next), modeltest.Ask("x"))
	if !errors.Is(a.Err, agent.ErrCanceled) || a.Turn != nil || next.calls != 0 {
		t.Errorf("ended with %v, turn %v and %d calls of the next model, want canceled and none", a.Err, a.Turn, next.calls)
	}
}

func TestLostAttemptsBeginWithTheNextModel(t *testing.T) {
	a, b := answers("a"), answers("b")
	m := of(t, a, b)
	for lost, want := range []string{"a", "b", "a"} {
		req := modeltest.Ask("x")
		req.Lost = lost
		if got := modeltest.Collect(t.Context(), t, m, req).Turn.GetModel(); got != want {
			t.Errorf("after %d lost attempts %q answered, want %q", lost, got, want)
		}
	}
}

// TestFiles: a model with fallbacks takes the files that all of them take, and counts the most tokens
// that one of them does.
func TestFiles(t *testing.T) {
	see, err := openai.New(openai.Config{Name: "m", BaseURL: "http://x", Accepts: []string{"image/*", "application/pdf"}, ContextWindow: 9})
	if err != nil {
		t.Fatal(err)
	}
	other, err := anthropic.New(anthropic.Config{Name: "m", Accepts: []string{"image/png", "text/csv"}, ContextWindow: 10})
	if err != nil {
		t.Fatal(err)
	}
	f := of(t, see, other).Files()
	want := agent.Files{Types: []string{"image/png"}, URLs: []string{"image/png"}, ImageTokens: 50_000, Window: 10}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	if f := of(t, see, plain{}).Files(); len(f.Types) > 0 {
		t.Errorf("with a model that takes only text: %v", f)
	}
}

// plain is a model that does not say which files it takes.
type plain struct{ agent.Model }
