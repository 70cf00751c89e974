package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/agentteams/team-server/internal/identity"
)

// Shares says how accounts share the slots of replicas. It is safe for concurrent use, and its methods
// do no I/O.
type Shares interface {
	// Weight returns the weight of an account relative to others; less than 1 means 1.
	Weight(account string) int
	// MaxRunning returns how many runs of an account may be driven at the same time by all replicas
	// together; 0 means no limit.
	MaxRunning(account string) int
	// MaxRunningEach returns how many runs of each principal of an account may be driven at the same
	// time by all replicas together; 0 means no limit.
	MaxRunningEach(account string) int
	// LimitsRunning reports whether MaxRunning or MaxRunningEach limits any account.
	LimitsRunning() bool
}

// headroom is how many slots an account may hold for each slot that is free. Of 256 slots, one account
// gets 228 at most, two get 121 each, and so on: accounts that have none find a free one. The weight of
// an account does not matter here. If there are fewer than 9 slots, one account may hold them all.
const headroom = 8

// Room has the slots of a replica: how many are free, and how many each account holds. A replica keeps
// one, and gives a copy to each claim. It is not safe for concurrent use.
type Room struct {
	// Waiting is set by a claim if due runs were not claimed because their accounts may hold no more
	// slots now.
	Waiting bool

	free   int
	held   map[string]int // slots that are not free, by account
	each   map[string]int // the same, by owner
	shares Shares         // nil means that all accounts are equal
	// weights are those that Divide has asked shares for; nil outside of it.
	weights map[string]int

	// turns are the virtual times at which accounts are next, as in start-time fair queueing: a claimed
	// run adds 1/weight to that of its account. now is that of the last claimed run. An account whose
	// time is not later than now has no entry.
	turns map[string]float64
	now   float64
}

// NewRoom returns a room with free slots, and nothing else. shares may be nil, which means that all
// accounts are equal.
func NewRoom(slots int, shares Shares) *Room {
	return &Room{free: slots, shares: shares, held: map[string]int{}, each: map[string]int{}, turns: map[string]float64{}}
}

// Clone returns a copy of r that is not Waiting.
func (r *Room) Clone() *Room {
	return &Room{free: r.free, shares: r.shares, held: maps.Clone(r.held), each: maps.Clone(r.each), turns: maps.Clone(r.turns), now: r.now}
}

// Free returns the number of free slots.
func (r *Room) Free() int { return r.free }

// Any returns how many due runs may be claimed whatever their accounts are: even if all belong to one,
// that account may hold so many more slots. It is 0 if the number of running runs of an account is
// limited, because only a store knows that of all replicas.
func (r *Room) Any() int {
	if r.Limited() {
		return 0
	}
	n := r.share("")
	for account := range r.held {
		n = min(n, r.share(account))
	}
	return n
}

// Limited reports whether the number of running runs of any account or principal is limited.
func (r *Room) Limited() bool { return r.shares != nil && r.shares.LimitsRunning() }

// LimitedIn reports whether the number of running runs of an account, or of its principals, is limited.
func (r *Room) LimitedIn(account string) bool {
	return r.MaxRunning(account) > 0 || r.MaxRunningEach(account) > 0
}

// Held returns how many slots an account holds.
func (r *Room) Held(account string) int { return r.held[account] }

// HeldBy returns how many slots an owner holds.
func (r *Room) HeldBy(owner string) int { return r.each[owner] }

// MaxRunningEach returns how many runs of each principal of an account may be driven by all replicas
// together; 0 means no limit.
func (r *Room) MaxRunningEach(account string) int {
	if r.shares == nil {
		return 0
	}
	return r.shares.MaxRunningEach(account)
}

// MaxRunning returns how many runs of an account may be driven by all replicas together; 0 means no
// limit.
func (r *Room) MaxRunning(account string) int {
	if r.shares == nil {
		return 0
	}
	return r.shares.MaxRunning(account)
}

// Divide returns how many runs of each of some accounts are to be claimed now, in turns. most has the
// number that may be claimed of each account at most.
func (r *Room) Divide(most map[string]int) map[string]int {
	left, parts := r.Clone(), map[string]int{}
	left.weights = map[string]int{}
	accounts := slices.Collect(maps.Keys(most))
	for len(accounts) > 0 && left.free > 0 {
		next := slices.MinFunc(accounts, func(a, b string) int {
			return cmp.Or(cmp.Compare(left.turn(a), left.turn(b)), cmp.Compare(left.held[a], left.held[b]), cmp.Compare(a, b))
		})
		if parts[next] >= most[next] || left.share(next) == 0 {
			accounts = slices.DeleteFunc(accounts, func(a string) bool { return a == next })
			continue
		}
		parts[next]++
		left.Take(next)
	}
	return parts
}

// Take gives a slot to a run of an owner.
func (r *Room) Take(owner string) {
	account := identity.AccountOf(owner)
	r.free--
	r.held[account]++
	r.each[owner]++
	r.now = r.turn(account)
	r.turns[account] = r.now + 1/float64(r.weight(account))
	maps.DeleteFunc(r.turns, func(_ string, at float64) bool { return at <= r.now })
}

// Give frees a slot that an owner holds.
func (r *Room) Give(owner string) {
	account := identity.AccountOf(owner)
	r.free++
	if r.held[account]--; r.held[account] <= 0 {
		delete(r.held, account)
	}
	if r.each[owner]--; r.each[owner] <= 0 {
		delete(r.each, owner)
	}
}

// turn returns the virtual time at which an account is next.
func (r *Room) turn(account string) float64 { return max(r.turns[account], r.now) }

// share returns how many more slots an account may hold.
func (r *Room) share(account string) int {
	return max((headroom*r.free-r.held[account]+headroom)/(1+headroom), 0) // rounded up
}

// weight returns the weight of an account, at least 1.
func (r *Room) weight(account string) int {
	if r.shares == nil {
		return 1
	}
	w, known := r.weights[account]
	if !known {
		w = max(r.shares.Weight(account), 1)
		if r.weights != nil {
			r.weights[account] = w
		}
	}
	return w
}
