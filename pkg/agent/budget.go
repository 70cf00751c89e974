package agent

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

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
		c.Micros = microsOf(l.GetMaxCost())
	}
	return c
}

// microsOf converts USD to millionths of a USD, rounded to the nearest. Amounts that exceed an
// int64 become Unlimited; NaN and negative amounts become 0.
func microsOf(usd float64) int64 {
	switch m := math.Round(usd * 1e6); {
	case !(m > 0): // also NaN
		return 0
	case m >= math.MaxInt64:
		return Unlimited
	default:
		return int64(m)
	}
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

// minus returns what remains of c after d, at least 0. An unlimited amount remains unlimited.
func (c Cost) minus(d Cost) Cost {
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

// in returns the tokens of c, or its money in millionths of a USD.
func (c Cost) in(tokens bool) int64 {
	if tokens {
		return c.Tokens
	}
	return c.Micros
}

// over returns the n-th part of c. An unlimited amount remains unlimited.
func (c Cost) over(n int64) Cost {
	if c.Tokens != Unlimited {
		c.Tokens /= n
	}
	if c.Micros != Unlimited {
		c.Micros /= n
	}
	return c
}

// Budget limits the tokens and the money that an agent and everything below it may spend. Budgets
// form a tree, which belongs to one root task: what is spent below a node is counted in the node
// and all nodes above. Before work begins, its maximum cost is reserved in all these nodes; after
// it has ended, Settle replaces the reservation with what was really spent. Steps that run in
// parallel therefore cannot together exceed a limit. A nil *Budget has no limit. It is safe for
// concurrent use.
type Budget struct {
	tree   *tree
	parent *Budget
	setBy  string // path of the agent that set the limit; empty for the caller of the run
	scope  string // in which the limit applies
	limit  Cost
	source Source // from which the limit is raised as needed; nil if it is not
	share  int64  // number of siblings that share the parent's budget

	reserved bool     // the limit is reserved in the parent, so nodes above are not checked
	kept     bool     // reserved for later work; Acquire does not wait for its release
	by       string   // path of the agent that a reservation is for
	asks     bool     // people may raise the limit
	roles    []string // roles of those people; empty means the owner of the task
	settled  bool     // guarded by tree.mu

	entry  AccountHold // reservation in the account; nil if nothing is reserved there
	traded *Budget     // reservation given up for this one, until the account has granted it; nil if none was given up

	spent   Cost            // settled for this node and below; guarded by tree.mu
	spentBy map[string]Cost // spent, by the path of the agent; only if asks is set; guarded by tree.mu
	held    Cost            // reserved for work below that has not been settled; guarded by tree.mu
	keeps   Cost            // the part of held with kept set; guarded by tree.mu
}

// tree holds what all nodes of a tree of budgets share.
type tree struct {
	account Account // nil if the account has no limits

	mu    sync.Mutex
	freed chan struct{} // closed at the next release; nil if nothing waits; guarded by mu
}

// NewBudget returns the root of a tree of budgets. setBy is the path of the agent that set the
// limit, or empty if the caller of the run did. spent is what was spent before.
func NewBudget(setBy string, limit, spent Cost) *Budget {
	return &Budget{tree: &tree{}, setBy: setBy, limit: limit, share: 1, spent: spent}
}

// Source is where a run that another one has caused takes what it needs from the budgets that it shares with
// all runs of the same message. It is safe for concurrent use.
type Source interface {
	// Draw takes w.Most from the shared budgets, or as much of it as they have, at least w.Least. With w.Part
	// it takes no more than a part of what they have, but not less than w.Least. If other runs hold what is
	// missing, it waits for a limited time if wait is set. The error is BUDGET_EXCEEDED, the cause of ctx, or
	// that of the store. Other fields of w are not used.
	Draw(ctx context.Context, w Want, wait bool) (Cost, error)
	// Left returns about how much could be taken now, without reading the store. What is not limited is
	// Unlimited.
	Left() Cost
}

// stricter returns the smaller one of a limit, nil if there is none, and another one.
func stricter(limit *int64, n int64) *int64 {
	if n == Unlimited || limit != nil && *limit < n {
		return limit
	}
	return &n
}

// From makes s the source from which the limit of the root b is raised as needed, and returns b. It must be
// called before b is used.
func (b *Budget) From(s Source) *Budget {
	b.source = s
	return b
}

// At returns b, whose limit applies in a scope of the run. It must be called before b is used.
func (b *Budget) At(scope string) *Budget {
	b.scope = scope
	return b
}

// Shared returns the limits of b and of the nodes above it that apply to everything that is begun in b, also to
// what outlives the run; outermost first. The limit of a root with a source is not included.
func (b *Budget) Shared() []*teamv1.SharedBudget {
	if b == nil {
		return nil
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	var list []*teamv1.SharedBudget
	for n := b; n != nil && !n.reserved && n.source == nil; n = n.parent {
		if n.limit == NoLimit() {
			continue
		}
		if len(list) == 0 || list[len(list)-1].GetScope() != n.scope {
			list = append(list, &teamv1.SharedBudget{Scope: n.scope, SetBy: n.setBy})
		}
		s := list[len(list)-1] // a team and its caller may both limit the same work
		s.MaxTokens, s.MaxCostMicros = stricter(s.MaxTokens, n.limit.Tokens), stricter(s.MaxCostMicros, n.limit.Micros)
	}
	slices.Reverse(list)
	return list
}

// Child returns a new node below b with its own limit, or a root if b is nil. spent is what was
// spent by the child before; it must be included in what b has spent already.
func (b *Budget) Child(setBy string, limit, spent Cost) *Budget {
	if b == nil {
		return NewBudget(setBy, limit, spent)
	}
	return &Budget{tree: b.tree, parent: b, setBy: setBy, limit: limit, share: 1, spent: spent}
}

// Holding returns b, in which c is reserved from the beginning: for work that an earlier process began
// and that continues. Resume takes it over. Holding must be called before b is used.
func (b *Budget) Holding(c Cost) *Budget {
	if b != nil {
		b.held = b.limited(Cost{max(c.Tokens, 0), max(c.Micros, 0)})
	}
	return b
}

// Asking returns b, to whose limit people with one of the roles may grant more; without roles it is the
// owner of the task who may. spentBy is what was spent before, by the path of the agent that spent it.
// Asking must be called before b is used. It takes ownership of spentBy, which must not be nil.
func (b *Budget) Asking(roles []string, spentBy map[string]Cost) *Budget {
	b.asks, b.roles, b.spentBy = true, roles, spentBy
	return b
}

// Grant raises the limit of b by what people have granted, and wakes all calls of Acquire that wait.
func (b *Budget) Grant(grant *teamv1.Spent) {
	c := CostOf(grant)
	if b == nil || c == (Cost{}) {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.limit = b.limit.Plus(c)
	b.tree.tell()
}

// Resume returns a reservation of c in place of the same amount that b and all nodes above hold from
// the beginning, for the agent at the path by. The caller must end it with Settle.
func (b *Budget) Resume(c Cost, by string) *Budget {
	if b == nil {
		return nil
	}
	r := &Budget{tree: b.tree, parent: b, limit: c, share: 1, reserved: true, by: by} // it is held already
	if a := b.account(); a != nil {
		r.entry = a.Resume(c)
	}
	return r
}

// Among returns a node for one of n steps that run in parallel. A reservation made in it with
// Want.Part set takes at most the n-th part of what is available. It returns b if b is nil or n
// is less than 2.
func (b *Budget) Among(n int) *Budget {
	if b == nil || n < 2 {
		return b
	}
	return &Budget{tree: b.tree, parent: b, limit: NoLimit(), share: int64(n)}
}

type budgetKey struct{}

// WithBudget returns a context whose work is limited by b.
func WithBudget(ctx context.Context, b *Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// BudgetOf returns the Budget that limits the work of ctx, or nil if there is no limit.
func BudgetOf(ctx context.Context) *Budget {
	b, _ := ctx.Value(budgetKey{}).(*Budget)
	return b
}

// Want says how much Acquire reserves. Least must be at most Enough, and Enough at most Most.
type Want struct {
	// Least is the minimum. If it cannot be reserved, and would not be available after others
	// release their reservations, Acquire fails.
	Least Cost
	// Enough is the amount for which Acquire waits, as long as others hold reservations that they
	// may release. Without such reservations it reserves Least at once.
	Enough Cost
	// Most is the maximum, which is reserved if it is available.
	Most Cost
	// Part limits the reservation to a fair part of what is available to all siblings, but not to
	// less than Least; see Among.
	Part bool
	// Keep says that the reservation is for later work, so that Acquire does not wait for its
	// release.
	Keep bool
	// By is the path of the agent that the reservation is for.
	By string
	// Instead is a reservation that is released in exchange for the new one. If Acquire fails, it
	// is kept.
	Instead *Budget
}

// Reserve reserves c in b and all nodes above, or nothing. It does not wait. If c is not
// available, the error has the reason BUDGET_EXCEEDED and, in its Details, the limit that was
// reached, its value and who set it. The result is a budget of its own with the limit c, which
// the caller must end with Settle. It does not reserve in the account, see Under.
func (b *Budget) Reserve(c Cost) (*Budget, error) {
	r, _, err := b.take(Want{Least: c, Enough: c, Most: c})
	return r, err
}

// Acquire reserves as much of w as is available; see Want. It waits while others hold
// reservations that they may release, until ctx ends; then it returns the cause of ctx. Otherwise
// it is like Reserve. What the tree has is then also reserved in the account, if it has limits; the
// error may be that of Account.Reserve.
func (b *Budget) Acquire(ctx context.Context, w Want) (*Budget, error) {
	for wait := false; ; {
		short, err := b.draw(ctx, w, wait)
		if err != nil {
			return nil, err
		}
		r, freed, err := b.take(w)
		switch {
		case freed != nil:
		case err != nil && short != nil && !wait: // nothing of this run will be released
			wait = true
			continue
		case err != nil && short != nil:
			return nil, short
		case r == nil || err != nil:
			return nil, err
		default:
			return b.reserveInAccount(ctx, r, w)
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// draw raises the limit of the root from its source, if it has one and has less left than w. short says that
// the source has less than the minimum, after a time if wait is set.
func (b *Budget) draw(ctx context.Context, w Want, wait bool) (short *Error, err error) {
	root := b.drawing()
	if root == nil {
		return nil, nil
	}
	root.tree.mu.Lock()
	free := root.limit.minus(root.spent).minus(root.held)
	if w.Instead != nil && w.Instead.reserved && !w.Instead.settled {
		free = free.Plus(w.Instead.limit.Min(root.held))
	}
	root.tree.mu.Unlock()
	need := Want{Least: w.Least.minus(free), Most: w.Most.minus(free), Part: w.Part}
	if need.Most == (Cost{}) {
		return nil, nil
	}
	c, err := root.source.Draw(ctx, need, wait)
	switch e := (*Error)(nil); {
	case errors.As(err, &e) && e.Reason == ReasonBudgetExceeded:
		return e, nil
	case err != nil:
		return nil, err
	}
	root.tree.mu.Lock()
	defer root.tree.mu.Unlock()
	root.limit = root.limit.Plus(Cost{limitedAmount(c.Tokens), limitedAmount(c.Micros)})
	return nil, nil
}

func limitedAmount(n int64) int64 {
	if n == Unlimited {
		return 0
	}
	return n
}

// drawing returns the root of b if its limit is raised from a source, and b is not below a reservation.
func (b *Budget) drawing() *Budget {
	for n := b; n != nil && !n.reserved; n = n.parent {
		if n.source != nil {
			return n
		}
	}
	return nil
}

// take reserves w or returns an error. If the returned channel is not nil, the error is
// temporary: the caller may wait until the channel is closed and try again.
func (b *Budget) take(w Want) (*Budget, <-chan struct{}, error) {
	if b == nil {
		return nil, nil, nil
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	given := w.Instead.drop()
	free, later, part := b.left()
	if w.Part {
		part = part.Max(w.Least)
		free, later = free.Min(part), later.Min(part)
	}
	c := w.Most.Min(free)
	if !c.Covers(w.Enough) && (later != free || !c.Covers(w.Least)) {
		if given {
			w.Instead.restore()
		}
		if later != free && later.Covers(w.Least) {
			return nil, b.tree.wait(), b.exceeded(w.Least)
		}
		return nil, nil, b.exceeded(w.Least)
	}
	r := &Budget{tree: b.tree, parent: b, limit: c, share: 1, reserved: true, kept: w.Keep, by: w.By}
	r.hold()
	if given {
		r.traded = w.Instead
		b.tree.tell()
	}
	return r, nil, nil
}

// Room returns a BUDGET_EXCEEDED error if c would not be available even after all temporary
// reservations were released. It reserves nothing. If the root has a source, what that has is known only when
// it is drawn, and Room returns nil.
func (b *Budget) Room(c Cost) error {
	if b == nil {
		return nil
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	if _, later, _ := b.left(); !later.Covers(c) && b.drawing() == nil {
		return b.exceeded(c)
	}
	return nil
}

// left returns three amounts: free can be reserved now, later could be reserved if all temporary
// reservations were released, and part is the fair part of later for one of the siblings. The
// caller holds tree.mu.
func (b *Budget) left() (free, later, part Cost) {
	free, later, part = NoLimit(), NoLimit(), NoLimit()
	share := int64(1)
	for n := b; n != nil; n = n.parent {
		most := n.limit.minus(n.spent).minus(n.keeps)
		free = free.Min(most.minus(n.held.minus(n.keeps)))
		later = later.Min(most)
		part = part.Min(most.over(share))
		if n.reserved {
			break
		}
		share *= n.share
	}
	return free, later, part
}

// hold adds the reservation b to all nodes that it is reserved in. The caller holds tree.mu.
func (b *Budget) hold() {
	for n := range b.above {
		c := n.limited(b.limit)
		n.held = n.held.Plus(c)
		if b.kept {
			n.keeps = n.keeps.Plus(c)
		}
	}
}

// drop undoes hold and marks b as settled. It returns false if b is not a reservation or is
// settled already. The caller holds tree.mu.
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

// restore undoes drop. It does nothing if b is nil. The caller holds tree.mu.
func (b *Budget) restore() {
	if b != nil {
		b.settled = false
		b.hold()
	}
}

// above iterates over the nodes that b is reserved in, from the nearest upwards.
func (b *Budget) above(yield func(*Budget) bool) {
	for n := b.parent; n != nil && yield(n) && !n.reserved; n = n.parent {
	}
}

// limited returns c without the amounts that b does not limit: those are not counted as held.
func (b *Budget) limited(c Cost) Cost {
	if b.limit.Tokens == Unlimited {
		c.Tokens = 0
	}
	if b.limit.Micros == Unlimited {
		c.Micros = 0
	}
	return c
}

// Settle ends the reservation b: it releases the reserved amount and adds what was spent to all
// nodes above. That is spent, or the sum of what was settled below b if that is more; it may
// exceed the reservation. Further calls do nothing, and neither do calls on a budget that is not
// a reservation.
func (b *Budget) Settle(spent Cost) { b.settle(spent, false) }

// HandOver ends the reservation b like Settle, because a task of its own may spend c. That task
// reserves in the account what it spends, so nothing is booked there for b.
func (b *Budget) HandOver(c Cost) { b.settle(c, true) }

func (b *Budget) settle(spent Cost, elsewhere bool) {
	if b == nil || !b.reserved {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	if !b.drop() {
		return
	}
	spent = Cost{max(spent.Tokens, 0), max(spent.Micros, 0)}.Max(b.spent)
	for n := range b.above {
		n.spent = n.spent.Plus(spent)
		if n.asks && spent != (Cost{}) {
			n.spentBy[b.by] = n.spentBy[b.by].Plus(spent)
		}
	}
	b.tree.tell()
	switch {
	case b.entry == nil:
	case elsewhere:
		b.entry.Settle(Cost{})
	default:
		b.entry.Settle(spent)
	}
}

// tell wakes all calls of Acquire that wait for a release. The caller holds t.mu.
func (t *tree) tell() {
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// wait returns a channel that is closed at the next release. The caller holds t.mu.
func (t *tree) wait() <-chan struct{} {
	if t.freed == nil {
		t.freed = make(chan struct{})
	}
	return t.freed
}

// Reserved returns the amount that b reserves; for a budget that is not a reservation, its limit.
func (b *Budget) Reserved() Cost {
	if b == nil {
		return NoLimit()
	}
	return b.limit
}

// Envelope returns what b may spend, in the form that is sent to other servers. Nil means no
// limit.
func (b *Budget) Envelope() *teamv1.Limits { return LimitsOf(b.Reserved()) }

// LimitsOf returns c as limits. It returns nil if c limits nothing.
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

// Left returns the amount that can be reserved at the moment.
func (b *Budget) Left() Cost {
	if b == nil {
		return NoLimit()
	}
	most := NoLimit()
	if a := b.account(); a != nil {
		most = a.Left()
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	free, _, _ := b.left()
	if root := b.drawing(); root != nil {
		limit := root.limit
		root.limit = limit.Plus(root.source.Left())
		free, _, _ = b.left()
		root.limit = limit
	}
	return free.Min(most)
}

// Drawn returns what b, a root, has left of its limit as it is now, without what a source may add.
func (b *Budget) Drawn() Cost {
	if b == nil {
		return NoLimit()
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	free, _, _ := b.left()
	return free
}

// Spent returns what was spent by b and everything below it and has been settled.
func (b *Budget) Spent() Cost {
	if b == nil {
		return Cost{}
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return b.spent
}

// Keys in the Details of an error that reports an exceeded limit, and values of them.
const (
	// DetailLimit is the key of the limit's name, such as max_tokens, max_cost or max_steps.
	DetailLimit = "limit"
	// DetailValue is the key of the limit's value: tokens, USD, or a count.
	DetailValue = "value"
	// DetailSetBy is the key of the path of the agent that set the limit, or of SetByCaller.
	DetailSetBy = "set_by"
	// DetailAccount is the key of the account, if the limit is one of an account. DetailPrincipal is that
	// of the principal, if it is one of each principal of the account.
	DetailAccount   = "account"
	DetailPrincipal = "principal"
	// LimitMaxTokens and LimitMaxCost are the values of DetailLimit for the limits of a budget.
	LimitMaxTokens = "max_tokens"
	LimitMaxCost   = "max_cost"
	// SetByCaller is the value of DetailSetBy if the limit is what the caller's budget has left.
	SetByCaller = "caller"
)

// exceeded returns the error for an amount that cannot be reserved in b, because of the limit of a
// node. It names the nearest such node that people cannot grant more to; without one, the nearest that
// they can, and then the cause of the error is a *Shortfall. The caller holds tree.mu.
func (b *Budget) exceeded(c Cost) *Error {
	held := func(n *Budget) Cost { return n.keeps }
	at := b.short(c, held)
	if at == nil { // only until others release their reservations
		held = func(n *Budget) Cost { return n.held }
		at = b.short(c, held)
	}
	if at == nil {
		at = b
	}
	tokens := !at.limit.minus(at.spent).minus(held(at)).Covers(Cost{Tokens: c.Tokens})
	return at.shortfall(c, tokens)
}

// short returns the node whose limit prevents a reservation of c in b, if of what is held the amounts
// held stay; see exceeded. It returns nil if no limit does. The caller holds tree.mu.
func (b *Budget) short(c Cost, held func(*Budget) Cost) *Budget {
	var at *Budget
	for n := b; n != nil; n = n.parent {
		if !n.limit.minus(n.spent).minus(held(n)).Covers(c) && (at == nil || at.asks && !n.asks) {
			at = n
		}
		if n.reserved {
			break
		}
	}
	return at
}

// shortfall returns the error that the limit of b, that of tokens or of money, does not cover c. The
// caller holds tree.mu.
func (b *Budget) shortfall(c Cost, tokens bool) *Error {
	name, format, unit := LimitMaxCost, Dollars, " USD"
	if tokens {
		name, format, unit = LimitMaxTokens, count, " tokens"
	}
	of := func(c Cost) int64 { return c.in(tokens) }
	by, whose := b.setBy, "limits."+name+" of "+strconv.Quote(b.setBy)
	if by == "" {
		by, whose = SetByCaller, "what the caller has left ("+name+")"
	}
	value := format(of(b.limit))
	e := Errorf(CodeInternal, ReasonBudgetExceeded, "the budget does not cover what comes next: %s is %s%s, %s of it are spent or reserved, and %s are needed",
		whose, value, unit, format(plus(of(b.spent), of(b.held))), format(of(c))).With(DetailLimit, name).With(DetailValue, value).With(DetailSetBy, by)
	if !b.asks {
		return e
	}
	r := &teamv1.BudgetRequest{Limit: name, SetBy: b.setBy, Value: of(b.limit), Spent: of(b.spent), Reserved: of(b.held), Least: of(c)}
	for path, spent := range b.spentBy {
		if n := of(spent); n > 0 {
			if r.SpentBy == nil {
				r.SpentBy = map[string]int64{}
			}
			r.SpentBy[path] = n
		}
	}
	return e.Because(&Shortfall{Request: r, Roles: b.roles})
}

// Binds reports whether err is about a limit that holds for the agent at path as a whole: the
// agent's own, one above it, the caller's, or the account's. The agent then cannot continue. If Binds returns
// false, err is, for the agent, like any other failure of a member. It considers the limits on
// the budget, steps, turns and delegations, but not on hand-offs.
func Binds(err *Error, path string) bool {
	if err == nil {
		return false
	}
	by := err.Details[DetailSetBy]
	switch err.Reason {
	case ReasonBudgetExceeded, ReasonMaxIterations, ReasonMaxDelegations:
	case ReasonAccountLimit:
		return by == SetByAccount
	default:
		return false
	}
	return by == SetByCaller || by != "" && (by == path || strings.HasPrefix(path, by+"/"))
}

// count formats n as a decimal number.
func count(n int64) string { return strconv.FormatInt(n, 10) }

// Dollars formats an amount of millionths of a USD as USD, without trailing zeros.
func Dollars(micros int64) string {
	s := strconv.FormatInt(micros%1e6, 10)
	s = strconv.FormatInt(micros/1e6, 10) + "." + strings.Repeat("0", 6-len(s)) + s
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
