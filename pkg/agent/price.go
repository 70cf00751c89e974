package agent

import (
	"math"
	"math/big"
)

// Pricer is a Model that knows what it costs. What a model costs that is none
// counts in tokens alone.
type Pricer interface {
	// Price is what a million tokens cost that are read and that are written, in
	// millionths of a USD. A model that asks others says the highest of their prices.
	Price() (input, output int64)
}

// OutputLimiter is a Model that knows how many tokens one answer of it may have.
type OutputLimiter interface {
	// MaxOutput is that number; 0 is not known.
	MaxOutput() int64
}

// MicrosPerMillion is a price in USD per million tokens in millionths of a USD,
// the unit of Pricer, rounded up.
func MicrosPerMillion(usd float64) int64 {
	return microsOf(math.Ceil(usd*1e6-1e-6) / 1e6) // what floats add to whole ones is not meant
}

// Price is what a million tokens cost, in millionths of a USD.
type Price struct {
	// Input is for tokens read, Output for tokens written.
	Input, Output int64
}

// PriceOf returns what a model says it costs.
func PriceOf(m Model) Price {
	if p, ok := m.(Pricer); ok {
		in, out := p.Price()
		return Price{max(in, 0), max(out, 0)}
	}
	return Price{}
}

// Ceil is what tokens cost, in millionths of a USD, rounded up: for what is reserved.
func (p Price) Ceil(input, output int64) int64 {
	return p.micros(input, output, million-1)
}

// Round is what tokens cost, in millionths of a USD, rounded: for what is spent.
// It is never more than Ceil.
func (p Price) Round(input, output int64) int64 {
	return p.micros(input, output, million/2)
}

const million = 1_000_000

// micros is the price with more added before it is cut to whole millionths.
func (p Price) micros(input, output, more int64) int64 {
	if input < 1<<30 && output < 1<<30 && p.Input < 1<<31 && p.Output < 1<<31 { // no overflow
		return (input*p.Input + output*p.Output + more) / million
	}
	in := new(big.Int).Mul(big.NewInt(input), big.NewInt(p.Input))
	sum := new(big.Int).Mul(big.NewInt(output), big.NewInt(p.Output))
	sum.Add(sum.Add(sum, in), big.NewInt(more)).Quo(sum, big.NewInt(million))
	if !sum.IsInt64() {
		return math.MaxInt64
	}
	return sum.Int64()
}

// Affords is how many tokens can be written for so much money when so many are
// read; Unlimited where money does not limit it.
func (p Price) Affords(micros, input int64) int64 {
	if micros == Unlimited || p.Output == 0 {
		return Unlimited
	}
	if micros < 1<<42 && input < 1<<31 && p.Input < 1<<31 { // no overflow
		return max(micros*million-input*p.Input, 0) / p.Output
	}
	left := new(big.Int).Mul(big.NewInt(micros), big.NewInt(million))
	left.Sub(left, new(big.Int).Mul(big.NewInt(input), big.NewInt(p.Input)))
	left.Quo(left, big.NewInt(p.Output))
	switch {
	case left.Sign() < 0:
		return 0
	case !left.IsInt64():
		return Unlimited
	}
	return left.Int64()
}
