// Package cost adds up what all runs spend, by hour, account, agent, team and model. A Book computes
// from the events of a run what each of them adds. Stores write that in the transaction that records
// the events, and keep the sums when the runs are deleted: that is why they are stored, although they
// could be computed from journals.
package cost

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Kept is how long sums are kept. Hourly is how long they are kept by the hour; older ones are those
// of whole days, in UTC.
const (
	Kept   = 400 * 24 * time.Hour
	Hourly = 32 * 24 * time.Hour
)

// Key says where a cost arose.
type Key struct {
	// Hour is the hour in which it was recorded, in hours since the Unix epoch.
	Hour int64
	// Account is the account of the run.
	Account string
	// Path is the path of the agent that spent it, and Team that of the team that it worked for.
	Path, Team string
	// Model is the name of the model that it was spent on; empty if it was not spent on a model of
	// this server.
	Model string
}

// HourOf returns the hour of a time, for Key.
func HourOf(t time.Time) int64 { return floor(t.Unix(), 3600) }

// DayOf returns the first hour of the day of an hour, in UTC.
func DayOf(hour int64) int64 { return floor(hour, 24) * 24 }

// TimeOf returns when an hour begins.
func TimeOf(hour int64) time.Time { return time.Unix(hour*3600, 0).UTC() }

// floor returns a/b, rounded down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Amounts are tokens, money and calls. The names of their fields in stores are Columns.
type Amounts [14]int64

// Columns are the names of the elements of Amounts. The last six are the parts that were estimated
// or claimed.
var Columns = [len(Amounts{})]string{
	"input_tokens", "output_tokens", "cost_micros", "model_calls", "tool_calls", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens",
	"estimated_input_tokens", "estimated_output_tokens", "estimated_cost_micros", "claimed_input_tokens", "claimed_output_tokens", "claimed_cost_micros",
}

// Indexes of the parts in Amounts.
const (
	estimated = 8
	claimed   = 11
)

// most is the largest amount that is added at once. Sums of half a million of them do not overflow.
const most = 1 << 44

// AmountsOf returns what s adds to sums.
func AmountsOf(s *teamv1.Spent) Amounts {
	a := Amounts{
		s.GetInputTokens(), s.GetOutputTokens(), s.GetCostMicros(), s.GetModelCalls(), s.GetToolCalls(),
		s.GetCachedInputTokens(), s.GetCacheWriteTokens(), s.GetReasoningTokens(),
	}
	for i := range a {
		a[i] = min(max(a[i], 0), most)
	}
	if s.GetEstimated() {
		copy(a[estimated:], a[:3])
	}
	if s.GetClaimed() {
		copy(a[claimed:], a[:3])
	}
	return a
}

// Add adds b to a.
func (a *Amounts) Add(b Amounts) {
	for i := range a {
		a[i] += b[i]
	}
}

// Spent returns the whole of the amounts.
func (a Amounts) Spent() *teamv1.Spent {
	return &teamv1.Spent{
		InputTokens: a[0], OutputTokens: a[1], CostMicros: a[2], ModelCalls: a[3], ToolCalls: a[4],
		CachedInputTokens: a[5], CacheWriteTokens: a[6], ReasoningTokens: a[7],
		Estimated: a.part(estimated) != nil, Claimed: a.part(claimed) != nil,
	}
}

// Estimated returns the part of the amounts that was estimated. It returns nil if nothing was.
func (a Amounts) Estimated() *teamv1.Spent {
	s := a.part(estimated)
	if s != nil {
		s.Estimated = true
	}
	return s
}

// Claimed returns the part of the amounts that other servers have reported. It returns nil if they have
// reported nothing.
func (a Amounts) Claimed() *teamv1.Spent {
	s := a.part(claimed)
	if s != nil {
		s.Claimed = true
	}
	return s
}

// part returns the part that begins at an index, nil if it is zero.
func (a Amounts) part(at int) *teamv1.Spent {
	if a[at] == 0 && a[at+1] == 0 && a[at+2] == 0 {
		return nil
	}
	return &teamv1.Spent{InputTokens: a[at], OutputTokens: a[at+1], CostMicros: a[at+2]}
}

// Sum is what was spent at a place.
type Sum struct {
	Key
	Amounts
}

// Query selects sums.
type Query struct {
	// From and Until select the hours: From is included, Until is not.
	From, Until int64
	// Account and Model select the sums of one account and of one model; nil means all.
	Account, Model *string
	// ByDay says that the sums of each day are returned, with its first hour. Otherwise the hour of
	// all sums is 0.
	ByDay bool
}

// Store stores the sums. Stores implement it, and add to them what Book returns for the events of runs.
// Safe for concurrent use.
type Store interface {
	// Costs returns the sums that a query selects, one for each Key, in any order.
	Costs(ctx context.Context, q Query) ([]Sum, error)
}
