package agent

import (
	"math/rand/v2"
	"testing"
)

func TestPrice(t *testing.T) {
	p := FlatPrice(MicrosPerMillion(0.25), MicrosPerMillion(2))
	cost := func(p Price, in, out int64) int64 {
		return p.Spent(Usage{Input: in, Output: out}).GetCostMicros()
	}
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
		p := Price{Input: price(), CachedInput: price(), CacheWrite: price(), Output: 1 + price(), Reasoning: price()}
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
