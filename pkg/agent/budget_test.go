package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
)

func tokens(n int64) Cost { return Cost{Tokens: n} }

func limitTokens(n int64) Cost { return Cost{Tokens: n, Micros: Unlimited} }

// reserve is Reserve of what there must be.
func reserve(t *testing.T, b *Budget, c Cost) *Budget {
	t.Helper()
	r, err := b.Reserve(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestC_07_Budget(t *testing.T) {
	t.Run("C-07 a reservation is checked against every node above", func(t *testing.T) {
		top := NewBudget("", limitTokens(100), Cost{})
		mid := top.Child("t", Cost{Tokens: 80, Micros: 5_000_000}, Cost{})
		low := mid.Child("t/a", NoLimit(), Cost{})
		r := reserve(t, low, Cost{60, 1_000_000})
		if _, err := top.Reserve(tokens(41)); err == nil {
			t.Error("more was reserved than there is")
		}
		if got := top.Left(); got != limitTokens(40) {
			t.Error(got)
		}
		if got := low.Left(); got != (Cost{20, 4_000_000}) {
			t.Error(got)
		}
		r.Settle(Cost{10, 500_000})
		r.Settle(Cost{10, 500_000}) // changes nothing
		if top.Spent().Tokens != 10 || mid.Spent() != (Cost{10, 500_000}) || low.Left() != (Cost{70, 4_500_000}) {
			t.Error(top.Spent(), mid.Spent(), low.Left())
		}
	})
	t.Run("C-07 the error names the limit, its value and who set it", func(t *testing.T) {
		top := NewBudget("", Cost{100, 2_500_000}, Cost{})
		mid := top.Child("company/news", limitTokens(80), Cost{})
		for _, c := range []struct {
			b                 *Budget
			cost              Cost
			limit, value, set string
			text              string
		}{
			{mid, tokens(81), "max_tokens", "80", "company/news", `limits.max_tokens of "company/news" is 80 tokens, 0 of it are spent or reserved, and 81 are needed`},
			{top, tokens(101), "max_tokens", "100", SetByCaller, "what the caller has left (max_tokens) is 100 tokens"},
			{mid, Cost{1, 2_500_001}, "max_cost", "2.5", SetByCaller, "what the caller has left (max_cost) is 2.5 USD, 0 of it are spent or reserved, and 2.500001 are needed"},
		} {
			_, err := c.b.Reserve(c.cost)
			e := AsError(err)
			if e == nil || e.Reason != ReasonBudgetExceeded || e.Retry || e.Details[DetailLimit] != c.limit || e.Details[DetailValue] != c.value ||
				e.Details[DetailSetBy] != c.set || !strings.Contains(e.Message, c.text) {
				t.Errorf("%+v", e)
			}
		}
	})
	t.Run("C-07 what exceeds the reservation is booked all the same", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), Cost{})
		reserve(t, b, tokens(10)).Settle(tokens(150))
		if b.Spent().Tokens != 150 || b.Left().Tokens != 0 {
			t.Error(b.Spent(), b.Left())
		}
		if err := b.Room(tokens(1)); err == nil {
			t.Error("there is room")
		}
	})
	t.Run("C-07 a slice is a budget of its own", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), Cost{})
		slice := reserve(t, b, tokens(60))
		inner := slice.Child("t/x", NoLimit(), Cost{})
		reserve(t, inner, tokens(50)).Settle(tokens(40))
		if _, err := inner.Reserve(tokens(21)); err == nil {
			t.Error("the slice was exceeded")
		}
		if b.Left().Tokens != 40 || b.Spent().Tokens != 0 {
			t.Error(b.Left(), b.Spent())
		}
		slice.Settle(Cost{}) // says nothing: what was seen below counts
		if b.Left().Tokens != 60 || b.Spent().Tokens != 40 {
			t.Error(b.Left(), b.Spent())
		}
	})
	t.Run("a child takes up what is on record, and its parent's books stay", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), tokens(30))
		c := b.Child("t/x", limitTokens(50), tokens(30))
		if c.Left().Tokens != 20 || b.Spent().Tokens != 30 {
			t.Error(c.Left(), b.Spent())
		}
	})
	t.Run("nil is no limit", func(t *testing.T) {
		var b *Budget
		r, err := b.Reserve(Cost{1 << 60, 1 << 60})
		r.Settle(tokens(1))
		if r != nil || err != nil || b.Left() != NoLimit() || b.Room(tokens(1)) != nil || b.Among(3) != nil || b.Envelope() != nil {
			t.Error(r, err)
		}
		if c := b.Child("t", limitTokens(5), tokens(2)); c.Left().Tokens != 3 {
			t.Error(c.Left())
		}
	})
}

