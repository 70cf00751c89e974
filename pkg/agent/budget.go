package agent

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Cost is what models cost: what is limited, reserved and spent of a budget.
type Cost struct {
	// Tokens read and written.
	Tokens int64
	// Micros are millionths of a USD.
	Micros int64
}

// Unlimited stands in a limit for no limit.
const Unlimited = math.MaxInt64

// NoLimit limits nothing.
func NoLimit() Cost { return Cost{Unlimited, Unlimited} }

// CostOf is what was spent as a budget counts it. What makes no sense, such as a
// peer's negative count, is nothing.
func CostOf(s *teamv1.Spent) Cost {
	return Cost{plus(max(s.GetInputTokens(), 0), max(s.GetOutputTokens(), 0)), max(s.GetCostMicros(), 0)}
}

// LimitOf is the part of limits that is a budget: max_tokens, and max_cost in
// whole millionths of a USD.
func LimitOf(l *teamv1.Limits) Cost {
	c := NoLimit()
	if l != nil && l.MaxTokens != nil {
		c.Tokens = max(l.GetMaxTokens(), 0)
	}
	if l != nil && l.MaxCost != nil {
		c.Micros = microsOf(l.GetMaxCost())
	}
	return c
}

// microsOf are USD in millionths, rounded to whole ones; more than there are numbers is no limit.
func microsOf(usd float64) int64 {
	switch m := math.Round(usd * 1e6); {
	case !(m > 0): // NaN too
		return 0
	case m >= math.MaxInt64:
		return Unlimited
	default:
		return int64(m)
	}
}

// plus adds what is not negative and stops at the greatest number.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (c Cost) plus(d Cost) Cost {
	return Cost{plus(c.Tokens, d.Tokens), plus(c.Micros, d.Micros)}
}

// minus is what is left of c, never less than nothing; no limit stays none.
func (c Cost) minus(d Cost) Cost {
	return Cost{less(c.Tokens, d.Tokens), less(c.Micros, d.Micros)}
}

func less(a, b int64) int64 {
	if a == Unlimited {
		return Unlimited
	}
	return max(a-b, 0)
}

func (c Cost) min(d Cost) Cost { return Cost{min(c.Tokens, d.Tokens), min(c.Micros, d.Micros)} }
func (c Cost) max(d Cost) Cost { return Cost{max(c.Tokens, d.Tokens), max(c.Micros, d.Micros)} }

// Covers reports whether d is no more than c.
func (c Cost) Covers(d Cost) bool { return d.Tokens <= c.Tokens && d.Micros <= c.Micros }

// over is what one of n has of c.
func (c Cost) over(n int64) Cost {
	if c.Tokens != Unlimited {
		c.Tokens /= n
	}
	if c.Micros != Unlimited {
		c.Micros /= n
	}
	return c
}

// Budget is a node of the budgets that hold for the work of one root: tokens and
// money, which bind everything below the node. What will be spent is
// reserved in every node above before the work begins, and settled after it, so
// that siblings working at the same time cannot spend more than there is. A nil
// Budget is no limit. Safe for concurrent use.
type Budget struct {
	tree   *tree
	parent *Budget
	setBy  string // path of the agent whose limits these are; empty: the caller's
	limit  Cost
	share  int64 // how many work side by side on what the parent has

	reserved bool // its limit is reserved in the parent, which is asked no more
	kept     bool // reserved for later: nobody waits for it to be given back
	settled  bool // guarded by tree.mu

	spent Cost // of the node and below; guarded by tree.mu
	held  Cost // by what is under way below; guarded by tree.mu
	keeps Cost // of that, what is kept for later; guarded by tree.mu
}

// tree is what all nodes of a run share.
type tree struct {
	mu    sync.Mutex
	freed chan struct{} // closed when something is given back; nil while nobody waits; guarded by mu
}

// NewBudget returns a root. setBy is the path of the agent that sets the limit,
// empty for a caller; spent is what is spent already.
func NewBudget(setBy string, limit, spent Cost) *Budget {
	return &Budget{tree: &tree{}, setBy: setBy, limit: limit, share: 1, spent: spent}
}

// Child returns a node below b with a limit of its own; a root where b is nil.
// Spent is what the child has spent before, which b has on its books already.
func (b *Budget) Child(setBy string, limit, spent Cost) *Budget {
	if b == nil {
		return NewBudget(setBy, limit, spent)
	}
	return &Budget{tree: b.tree, parent: b, setBy: setBy, limit: limit, share: 1, spent: spent}
}

// Among returns a node for one of n that work side by side: what it reserves as
// its part leaves the others theirs.
func (b *Budget) Among(n int) *Budget {
	if b == nil || n < 2 {
		return b
	}
	return &Budget{tree: b.tree, parent: b, limit: NoLimit(), share: int64(n)}
}

