// Package account limits what the runs of an account spend and have in flight together. Limits come
// from the configuration file or from the management API. What is held and spent is in a ledger in
// the store, which all replicas share; an account without limits has no ledger. When it gets limits, its
// ledger begins with what the account has spent on that day.
package account

import (
	"cmp"
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Ledger stores what the runs of accounts hold and have spent, and the limits that were set by the
// API. Stores implement it. It is safe for concurrent use, by several processes if the store is.
type Ledger interface {
	// OpenUse makes the owner with r.Epoch the only writer of the rows of a run and returns them,
	// ordered by day. If the run has no rows, it creates one for the given day with the given Before.
	// The error is agent.ErrFenced if an owner with a later epoch has opened them.
	OpenUse(ctx context.Context, r Run, day string, before agent.Cost) ([]Row, error)
	// BookUse replaces rows of a run, and then makes a reservation, in one transaction. A second
	// call with the same booking has no further effect, as long as it is the last of the run. The
	// error is agent.ErrFenced if an owner with a later epoch has opened the rows.
	BookUse(ctx context.Context, r Run, b Booking) (Booked, error)
	// Use returns what an account has spent and holds for a day, and what it has in flight.
	Use(ctx context.Context, account, day string) (Use, error)
	// RaiseUse raises what an account has spent on a day, so that it has spent and holds at least c
	// together. It does nothing if that is so.
	RaiseUse(ctx context.Context, account, day string, c agent.Cost) error
	// CountRequests counts requests of accounts and principals, and returns what is left of each. If it returns an
	// error, the requests may have been counted. It is called often, but not for each request.
	CountRequests(ctx context.Context, list []Requests) (left []float64, err error)
	// AccountLimits returns the limits that were set by PutAccountLimits, ordered by account.
	AccountLimits(ctx context.Context) ([]Stored, error)
	// PutAccountLimits sets the limits of an account, or removes them if Limits is nil.
	PutAccountLimits(ctx context.Context, s Stored) error
	// WatchAccountLimits returns a channel that receives a value when limits may have been set.
	// Values may be lost, so callers also poll. The caller must call stop.
	WatchAccountLimits() (wake <-chan struct{}, stop func())
}

// Run identifies a run and the owner that writes its rows.
type Run struct {
	Account string
	Root    string // id of the root task
	Epoch   int64  // epoch of the claim
}

// Row is what a run holds and has spent of what its account may spend on a day. Both count for the
// day on which they were reserved.
type Row struct {
	Day         string // YYYY-MM-DD
	Held, Spent agent.Cost
	// Before is what the run had spent before the account had limits, in the first row of the run.
	Before agent.Cost
}

// Use is what the runs of an account use together.
type Use struct {
	Held, Spent agent.Cost // for the day
	InFlight    agent.Cost // held for all days
}

// Raise returns u with so much spent that spent and held are at least c together.
func (u Use) Raise(c agent.Cost) Use {
	u.Spent = u.Spent.Max(agent.Cost{Tokens: c.Tokens - u.Held.Tokens, Micros: c.Micros - u.Held.Micros})
	return u
}

// Booking is a change of the rows of a run.
type Booking struct {
	// Rows are the new amounts of the run for all days. For other days it holds nothing and has
	// spent nothing. Before is ignored.
	Rows []Row
	// Reserve is a reservation on top of these amounts; nil means none.
	Reserve *Reserve
}

// Reserve is a reservation. See spending.Want for Least, Enough and Most.
type Reserve struct {
	Day                 string
	Least, Enough, Most agent.Cost
	// Part bounds the reservation to that part of what is left, but not to less than Least: with
	// 4, to a quarter. 0 means no bound.
	Part int64
	// Kept is the part of what the run holds that it does not release before it ends.
	Kept agent.Cost
	// Instead is held by the row of InsteadDay, and is released in exchange for the reservation.
	Instead    agent.Cost
	InsteadDay string
	// Last says that the caller does not try again: Least is enough.
	Last bool
	// Limits are those of the account.
	Limits Limits
}

// Booked is the result of a booking.
type Booked struct {
	// Rows are the rows of the run, ordered by day.
	Rows []Row
	// Granted is the amount reserved if OK is set. An amount is Unlimited if Most is and the
	// account does not limit it; nothing is held for it then.
	Granted agent.Cost
	OK      bool
	// Use is what the account uses for the day of the reservation, including this run.
	Use Use
}

// Stored are limits that were set by the API.
type Stored struct {
	Account   string
	Limits    *teamv1.AccountLimits
	Changed   time.Time
	ChangedBy string
}

// most is the largest amount that a row counts, and mostSum the largest sum of rows: two of these can be added.
const (
	most    = 1 << 53
	mostSum = 1 << 61
)

// counted returns what is held of c as a row counts it: what is not limited counts as nothing.
func counted(c agent.Cost) agent.Cost {
	if c.Tokens == agent.Unlimited {
		c.Tokens = 0
	}
	if c.Micros == agent.Unlimited {
		c.Micros = 0
	}
	return saturated(c)
}

// saturated returns what was spent as a row counts it: amounts that are too large, as sums that would
// overflow are, count as the largest one.
func saturated(c agent.Cost) agent.Cost {
	return agent.Cost{Tokens: min(max(c.Tokens, 0), most), Micros: min(max(c.Micros, 0), most)}
}

// Sums are what the runs of an account use together, by day, and in flight.
type Sums struct {
	Days     map[string]Use // without InFlight
	InFlight agent.Cost
}

// Days returns the days whose sums Apply needs, in order. rows are those of the run.
func (b Booking) Days(rows []Row) []string {
	var days []string
	for _, r := range slices.Concat(rows, b.Rows) {
		days = append(days, r.Day)
	}
	if b.Reserve != nil {
		days = append(days, b.Reserve.Day, b.Reserve.InsteadDay)
	}
	slices.Sort(days)
	return slices.DeleteFunc(slices.Compact(days), func(d string) bool { return d == "" })
}

// Apply computes a booking. rows are those of the run, and sums those of its account with the run
// included. It returns the result, and changes sums accordingly. Stores call it in the transaction
// in which they have read rows and sums, and write the rows that have changed.
func (b Booking) Apply(rows []Row, sums *Sums) Booked {
	l := &balances{rows: slices.Clone(rows), sums: sums}
	for _, r := range rows {
		if !slices.ContainsFunc(b.Rows, func(n Row) bool { return n.Day == r.Day }) {
			l.set(r.Day, agent.Cost{}, agent.Cost{})
		}
	}
	for _, r := range b.Rows {
		l.set(r.Day, counted(r.Held), saturated(r.Spent))
	}
	res := Booked{}
	if r := b.Reserve; r != nil {
		use := l.use(r.Day)
		res.Granted, res.OK = r.grant(use)
		if res.OK {
			l.hold(r.InsteadDay, agent.Cost{Tokens: -r.Instead.Tokens, Micros: -r.Instead.Micros})
			l.hold(r.Day, counted(res.Granted))
		}
		res.Use = l.use(r.Day)
	}
	slices.SortFunc(l.rows, func(a, b Row) int { return cmp.Compare(a.Day, b.Day) })
	res.Rows = l.rows
	return res
}

// grant decides how much is reserved.
func (r *Reserve) grant(use Use) (agent.Cost, bool) {
	credit := agent.Cost{}
	if r.InsteadDay == r.Day {
		credit = r.Instead
	}
	left := free(r.Limits.PerDay, use.Spent, use.Held, credit).
		Min(free(r.Limits.InFlight, agent.Cost{}, use.InFlight, r.Instead))
	if r.Part > 1 {
		left = left.Min(part(left, r.Part).Max(r.Least))
	}
	c := r.Most.Min(left)
	if c.Covers(r.Enough) || c.Covers(r.Least) && (r.Last || !r.releasable(use)) {
		return c, true
	}
	return agent.Cost{}, false
}

// releasable reports whether the account holds something that may be released without this run
// having ended.
func (r *Reserve) releasable(use Use) bool {
	own := agent.Cost{Tokens: r.Kept.Tokens + r.Instead.Tokens, Micros: r.Kept.Micros + r.Instead.Micros}
	return use.InFlight.Tokens > own.Tokens || use.InFlight.Micros > own.Micros
}

// cannotFit reports whether Least would not be available even if all others released what they hold.
func (r *Reserve) cannotFit(use Use) bool {
	return !free(r.Limits.PerDay, use.Spent, r.Kept, agent.Cost{}).Covers(r.Least) || !free(r.Limits.InFlight, agent.Cost{}, r.Kept, agent.Cost{}).Covers(r.Least)
}

// free returns what is left of a limit. What is not limited is Unlimited.
func free(limit, spent, held, credit agent.Cost) agent.Cost {
	used := spent.Plus(held)
	return agent.Cost{Tokens: freeAmount(limit.Tokens, used.Tokens-credit.Tokens), Micros: freeAmount(limit.Micros, used.Micros-credit.Micros)}
}

func freeAmount(limit, used int64) int64 {
	if limit == agent.Unlimited {
		return limit
	}
	return max(limit-used, 0)
}

// part returns the n-th part of c.
func part(c agent.Cost, n int64) agent.Cost {
	if c.Tokens != agent.Unlimited {
		c.Tokens /= n
	}
	if c.Micros != agent.Unlimited {
		c.Micros /= n
	}
	return c
}

// balances holds the rows of a run and the sums of its account during a booking.
type balances struct {
	rows []Row
	sums *Sums
}

// set replaces the amounts of a day.
func (l *balances) set(day string, held, spent agent.Cost) {
	i := slices.IndexFunc(l.rows, func(r Row) bool { return r.Day == day })
	if i < 0 {
		l.rows = append(l.rows, Row{Day: day})
		i = len(l.rows) - 1
	}
	row := &l.rows[i]
	of := l.sums.Days[day]
	of.Held, of.Spent = changed(of.Held, row.Held, held), changed(of.Spent, row.Spent, spent)
	l.sums.Days[day] = of
	l.sums.InFlight = changed(l.sums.InFlight, row.Held, held)
	row.Held, row.Spent = held, spent
}

// hold adds to what a day holds; c may be negative.
func (l *balances) hold(day string, c agent.Cost) {
	if day == "" {
		return
	}
	row := Row{Day: day}
	if i := slices.IndexFunc(l.rows, func(r Row) bool { return r.Day == day }); i >= 0 {
		row = l.rows[i]
	}
	l.set(day, agent.Cost{Tokens: max(row.Held.Tokens+c.Tokens, 0), Micros: max(row.Held.Micros+c.Micros, 0)}, row.Spent)
}

// use returns what the account uses for a day.
func (l *balances) use(day string) Use {
	u := l.sums.Days[day]
	u.InFlight = l.sums.InFlight
	return u
}

// changed returns a sum after one of its amounts has changed, at most mostSum.
func changed(sum, before, after agent.Cost) agent.Cost {
	return agent.Cost{Tokens: min(sum.Tokens-before.Tokens+after.Tokens, mostSum), Micros: min(sum.Micros-before.Micros+after.Micros, mostSum)}
}