func TestBudget_Part(t *testing.T) {
	part := Want{Least: tokens(1), Enough: tokens(1), Most: NoLimit(), Part: true}
	t.Run("siblings get the same, whoever comes first", func(t *testing.T) {
		b := NewBudget("t", limitTokens(90), Cost{})
		for range 3 {
			r, err := b.Among(3).Acquire(t.Context(), part)
			if err != nil || r.Reserved() != limitTokens(30) {
				t.Fatal(r.Reserved(), err)
			}
		}
	})
	t.Run("parts of nested teams multiply", func(t *testing.T) {
		b := NewBudget("t", limitTokens(120), Cost{})
		nested := b.Among(2).Child("t/x", NoLimit(), Cost{})
		r, err := nested.Among(3).Acquire(t.Context(), part)
		if err != nil || r.Reserved().Tokens != 20 {
			t.Fatal(r.Reserved(), err)
		}
		if env := r.Envelope(); env.GetMaxTokens() != 20 || env.MaxCost != nil { //nolint:protogetter // set or not matters
			t.Error(env)
		}
	})
	t.Run("one alone gets all", func(t *testing.T) {
		b := NewBudget("t", Cost{90, 1_500_000}, Cost{})
		r, err := b.Among(1).Acquire(t.Context(), part)
		if err != nil || r.Reserved() != (Cost{90, 1_500_000}) || r.Envelope().GetMaxCost() != 1.5 {
			t.Fatal(r.Reserved(), err)
		}
	})
}

func TestBudget_Acquire(t *testing.T) {
	want := Want{Least: tokens(10), Enough: tokens(50), Most: tokens(80)}
	t.Run("it waits for what others give back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := NewBudget("t", limitTokens(100), Cost{})
			first := reserve(t, b, tokens(70))
			done := make(chan *Budget)
			go func() {
				r, err := b.Acquire(t.Context(), want)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			synctest.Wait()
			select {
			case <-done:
				t.Fatal("it did not wait")
			default:
			}
			first.Settle(tokens(30))
			if r := <-done; r.Reserved().Tokens != 70 {
				t.Error(r.Reserved())
			}
		})
	})
	t.Run("where nothing comes back the least will do", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), tokens(80))
		r, err := b.Acquire(t.Context(), want)
		if err != nil || r.Reserved().Tokens != 20 {
			t.Error(r.Reserved(), err)
		}
		r.Settle(tokens(11))
		if _, err := b.Acquire(t.Context(), want); err == nil || AsError(err).Reason != ReasonBudgetExceeded {
			t.Error(err)
		}
	})
	t.Run("the wait ends with its context", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), Cost{})
		reserve(t, b, tokens(90))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ErrCanceled)
		if _, err := b.Acquire(ctx, want); !errors.Is(err, ErrCanceled) {
			t.Error(err)
		}
	})
	t.Run("nobody waits for what is kept for later", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), Cost{})
		kept, err := b.Acquire(t.Context(), Want{Least: tokens(30), Enough: tokens(30), Most: tokens(30), Keep: true})
		if err != nil {
			t.Fatal(err)
		}
		reserve(t, b, tokens(55)).Settle(tokens(55))
		r, err := b.Acquire(t.Context(), want)
		if err != nil || r.Reserved().Tokens != 15 {
			t.Error(r.Reserved(), err)
		}
		r.Settle(tokens(15))
		if _, err := b.Acquire(t.Context(), Want{Least: tokens(31), Enough: tokens(31), Most: tokens(31), Keep: true, Instead: kept}); err == nil {
			t.Error("it grew beyond what there is")
		}
		if kept.Settle(Cost{}); b.Left().Tokens != 30 {
			t.Error(b.Left())
		}
	})
	t.Run("a reservation takes the place of another", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), Cost{})
		first := reserve(t, b, tokens(70))
		r, err := b.Acquire(t.Context(), Want{Least: tokens(90), Enough: tokens(90), Most: tokens(90), Instead: first})
		if err != nil || b.Left().Tokens != 10 {
			t.Fatal(err, b.Left())
		}
		first.Settle(tokens(70)) // it is over
		r.Settle(tokens(5))
		if b.Left().Tokens != 95 {
			t.Error(b.Left())
		}
	})
}