type budgetKey struct{}

// WithBudget returns a context whose work is bound by b.
func WithBudget(ctx context.Context, b *Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// BudgetOf returns what binds the work of ctx; nil is no limit.
func BudgetOf(ctx context.Context) *Budget {
	b, _ := ctx.Value(budgetKey{}).(*Budget)
	return b
}

// Want says how much is to be reserved.
type Want struct {
	// Least is what there must be.
	Least Cost
	// Enough is worth waiting for while others hold something that they may give
	// back; where nobody does, Least will do. It is at least Least.
	Enough Cost
	// Most is what is taken where there is so much. It is at least Enough.
	Most Cost
	// Part takes no more than a fair part of what the siblings share.
	Part bool
	// Keep: it is reserved for later, and nobody waits for it to be given back.
	Keep bool
	// Instead is a reservation that is given back for it; not on an error.
	Instead *Budget
}

// Reserve takes c out of b and every node above, or nothing. The error is
// BUDGET_EXCEEDED with the limit in the way, its value, and who set it. What is
// returned is a budget of its own that holds c, until Settle.
func (b *Budget) Reserve(c Cost) (*Budget, error) {
	r, _, err := b.take(Want{Least: c, Enough: c, Most: c})
	return r, err
}

// Acquire is Reserve of as much as there is of what is wanted. It waits, until
// ctx ends, as long as others hold what they may give back.
func (b *Budget) Acquire(ctx context.Context, w Want) (*Budget, error) {
	for {
		r, freed, err := b.take(w)
		if freed == nil {
			return r, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take reserves. With an error there may be a channel: the end of what can be waited for.
func (b *Budget) take(w Want) (*Budget, <-chan struct{}, error) {
	if b == nil {
		return nil, nil, nil
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	given := w.Instead.drop()
	free, later, part := b.left()
	if w.Part {
		free, later = free.min(part), later.min(part)
	}
	c := w.Most.min(free)
	if !c.Covers(w.Enough) && (later != free || !c.Covers(w.Least)) {
		if given {
			w.Instead.settled = false
			w.Instead.hold()
		}
		if later != free && later.Covers(w.Least) {
			return nil, b.tree.wait(), b.exceeded(w.Least)
		}
		return nil, nil, b.exceeded(w.Least)
	}
	r := &Budget{tree: b.tree, parent: b, limit: c, share: 1, reserved: true, kept: w.Keep}
	r.hold()
	if given {
		b.tree.tell()
	}
	return r, nil, nil
}

// Room returns BUDGET_EXCEEDED where c is not left, also when all is given back
// that is reserved for what is under way.
func (b *Budget) Room(c Cost) error {
	if b == nil {
		return nil
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	if _, later, _ := b.left(); !later.Covers(c) {
		return b.exceeded(c)
	}
	return nil
}

// left is what can be reserved now, what could be once all that others hold is
// given back, and what is a fair part of that. The caller holds the lock.
func (b *Budget) left() (free, later, part Cost) {
	free, later, part = NoLimit(), NoLimit(), NoLimit()
	share := int64(1)
	for n := b; n != nil; n = n.parent {
		most := n.limit.minus(n.spent).minus(n.keeps)
		free = free.min(most.minus(n.held.minus(n.keeps)))
		later = later.min(most)
		part = part.min(most.over(share))
		if n.reserved {
			break
		}
		share *= n.share
	}
	return free, later, part
}

// hold marks what b reserves as held in all that it is reserved in. The caller
// holds the lock.
func (b *Budget) hold() {
	for n := range b.above {
		c := n.limited(b.limit)
		n.held = n.held.plus(c)
		if b.kept {
			n.keeps = n.keeps.plus(c)
		}
	}
}

// drop is the end of hold, once; it reports whether this was it. The caller
// holds the lock.
func (b *Budget) drop() bool {
	if b == nil || !b.reserved || b.settled {
		return false
	}
	b.settled = true
	for n := range b.above {
		c := n.limited(b.limit)
		n.held = n.held.minus(c)
		if b.kept {
			n.keeps = n.keeps.minus(c)
		}
	}
	return true
}

// above goes through the nodes that b is reserved in, the nearest first.
func (b *Budget) above(yield func(*Budget) bool) {
	for n := b.parent; n != nil && yield(n) && !n.reserved; n = n.parent {
	}
}

// limited is the part of c that b limits: of the rest nothing is held.
func (b *Budget) limited(c Cost) Cost {
	if b.limit.Tokens == Unlimited {
		c.Tokens = 0
	}
	if b.limit.Micros == Unlimited {
		c.Micros = 0
	}
	return c
}

// Settle gives back what b holds and puts on the books what was spent: what is
// given, or what was settled below b where that is more; also what exceeds the
// reservation. A second call changes nothing, and so does one of what is no reservation.
func (b *Budget) Settle(spent Cost) {
	if b == nil || !b.reserved {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	if !b.drop() {
		return
	}
	spent = Cost{max(spent.Tokens, 0), max(spent.Micros, 0)}.max(b.spent)
	for n := range b.above {
		n.spent = n.spent.plus(spent)
	}
	b.tree.tell()
}

// tell wakes who waits for something to be given back. The caller holds the lock.
func (t *tree) tell() {
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// wait returns what is closed when something is given back. The caller holds the lock.
func (t *tree) wait() <-chan struct{} {
	if t.freed == nil {
		t.freed = make(chan struct{})
	}
	return t.freed
}

// Reserved is what b holds; of what is no reservation its limit.
func (b *Budget) Reserved() Cost {
	if b == nil {
		return NoLimit()
	}
	return b.limit
}

// Envelope is what b may spend, as another server is told it; nil is no limit.
func (b *Budget) Envelope() *teamv1.Limits { return LimitsOf(b.Reserved()) }

// LimitsOf writes a cost as limits; nil is no limit.
func LimitsOf(c Cost) *teamv1.Limits {
	if c == NoLimit() {
		return nil
	}
	l := &teamv1.Limits{}
	if tokens := c.Tokens; tokens != Unlimited {
		l.MaxTokens = &tokens
	}
	if c.Micros != Unlimited {
		usd := float64(c.Micros) / 1e6
		l.MaxCost = &usd
	}
	return l
}

// Left is what can be reserved at this moment.
func (b *Budget) Left() Cost {
	if b == nil {
		return NoLimit()
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	free, _, _ := b.left()
	return free
}

// Spent is what b has on its books: of b and everything below, settled.
func (b *Budget) Spent() Cost {
	if b == nil {
		return Cost{}
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return b.spent
}

// Details of the error of a limit that binds what is below it.
const (
	// DetailLimit is which limit it is: max_tokens, max_cost, max_steps and so on.
	DetailLimit = "limit"
	// DetailValue is the limit's value: tokens, USD, or a count.
	DetailValue = "value"
	// DetailSetBy is the path of the agent whose limit it is, or SetByCaller.
	DetailSetBy = "set_by"
	// SetByCaller: the limit is what the caller has left.
	SetByCaller = "caller"
)

// exceeded is the error of what cannot be reserved. The caller holds the lock.
func (b *Budget) exceeded(c Cost) *Error {
	at, tokens := b, true
	for n := b; n != nil; n = n.parent {
		free := n.limit.minus(n.spent).minus(n.held)
		if !free.Covers(c) {
			at, tokens = n, c.Tokens > free.Tokens
			break
		}
		if n.reserved {
			break
		}
	}
	name, value, need, gone := "max_cost", dollars(at.limit.Micros), dollars(c.Micros), dollars(plus(at.spent.Micros, at.held.Micros))
	unit := " USD"
	if tokens {
		name, unit = "max_tokens", " tokens"
		value, need, gone = count(at.limit.Tokens), count(c.Tokens), count(plus(at.spent.Tokens, at.held.Tokens))
	}
	by, whose := at.setBy, "limits."+name+" of "+strconv.Quote(at.setBy)
	if by == "" {
		by, whose = SetByCaller, "what the caller has left ("+name+")"
	}
	return Errorf(CodeInternal, ReasonBudgetExceeded, "the budget does not cover what comes next: %s is %s%s, %s of it are spent or reserved, and %s are needed",
		whose, value, unit, gone, need).With(DetailLimit, name).With(DetailValue, value).With(DetailSetBy, by)
}

// Binds reports whether err is that of a budget, or of counted steps, turns or
// delegations, whose limit holds for the agent at path as a whole: its own, one
// above, or its caller's. Not set: for the agent it is a failure of a member like
// others.
func Binds(err *Error, path string) bool {
	if err == nil {
		return false
	}
	switch err.Reason {
	case ReasonBudgetExceeded, ReasonMaxIterations, ReasonMaxDelegations:
	default:
		return false
	}
	by := err.Details[DetailSetBy]
	return by == SetByCaller || by != "" && (by == path || strings.HasPrefix(path, by+"/"))
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// dollars writes millionths of a USD as USD.
func dollars(micros int64) string {
	s := strconv.FormatInt(micros%1e6, 10)
	s = strconv.FormatInt(micros/1e6, 10) + "." + strings.Repeat("0", 6-len(s)) + s
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
