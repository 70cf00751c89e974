package agent

import (
	"math"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Cost is an amount of tokens and money. It is used for limits, for reservations and for what was
// spent.
type Cost struct {
	// Tokens is the number of input and output tokens.
	Tokens int64
	// Micros is an amount of money in millionths of a USD.
	Micros int64
}

// Unlimited is the value of a field of Cost that stands for a limit and is not limited.
const Unlimited = math.MaxInt64

// NoLimit returns the Cost that, as a limit, does not limit anything.
func NoLimit() Cost { return Cost{Unlimited, Unlimited} }

// CostOf returns the tokens and the money of s, as a budget counts them. Negative values, which a
// faulty peer might report, count as 0.
func CostOf(s *teamv1.Spent) Cost {
	return Cost{plus(max(s.GetInputTokens(), 0), max(s.GetOutputTokens(), 0)), max(s.GetCostMicros(), 0)}
}

// LimitOf returns the limits of l that concern the budget: max_tokens, and max_cost rounded to
// millionths of a USD. What l does not set is Unlimited.
func LimitOf(l *teamv1.Limits) Cost {
	c := NoLimit()
	if l != nil && l.MaxTokens != nil {
		c.Tokens = max(l.GetMaxTokens(), 0)
	}
	if l != nil && l.MaxCost != nil {
		c.Micros = Micros(l.GetMaxCost())
	}
	return c
}

// Micros converts USD to millionths of a USD, rounded to the nearest. Amounts that exceed an
// int64 become Unlimited; NaN and negative amounts become 0.
func Micros(usd float64) int64 {
	switch m := math.Round(usd * 1e6); {
	case !(m > 0): // also NaN
		return 0
	case m >= math.MaxInt64:
		return Unlimited
	default:
		return int64(m)
	}
}

// MicrosPerMillion converts a price in USD per million tokens to millionths of a USD per million
// tokens, the unit of Price. It rounds up.
func MicrosPerMillion(usd float64) int64 {
	return Micros(math.Ceil(usd*1e6-1e-6) / 1e6) // ignore rounding errors of float64, such as 2.0000000001
}

// plus returns a+b, or math.MaxInt64 if that overflows. Neither may be negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Plus returns the sum of c and d, at most math.MaxInt64 each.
func (c Cost) Plus(d Cost) Cost {
	return Cost{plus(c.Tokens, d.Tokens), plus(c.Micros, d.Micros)}
}

// Minus returns what remains of c after d, at least 0. An unlimited amount remains unlimited.
func (c Cost) Minus(d Cost) Cost {
	return Cost{less(c.Tokens, d.Tokens), less(c.Micros, d.Micros)}
}

// less returns a-b, at least 0. If a is Unlimited, it returns Unlimited.
func less(a, b int64) int64 {
	if a == Unlimited {
		return Unlimited
	}
	return max(a-b, 0)
}

// Min returns the smaller amount of c and d, for tokens and for money separately.
func (c Cost) Min(d Cost) Cost { return Cost{min(c.Tokens, d.Tokens), min(c.Micros, d.Micros)} }

// Max returns the larger amount of c and d, for tokens and for money separately.
func (c Cost) Max(d Cost) Cost { return Cost{max(c.Tokens, d.Tokens), max(c.Micros, d.Micros)} }

// Covers reports whether c is at least d, in tokens and in money.
func (c Cost) Covers(d Cost) bool { return d.Tokens <= c.Tokens && d.Micros <= c.Micros }

// AddSpent returns the sum of a and b. Nil counts as 0, and the result may be a or b itself, so
// callers must not modify it. Neither a nor b is changed.
func AddSpent(a, b *teamv1.Spent) *teamv1.Spent {
	switch {
	case b == nil:
		return a
	case a == nil:
		return b
	}
	return &teamv1.Spent{
		InputTokens: sum(a.GetInputTokens(), b.GetInputTokens()), OutputTokens: sum(a.GetOutputTokens(), b.GetOutputTokens()),
		CachedInputTokens: sum(a.GetCachedInputTokens(), b.GetCachedInputTokens()), CacheWriteTokens: sum(a.GetCacheWriteTokens(), b.GetCacheWriteTokens()),
		ReasoningTokens: sum(a.GetReasoningTokens(), b.GetReasoningTokens()), CostMicros: sum(a.GetCostMicros(), b.GetCostMicros()),
		ModelCalls: sum(a.GetModelCalls(), b.GetModelCalls()), ToolCalls: sum(a.GetToolCalls(), b.GetToolCalls()),
		Estimated: a.GetEstimated() || b.GetEstimated(), Claimed: a.GetClaimed() || b.GetClaimed(),
	}
}

// LessSpent returns a without b, at least 0. Nil counts as 0, and the result may be a itself, so callers
// must not modify it. If a and b both include estimates, or claims, those of b are taken to be all.
func LessSpent(a, b *teamv1.Spent) *teamv1.Spent {
	if a == nil || b == nil {
		return a
	}
	return &teamv1.Spent{
		InputTokens: less(a.GetInputTokens(), b.GetInputTokens()), OutputTokens: less(a.GetOutputTokens(), b.GetOutputTokens()),
		CachedInputTokens: less(a.GetCachedInputTokens(), b.GetCachedInputTokens()), CacheWriteTokens: less(a.GetCacheWriteTokens(), b.GetCacheWriteTokens()),
		ReasoningTokens: less(a.GetReasoningTokens(), b.GetReasoningTokens()), CostMicros: less(a.GetCostMicros(), b.GetCostMicros()),
		ModelCalls: less(a.GetModelCalls(), b.GetModelCalls()), ToolCalls: less(a.GetToolCalls(), b.GetToolCalls()),
		Estimated: a.GetEstimated() && !b.GetEstimated(), Claimed: a.GetClaimed() && !b.GetClaimed(),
	}
}

// sum returns a+b. Negative values, which a faulty peer might report, count as 0.
func sum(a, b int64) int64 { return plus(max(a, 0), max(b, 0)) }