// books checks that a node's books make sense.
func books(t *testing.T, b *Budget, kept bool) {
	t.Helper()
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	if b.spent.Tokens < 0 || b.held.Tokens < 0 || b.keeps.Tokens < 0 || b.keeps.Tokens > b.held.Tokens {
		t.Fatalf("books of %q: spent %v held %v keeps %v", b.setBy, b.spent, b.held, b.keeps)
	}
	if kept && b.limit.Tokens != Unlimited && b.spent.Tokens+b.held.Tokens > b.limit.Tokens {
		t.Fatalf("%q is exceeded: limit %v spent %v held %v", b.setBy, b.limit, b.spent, b.held)
	}
	if kept && b.limit.Micros != Unlimited && b.spent.Micros+b.held.Micros > b.limit.Micros {
		t.Fatalf("%q is exceeded: limit %v spent %v held %v", b.setBy, b.limit, b.spent, b.held)
	}
}

// randomTree is three levels of nodes, some with limits.
func randomTree(r *rand.Rand) []*Budget {
	limit := func() Cost {
		c := NoLimit()
		if r.IntN(2) == 0 {
			c.Tokens = r.Int64N(1000)
		}
		if r.IntN(3) == 0 {
			c.Micros = r.Int64N(1000)
		}
		return c
	}
	nodes := []*Budget{NewBudget("", Cost{1 + r.Int64N(2000), Unlimited}, Cost{})}
	for range 2 {
		mid := nodes[0].Among(1+r.IntN(3)).Child("m", limit(), Cost{})
		nodes = append(nodes, mid)
		for range 2 {
			nodes = append(nodes, mid.Among(1+r.IntN(3)).Child("l", limit(), Cost{}))
		}
	}
	return nodes
}

// TestC_07_BudgetSchedules makes 10,000 random schedules of reservations, slices
// and their ends: no limit is ever exceeded by what is spent and reserved, and at
// the end nothing is held.
func TestC_07_BudgetSchedules(t *testing.T) {
	for seed := range uint64(10_000 / sample.Stride()) {
		r := rand.New(rand.NewPCG(seed, 7))
		nodes := randomTree(r)
		var open []*Budget
		for range 40 {
			if len(open) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(open))
				b := open[i]
				open = append(open[:i], open[i+1:]...)
				c := b.Reserved()
				b.Settle(Cost{r.Int64N(c.Tokens + 1), r.Int64N(c.Micros + 1)})
			} else {
				at := nodes[r.IntN(len(nodes))]
				if len(open) > 0 && r.IntN(4) == 0 { // within a slice, which then ends after it
					at = open[0]
				}
				most := Cost{r.Int64N(300), r.Int64N(300)}
				least := Cost{most.Tokens / 2, most.Micros / 2}
				b, _, _ := at.take(Want{Least: least, Enough: least, Most: most, Part: r.IntN(2) == 0, Keep: r.IntN(8) == 0})
				if b != nil {
					open = append(open, b)
				}
			}
			for _, n := range nodes {
				books(t, n, true)
			}
		}
		for i := len(open) - 1; i >= 0; i-- {
			open[i].Settle(Cost{})
		}
		for _, n := range nodes {
			if n.held != (Cost{}) || n.keeps != (Cost{}) {
				t.Fatalf("seed %d: %v and %v are still held", seed, n.held, n.keeps)
			}
		}
	}
}

// TestC_07_BudgetRace has many reserve at the same time.
func TestC_07_BudgetRace(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	nodes := randomTree(r)
	var wg sync.WaitGroup
	for worker := range uint64(16) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 8))
			for range 2000 {
				most := Cost{r.Int64N(100), r.Int64N(100)}
				b, err := nodes[r.IntN(len(nodes))].Acquire(t.Context(), Want{Enough: Cost{most.Tokens / 2, most.Micros / 2}, Most: most})
				if err != nil {
					continue
				}
				c := b.Reserved()
				b.Settle(Cost{r.Int64N(c.Tokens+1) / 50, r.Int64N(c.Micros+1) / 50})
			}
		})
	}
	wg.Wait()
	for _, n := range nodes {
		books(t, n, true)
		if n.held != (Cost{}) {
			t.Errorf("%v are still held", n.held)
		}
	}
}

func TestBinds(t *testing.T) {
	over := func(by string) *Error {
		return Errorf(CodeInternal, ReasonBudgetExceeded, "x").With(DetailSetBy, by)
	}
	for _, c := range []struct {
		err  *Error
		path string
		want bool
	}{
		{nil, "a", false}, {Errorf(0, ReasonTimeout, "x"), "a", false}, {over("a"), "a", true}, {over("a"), "a/b", true},
		{over("a/b"), "a", false}, {over("a"), "ab", false}, {over(SetByCaller), "a/b", true},
	} {
		if got := Binds(c.err, c.path); got != c.want {
			t.Errorf("%v at %s: %v", c.err, c.path, got)
		}
	}
}

