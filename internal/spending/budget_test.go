package spending

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
)

func tokens(n int64) agent.Cost { return agent.Cost{Tokens: n} }

func limitTokens(n int64) agent.Cost { return agent.Cost{Tokens: n, Micros: agent.Unlimited} }

// reserve is Reserve of what there must be.
func reserve(t *testing.T, b *Budget, c agent.Cost) *Budget {
	t.Helper()
	r, err := b.Reserve(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestC_07_Budget(t *testing.T) {
	t.Run("C-07 a reservation is checked against every node above", func(t *testing.T) {
		top := NewBudget("", limitTokens(100), agent.Cost{})
		mid := top.Child("t", agent.Cost{Tokens: 80, Micros: 5_000_000}, agent.Cost{})
		low := mid.Child("t/a", agent.NoLimit(), agent.Cost{})
		r := reserve(t, low, agent.Cost{Tokens: 60, Micros: 1_000_000})
		if _, err := top.Reserve(tokens(41)); err == nil {
			t.Error("more was reserved than there is")
		}
		if got := top.Left(); got != limitTokens(40) {
			t.Error(got)
		}
		if got := low.Left(); got != (agent.Cost{Tokens: 20, Micros: 4_000_000}) {
			t.Error(got)
		}
		r.Settle(agent.Cost{Tokens: 10, Micros: 500_000})
		r.Settle(agent.Cost{Tokens: 10, Micros: 500_000}) // changes nothing
		if top.Spent().Tokens != 10 || mid.Spent() != (agent.Cost{Tokens: 10, Micros: 500_000}) || low.Left() != (agent.Cost{Tokens: 70, Micros: 4_500_000}) {
			t.Error(top.Spent(), mid.Spent(), low.Left())
		}
	})
	t.Run("C-07 the error names the limit, its value and who set it", func(t *testing.T) {
		top := NewBudget("", agent.Cost{Tokens: 100, Micros: 2_500_000}, agent.Cost{})
		mid := top.Child("company/news", limitTokens(80), agent.Cost{})
		for _, c := range []struct {
			b                 *Budget
			cost              agent.Cost
			limit, value, set string
			text              string
		}{
			{mid, tokens(81), "max_tokens", "80", "company/news", `limits.max_tokens of "company/news" is 80 tokens, 0 of it are spent or reserved, and 81 are needed`},
			{top, tokens(101), "max_tokens", "100", agent.SetByCaller, "what the caller has left (max_tokens) is 100 tokens"},
			{mid, agent.Cost{Tokens: 1, Micros: 2_500_001}, "max_cost", "2.5", agent.SetByCaller, "what the caller has left (max_cost) is 2.5 USD, 0 of it are spent or reserved, and 2.500001 are needed"},
		} {
			_, err := c.b.Reserve(c.cost)
			e := agent.AsError(err)
			if e == nil || e.Reason != agent.ReasonBudgetExceeded || e.Retry || e.Details[agent.DetailLimit] != c.limit || e.Details[agent.DetailValue] != c.value ||
				e.Details[agent.DetailSetBy] != c.set || !strings.Contains(e.Message, c.text) {
				t.Errorf("%+v", e)
			}
		}
	})
	t.Run("C-07 what exceeds the reservation is booked all the same", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), agent.Cost{})
		reserve(t, b, tokens(10)).Settle(tokens(150))
		if b.Spent().Tokens != 150 || b.Left().Tokens != 0 {
			t.Error(b.Spent(), b.Left())
		}
		if err := b.Room(tokens(1)); err == nil {
			t.Error("there is room")
		}
	})
	t.Run("C-07 a slice is a budget of its own", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), agent.Cost{})
		slice := reserve(t, b, tokens(60))
		inner := slice.Child("t/x", agent.NoLimit(), agent.Cost{})
		reserve(t, inner, tokens(50)).Settle(tokens(40))
		if _, err := inner.Reserve(tokens(21)); err == nil {
			t.Error("the slice was exceeded")
		}
		if b.Left().Tokens != 40 || b.Spent().Tokens != 0 {
			t.Error(b.Left(), b.Spent())
		}
		slice.Settle(agent.Cost{}) // says nothing: what was seen below counts
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
		r, err := b.Reserve(agent.Cost{Tokens: 1 << 60, Micros: 1 << 60})
		r.Settle(tokens(1))
		if r != nil || err != nil || b.Left() != agent.NoLimit() || b.Room(tokens(1)) != nil || b.Among(3) != nil || b.Envelope() != nil {
			t.Error(r, err)
		}
		if c := b.Child("t", limitTokens(5), tokens(2)); c.Left().Tokens != 3 {
			t.Error(c.Left())
		}
	})
}

func TestBudget_Part(t *testing.T) {
	part := Want{Least: tokens(1), Enough: tokens(1), Most: agent.NoLimit(), Part: true}
	t.Run("siblings get the same, whoever comes first", func(t *testing.T) {
		b := NewBudget("t", limitTokens(90), agent.Cost{})
		for range 3 {
			r, err := b.Among(3).Acquire(t.Context(), part)
			if err != nil || r.Reserved() != limitTokens(30) {
				t.Fatal(r.Reserved(), err)
			}
		}
	})
	t.Run("parts of nested teams multiply", func(t *testing.T) {
		b := NewBudget("t", limitTokens(120), agent.Cost{})
		nested := b.Among(2).Child("t/x", agent.NoLimit(), agent.Cost{})
		r, err := nested.Among(3).Acquire(t.Context(), part)
		if err != nil || r.Reserved().Tokens != 20 {
			t.Fatal(r.Reserved(), err)
		}
		if env := r.Envelope(); env.GetMaxTokens() != 20 || env.MaxCost != nil { //nolint:protogetter // set or not matters
			t.Error(env)
		}
	})
	t.Run("one alone gets all", func(t *testing.T) {
		b := NewBudget("t", agent.Cost{Tokens: 90, Micros: 1_500_000}, agent.Cost{})
		r, err := b.Among(1).Acquire(t.Context(), part)
		if err != nil || r.Reserved() != (agent.Cost{Tokens: 90, Micros: 1_500_000}) || r.Envelope().GetMaxCost() != 1.5 {
			t.Fatal(r.Reserved(), err)
		}
	})
}

