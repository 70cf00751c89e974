package agent

import (
	"math"
	"math/big"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Pricer is an optional interface of a Model that has a price. The use of a Model without it
// counts in tokens only, not in money.
type Pricer interface {
	// Price returns the price of the model.
	Price() Price
}

// TaskPricer is an optional interface of an Agent on another server whose tasks have a fixed cost.
type TaskPricer interface {
	// TaskCost returns the cost of a task in millionths of a USD. It is booked for each task for
	// which the agent reports no cost in money.
	TaskCost() int64
}

// Usage is the number of tokens of a turn, as a provider counts them.
type Usage struct {
	// Input is the number of all input tokens. CachedInput of them were read from a prompt cache,
	// and CacheWrite of them were written to it.
	Input, CachedInput, CacheWrite int64
	// Output is the number of all output tokens. Reasoning of them are not part of the answer.
	Output, Reasoning int64
}

// within returns u without negative counts, and with parts that are at most the whole.
func (u Usage) within() Usage {
	u.Input, u.Output = max(u.Input, 0), max(u.Output, 0)
	u.CachedInput = min(max(u.CachedInput, 0), u.Input)
	u.CacheWrite = min(max(u.CacheWrite, 0), u.Input-u.CachedInput)
	u.Reasoning = min(max(u.Reasoning, 0), u.Output)
	return u
}

// Price is the price of one million tokens, in millionths of a USD.
type Price struct {
	// Input is the price of input tokens, CachedInput that of tokens read from a prompt cache, and
	// CacheWrite that of tokens written to it.
	Input, CachedInput, CacheWrite int64
	// Output is the price of output tokens, and Reasoning that of tokens used for reasoning.
	Output, Reasoning int64
}

// FlatPrice returns the price of a model that charges for input and output tokens only.
func FlatPrice(input, output int64) Price {
	return Price{Input: input, CachedInput: input, CacheWrite: input, Output: output, Reasoning: output}
}

// PriceOf returns the price of a model, or the zero Price if it does not implement Pricer.
// Negative prices become 0.
func PriceOf(m Model) Price {
	p, ok := m.(Pricer)
	if !ok {
		return Price{}
	}
	of := p.Price()
	return Price{
		Input: max(of.Input, 0), CachedInput: max(of.CachedInput, 0), CacheWrite: max(of.CacheWrite, 0),
		Output: max(of.Output, 0), Reasoning: max(of.Reasoning, 0),
	}
}

// highest returns the price at which an input token and an output token cost most.
func (p Price) highest() (input, output int64) {
	return max(p.Input, p.CachedInput, p.CacheWrite), max(p.Output, p.Reasoning)
}

// Ceil returns the most that so many tokens can cost, in millionths of a USD, rounded up.
// Reservations use it.
func (p Price) Ceil(input, output int64) int64 {
	in, out := p.highest()
	return micros(million-1, pair{input, in}, pair{output, out})
}

// Spent returns the use of a turn and its cost, rounded to the nearest millionth of a USD. Bookings
// of actual use are made with it. The cost is never greater than that of Ceil.
func (p Price) Spent(u Usage) *teamv1.Spent {
	u = u.within()
	return &teamv1.Spent{
		ModelCalls: 1, InputTokens: u.Input, OutputTokens: u.Output,
		CachedInputTokens: u.CachedInput, CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Reasoning,
		CostMicros: micros(million/2, pair{u.Input - u.CachedInput - u.CacheWrite, p.Input}, pair{u.CachedInput, p.CachedInput},
			pair{u.CacheWrite, p.CacheWrite}, pair{u.Output - u.Reasoning, p.Output}, pair{u.Reasoning, p.Reasoning}),
	}
}

const million = 1_000_000

// pair is a number of tokens and their price.
type pair struct{ tokens, price int64 }

// micros returns the cost of tokens in millionths of a USD. more is added before the division by
// a million and thus selects the rounding. A cost that exceeds an int64 becomes math.MaxInt64.
func micros(more int64, pairs ...pair) int64 {
	small, sum := true, more
	for _, p := range pairs {
		small = small && p.tokens < 1<<29 && p.price < 1<<31 // so that the sum of 5 does not overflow
		if small {
			sum += p.tokens * p.price
		}
	}
	if small {
		return sum / million
	}
	total := big.NewInt(more)
	for _, p := range pairs {
		total.Add(total, new(big.Int).Mul(big.NewInt(p.tokens), big.NewInt(p.price)))
	}
	if total.Quo(total, big.NewInt(million)); !total.IsInt64() {
		return math.MaxInt64
	}
	return total.Int64()
}

// Affords returns how many output tokens micros millionths of a USD pay for, besides the given
// number of input tokens, if each token costs the most that it can. It returns Unlimited if micros
// is Unlimited or output tokens cost nothing.
func (p Price) Affords(micros, input int64) int64 {
	in, out := p.highest()
	if micros == Unlimited || out == 0 {
		return Unlimited
	}
	if micros < 1<<42 && input < 1<<31 && in < 1<<31 { // no overflow
		return max(micros*million-input*in, 0) / out
	}
	left := new(big.Int).Mul(big.NewInt(micros), big.NewInt(million))
	left.Sub(left, new(big.Int).Mul(big.NewInt(input), big.NewInt(in)))
	left.Quo(left, big.NewInt(out))
	switch {
	case left.Sign() < 0:
		return 0
	case !left.IsInt64():
		return Unlimited
	}
	return left.Int64()
}