func TestCostOf(t *testing.T) {
	if got := CostOf(&teamv1.Spent{InputTokens: 3, OutputTokens: 4, CostMicros: 5}); got != (Cost{7, 5}) {
		t.Error(got)
	}
	if got := CostOf(&teamv1.Spent{InputTokens: Unlimited, OutputTokens: Unlimited, CostMicros: -1}); got != (Cost{Unlimited, 0}) {
		t.Error(got)
	}
	usd, none := 0.000001, int64(-5)
	if got := LimitOf(&teamv1.Limits{MaxCost: &usd, MaxTokens: &none}); got != (Cost{0, 1}) {
		t.Error(got)
	}
	if LimitOf(nil) != NoLimit() || LimitsOf(NoLimit()) != nil {
		t.Error("no limit is one")
	}
	sum := AddSpent(&teamv1.Spent{InputTokens: Unlimited}, &teamv1.Spent{InputTokens: 5, OutputTokens: -7})
	if sum.GetInputTokens() != Unlimited || sum.GetOutputTokens() != 0 {
		t.Error(sum)
	}
}

func TestPrice(t *testing.T) {
	p := FlatPrice(MicrosPerMillion(0.25), MicrosPerMillion(2))
	cost := func(p Price, in, out int64) int64 { return p.Spent(Usage{Input: in, Output: out}).GetCostMicros() }
	if p.Ceil(1, 0) != 1 || cost(p, 1, 0) != 0 || p.Ceil(1000, 1000) != 2250 || cost(p, 3, 1) != 3 {
		t.Error(p.Ceil(1, 0), cost(p, 1, 0), p.Ceil(1000, 1000), cost(p, 3, 1))
	}
	if got := p.Affords(2250, 1000); got != 1000 {
		t.Error(got)
	}
	if p.Affords(0, 1000) != 0 || p.Affords(Unlimited, 5) != Unlimited || (Price{}).Affords(0, 5) != Unlimited {
		t.Error("affords")
	}
	for usd, want := range map[float64]int64{0: 0, 0.07: 70_000, 0.1: 100_000, 2.5: 2_500_000, 0.0000001: 1, 1.2345678: 1_234_568, 1e300: Unlimited} {
		if got := MicrosPerMillion(usd); got != want {
			t.Error(usd, got, want)
		}
	}
	if PriceOf(nil) != (Price{}) {
		t.Error("a price of nothing")
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 10_000 { // the reservation covers what is spent, and what it affords; with and without great numbers
		bits := r.IntN(62)
		price := func() int64 { return r.Int64N(1 << bits) }
		p := Price{price(), price(), price(), 1 + price(), price()}
		in, out := r.Int64N(1<<bits), r.Int64N(1<<bits)
		u := Usage{Input: in, CachedInput: r.Int64N(1 << bits), CacheWrite: r.Int64N(1 << bits), Output: out, Reasoning: r.Int64N(1 << bits)}
		if got := p.Spent(u).GetCostMicros(); got > p.Ceil(in, out) {
			t.Fatal(p, u, got)
		}
		if c := p.Ceil(in, out); c < Unlimited && p.Affords(c, in) < out {
			t.Fatal(p, in, out, c, p.Affords(c, in))
		}
		micros := r.Int64N(1 << bits)
		if a := p.Affords(micros, in); a > 0 && a < Unlimited && p.Ceil(in, a) > micros {
			t.Fatal(p, in, micros, a)
		}
	}
}

// BenchmarkReserve is what a step pays: a reservation and its end, three levels deep.
func BenchmarkReserve(b *testing.B) {
	low := NewBudget("", limitTokens(Unlimited-1), Cost{}).Child("a", limitTokens(Unlimited-1), Cost{}).Child("b", limitTokens(Unlimited-1), Cost{})
	b.ReportAllocs()
	for b.Loop() {
		r, err := low.Reserve(Cost{1000, 1000})
		if err != nil {
			b.Fatal(err)
		}
		r.Settle(Cost{1, 1})
	}
}

// BenchmarkReserve_Parallel is the same from all sides.
func BenchmarkReserve_Parallel(b *testing.B) {
	low := NewBudget("", limitTokens(Unlimited-1), Cost{}).Child("a", limitTokens(Unlimited-1), Cost{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := low.Reserve(Cost{1000, 1000})
			if err != nil {
				b.Error(err)
				return
			}
			r.Settle(Cost{1, 1})
		}
	})
}
