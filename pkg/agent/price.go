package agent

import (
	"math"
	"math/big"
)

// Pricer is an optional interface of a Model that has a price. The use of a Model without it
// counts in tokens only, not in money.
type Pricer interface {
	// Price returns the prices of one million input tokens and of one million output tokens, in
	// millionths of a USD. A model that delegates to other models returns the highest of their
	// prices.
	Price() (input, output int64)
}

// OutputLimiter is an optional interface of a Model that limits the length of its turns.
type OutputLimiter interface {
	// MaxOutput returns the maximum number of output tokens of one turn, or 0 if it is unknown.
	MaxOutput() int64
}

// MicrosPerMillion converts a price in USD per million tokens to millionths of a USD per million
// tokens, the unit of Pricer. It rounds up.
func MicrosPerMillion(usd float64) int64 {
	return microsOf(math.Ceil(usd*1e6-1e-6) / 1e6) // ignore rounding errors of float64, such as 2.0000000001
}

// Price is the price of one million tokens, in millionths of a USD.
type Price struct {
	// Input is the price of input tokens, Output that of output tokens.
	Input, Output int64
}

// PriceOf returns the price of a model, or the zero Price if it does not implement Pricer.
// Negative prices become 0.
func PriceOf(m Model) Price {
	if p, ok := m.(Pricer); ok {
		in, out := p.Price()
		return Price{max(in, 0), max(out, 0)}
	}
	return Price{}
}

// Ceil returns the cost of so many tokens in millionths of a USD, rounded up. Reservations use
// it.
func (p Price) Ceil(input, output int64) int64 {
	return p.micros(input, output, million-1)
}

// Round returns the cost of so many tokens in millionths of a USD, rounded to the nearest.
// Bookings of actual use are made with it. The result is never greater than that of Ceil.
func (p Price) Round(input, output int64) int64 {
	return p.micros(input, output, million/2)
}

const million = 1_000_000

// micros returns the cost of tokens in millionths of a USD. more is added before the division by
// a million and thus selects the rounding. A cost that exceeds an int64 becomes math.MaxInt64.
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

// Affords returns how many output tokens micros millionths of a USD pay for, besides the given
// number of input tokens. It returns Unlimited if micros is Unlimited or output tokens cost
// nothing.
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