func TestBudget_Acquire(t *testing.T) {
	want := Want{Least: tokens(10), Enough: tokens(50), Most: tokens(80)}
	t.Run("it waits for what others give back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := NewBudget("t", limitTokens(100), agent.Cost{})
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
		if _, err := b.Acquire(t.Context(), want); err == nil || agent.AsError(err).Reason != agent.ReasonBudgetExceeded {
			t.Error(err)
		}
	})
	t.Run("the wait ends with its context", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), agent.Cost{})
		reserve(t, b, tokens(90))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(agent.ErrCanceled)
		if _, err := b.Acquire(ctx, want); !errors.Is(err, agent.ErrCanceled) {
			t.Error(err)
		}
	})
	t.Run("nobody waits for what is kept for later", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), agent.Cost{})
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
		if kept.Settle(agent.Cost{}); b.Left().Tokens != 30 {
			t.Error(b.Left())
		}
	})
	t.Run("a reservation takes the place of another", func(t *testing.T) {
		b := NewBudget("t", limitTokens(100), agent.Cost{})
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
	if kept && b.limit.Tokens != agent.Unlimited && b.spent.Tokens+b.held.Tokens > b.limit.Tokens {
		t.Fatalf("%q is exceeded: limit %v spent %v held %v", b.setBy, b.limit, b.spent, b.held)
	}
	if kept && b.limit.Micros != agent.Unlimited && b.spent.Micros+b.held.Micros > b.limit.Micros {
		t.Fatalf("%q is exceeded: limit %v spent %v held %v", b.setBy, b.limit, b.spent, b.held)
	}
}

// randomTree is three levels of nodes, some with limits.
func randomTree(r *rand.Rand) []*Budget {
	limit := func() agent.Cost {
		c := agent.NoLimit()
		if r.IntN(2) == 0 {
			c.Tokens = r.Int64N(1000)
		}
		if r.IntN(3) == 0 {
			c.Micros = r.Int64N(1000)
		}
		return c
	}
	nodes := []*Budget{NewBudget("", agent.Cost{Tokens: 1 + r.Int64N(2000), Micros: agent.Unlimited}, agent.Cost{})}
	for range 2 {
		mid := nodes[0].Among(1+r.IntN(3)).Child("m", limit(), agent.Cost{})
		nodes = append(nodes, mid)
		for range 2 {
			nodes = append(nodes, mid.Among(1+r.IntN(3)).Child("l", limit(), agent.Cost{}))
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
				b.Settle(agent.Cost{Tokens: r.Int64N(c.Tokens + 1), Micros: r.Int64N(c.Micros + 1)})
			} else {
				at := nodes[r.IntN(len(nodes))]
				if len(open) > 0 && r.IntN(4) == 0 { // within a slice, which then ends after it
					at = open[0]
				}
				most := agent.Cost{Tokens: r.Int64N(300), Micros: r.Int64N(300)}
				least := agent.Cost{Tokens: most.Tokens / 2, Micros: most.Micros / 2}
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
			open[i].Settle(agent.Cost{})
		}
		for _, n := range nodes {
			if n.held != (agent.Cost{}) || n.keeps != (agent.Cost{}) {
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
				most := agent.Cost{Tokens: r.Int64N(100), Micros: r.Int64N(100)}
				b, err := nodes[r.IntN(len(nodes))].Acquire(t.Context(), Want{Enough: agent.Cost{Tokens: most.Tokens / 2, Micros: most.Micros / 2}, Most: most})
				if err != nil {
					continue
				}
				c := b.Reserved()
				b.Settle(agent.Cost{Tokens: r.Int64N(c.Tokens+1) / 50, Micros: r.Int64N(c.Micros+1) / 50})
			}
		})
	}
	wg.Wait()
	for _, n := range nodes {
		books(t, n, true)
		if n.held != (agent.Cost{}) {
			t.Errorf("%v are still held", n.held)
		}
	}
}

// BenchmarkReserve is what a step pays: a reservation and its end, three levels deep.
func BenchmarkReserve(b *testing.B) {
	low := NewBudget("", limitTokens(agent.Unlimited-1), agent.Cost{}).Child("a", limitTokens(agent.Unlimited-1), agent.Cost{}).Child("b", limitTokens(agent.Unlimited-1), agent.Cost{})
	b.ReportAllocs()
	for b.Loop() {
		r, err := low.Reserve(agent.Cost{Tokens: 1000, Micros: 1000})
		if err != nil {
			b.Fatal(err)
		}
		r.Settle(agent.Cost{Tokens: 1, Micros: 1})
	}
}

// BenchmarkReserve_Parallel is the same from all sides.
func BenchmarkReserve_Parallel(b *testing.B) {
	low := NewBudget("", limitTokens(agent.Unlimited-1), agent.Cost{}).Child("a", limitTokens(agent.Unlimited-1), agent.Cost{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := low.Reserve(agent.Cost{Tokens: 1000, Micros: 1000})
			if err != nil {
				b.Error(err)
				return
			}
			r.Settle(agent.Cost{Tokens: 1, Micros: 1})
		}
	})
}
