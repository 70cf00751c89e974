// Package spending says what work may spend, what is reserved for it and what it has spent: budgets as a tree, and the sums of
// recorded events.
package spending

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// partOf returns the n-th part of c. An unlimited amount remains unlimited.
func partOf(c agent.Cost, n int64) agent.Cost {
	if c.Tokens != agent.Unlimited {
		c.Tokens /= n
	}
	if c.Micros != agent.Unlimited {
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
	limit  agent.Cost
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

	spent   agent.Cost            // settled for this node and below; guarded by tree.mu
	spentBy map[string]agent.Cost // spent, by the path of the agent; only if asks is set; guarded by tree.mu
	held    agent.Cost            // reserved for work below that has not been settled; guarded by tree.mu
	keeps   agent.Cost            // the part of held with kept set; guarded by tree.mu
}

// tree holds what all nodes of a tree of budgets share.
type tree struct {
	account Account // nil if the account has no limits

	mu    sync.Mutex
	freed chan struct{} // closed at the next release; nil if nothing waits; guarded by mu
}

// NewBudget returns the root of a tree of budgets. setBy is the path of the agent that set the
// limit, or empty if the caller of the run did. spent is what was spent before.
func NewBudget(setBy string, limit, spent agent.Cost) *Budget {
	return &Budget{tree: &tree{}, setBy: setBy, limit: limit, share: 1, spent: spent}
}

// Source is where a run that another one has caused takes what it needs from the budgets that it shares with
// all runs of the same message. It is safe for concurrent use.
type Source interface {
	// Draw takes w.Most from the shared budgets, or as much of it as they have, at least w.Least. With w.Part
	// it takes no more than a part of what they have, but not less than w.Least. If other runs hold what is
	// missing, it waits for a limited time if wait is set. The error is BUDGET_EXCEEDED, the cause of ctx, or
	// that of the store. Other fields of w are not used.
	Draw(ctx context.Context, w Want, wait bool) (agent.Cost, error)
	// Left returns about how much could be taken now, without reading the store. What is not limited is
	// Unlimited.
	Left() agent.Cost
}

// stricter returns the smaller one of a limit, nil if there is none, and another one.
func stricter(limit *int64, n int64) *int64 {
	if n == agent.Unlimited || limit != nil && *limit < n {
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
		if n.limit == agent.NoLimit() {
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
func (b *Budget) Child(setBy string, limit, spent agent.Cost) *Budget {
	if b == nil {
		return NewBudget(setBy, limit, spent)
	}
	return &Budget{tree: b.tree, parent: b, setBy: setBy, limit: limit, share: 1, spent: spent}
}

// Holding returns b, in which c is reserved from the beginning: for work that an earlier process began
// and that continues. Resume takes it over. Holding must be called before b is used.
func (b *Budget) Holding(c agent.Cost) *Budget {
	if b != nil {
		b.held = b.limited(agent.Cost{Tokens: max(c.Tokens, 0), Micros: max(c.Micros, 0)})
	}
	return b
}

// Asking returns b, to whose limit people with one of the roles may grant more; without roles it is the
// owner of the task who may. spentBy is what was spent before, by the path of the agent that spent it.
// Asking must be called before b is used. It takes ownership of spentBy, which must not be nil.
func (b *Budget) Asking(roles []string, spentBy map[string]agent.Cost) *Budget {
	b.asks, b.roles, b.spentBy = true, roles, spentBy
	return b
}

// Grant raises the limit of b by what people have granted, and wakes all calls of Acquire that wait.
func (b *Budget) Grant(grant *teamv1.Spent) {
	c := agent.CostOf(grant)
	if b == nil || c == (agent.Cost{}) {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.limit = b.limit.Plus(c)
	b.tree.tell()
}

// Resume returns a reservation of c in place of the same amount that b and all nodes above hold from
// the beginning, for the agent at the path by. The caller must end it with Settle.
func (b *Budget) Resume(c agent.Cost, by string) *Budget {
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
	return &Budget{tree: b.tree, parent: b, limit: agent.NoLimit(), share: int64(n)}
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
	Least agent.Cost
	// Enough is the amount for which Acquire waits, as long as others hold reservations that they
	// may release. Without such reservations it reserves Least at once.
	Enough agent.Cost
	// Most is the maximum, which is reserved if it is available.
	Most agent.Cost
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
func (b *Budget) Reserve(c agent.Cost) (*Budget, error) {
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
func (b *Budget) draw(ctx context.Context, w Want, wait bool) (short *agent.Error, err error) {
	root := b.drawing()
	if root == nil {
		return nil, nil
	}
	root.tree.mu.Lock()
	free := root.limit.Minus(root.spent).Minus(root.held)
	if w.Instead != nil && w.Instead.reserved && !w.Instead.settled {
		free = free.Plus(w.Instead.limit.Min(root.held))
	}
	root.tree.mu.Unlock()
	need := Want{Least: w.Least.Minus(free), Most: w.Most.Minus(free), Part: w.Part}
	if need.Most == (agent.Cost{}) {
		return nil, nil
	}
	c, err := root.source.Draw(ctx, need, wait)
	switch e := (*agent.Error)(nil); {
	case errors.As(err, &e) && e.Reason == agent.ReasonBudgetExceeded:
		return e, nil
	case err != nil:
		return nil, err
	}
	root.tree.mu.Lock()
	defer root.tree.mu.Unlock()
	root.limit = root.limit.Plus(agent.Cost{Tokens: limitedAmount(c.Tokens), Micros: limitedAmount(c.Micros)})
	return nil, nil
}

func limitedAmount(n int64) int64 {
	if n == agent.Unlimited {
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
func (b *Budget) Room(c agent.Cost) error {
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
func (b *Budget) left() (free, later, part agent.Cost) {
	free, later, part = agent.NoLimit(), agent.NoLimit(), agent.NoLimit()
	share := int64(1)
	for n := b; n != nil; n = n.parent {
		most := n.limit.Minus(n.spent).Minus(n.keeps)
		free = free.Min(most.Minus(n.held.Minus(n.keeps)))
		later = later.Min(most)
		part = part.Min(partOf(most, share))
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
		n.held = n.held.Minus(c)
		if b.kept {
			n.keeps = n.keeps.Minus(c)
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
func (b *Budget) limited(c agent.Cost) agent.Cost {
	if b.limit.Tokens == agent.Unlimited {
		c.Tokens = 0
	}
	if b.limit.Micros == agent.Unlimited {
		c.Micros = 0
	}
	return c
}

// Settle ends the reservation b: it releases the reserved amount and adds what was spent to all
// nodes above. That is spent, or the sum of what was settled below b if that is more; it may
// exceed the reservation. Further calls do nothing, and neither do calls on a budget that is not
// a reservation.
func (b *Budget) Settle(spent agent.Cost) { b.settle(spent, false) }

// HandOver ends the reservation b like Settle, because a task of its own may spend c. That task
// reserves in the account what it spends, so nothing is booked there for b.
func (b *Budget) HandOver(c agent.Cost) { b.settle(c, true) }

func (b *Budget) settle(spent agent.Cost, elsewhere bool) {
	if b == nil || !b.reserved {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	if !b.drop() {
		return
	}
	spent = agent.Cost{Tokens: max(spent.Tokens, 0), Micros: max(spent.Micros, 0)}.Max(b.spent)
	for n := range b.above {
		n.spent = n.spent.Plus(spent)
		if n.asks && spent != (agent.Cost{}) {
			n.spentBy[b.by] = n.spentBy[b.by].Plus(spent)
		}
	}
	b.tree.tell()
	switch {
	case b.entry == nil:
	case elsewhere:
		b.entry.Settle(agent.Cost{})
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
func (b *Budget) Reserved() agent.Cost {
	if b == nil {
		return agent.NoLimit()
	}
	return b.limit
}

// Envelope returns what b may spend, in the form that is sent to other servers. Nil means no
// limit.
func (b *Budget) Envelope() *teamv1.Limits { return LimitsOf(b.Reserved()) }

// LimitsOf returns c as limits. It returns nil if c limits nothing.
func LimitsOf(c agent.Cost) *teamv1.Limits {
	if c == agent.NoLimit() {
		return nil
	}
	l := &teamv1.Limits{}
	if tokens := c.Tokens; tokens != agent.Unlimited {
		l.MaxTokens = &tokens
	}
	if c.Micros != agent.Unlimited {
		usd := float64(c.Micros) / 1e6
		l.MaxCost = &usd
	}
	return l
}

// Left returns the amount that can be reserved at the moment.
func (b *Budget) Left() agent.Cost {
	if b == nil {
		return agent.NoLimit()
	}
	most := agent.NoLimit()
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
func (b *Budget) Drawn() agent.Cost {
	if b == nil {
		return agent.NoLimit()
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	free, _, _ := b.left()
	return free
}

// Spent returns what was spent by b and everything below it and has been settled.
func (b *Budget) Spent() agent.Cost {
	if b == nil {
		return agent.Cost{}
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return b.spent
}

// exceeded returns the error for an amount that cannot be reserved in b, because of the limit of a
// node. It names the nearest such node that people cannot grant more to; without one, the nearest that
// they can, and then the cause of the error is a *Shortfall. The caller holds tree.mu.
func (b *Budget) exceeded(c agent.Cost) *agent.Error {
	held := func(n *Budget) agent.Cost { return n.keeps }
	at := b.short(c, held)
	if at == nil { // only until others release their reservations
		held = func(n *Budget) agent.Cost { return n.held }
		at = b.short(c, held)
	}
	if at == nil {
		at = b
	}
	tokens := !at.limit.Minus(at.spent).Minus(held(at)).Covers(agent.Cost{Tokens: c.Tokens})
	return at.shortfall(c, tokens)
}

// short returns the node whose limit prevents a reservation of c in b, if of what is held the amounts
// held stay; see exceeded. It returns nil if no limit does. The caller holds tree.mu.
func (b *Budget) short(c agent.Cost, held func(*Budget) agent.Cost) *Budget {
	var at *Budget
	for n := b; n != nil; n = n.parent {
		if !n.limit.Minus(n.spent).Minus(held(n)).Covers(c) && (at == nil || at.asks && !n.asks) {
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
func (b *Budget) shortfall(c agent.Cost, tokens bool) *agent.Error {
	name, format, unit := agent.LimitMaxCost, Dollars, " USD"
	if tokens {
		name, format, unit = agent.LimitMaxTokens, count, " tokens"
	}
	of := func(c agent.Cost) int64 {
		if tokens {
			return c.Tokens
		}
		return c.Micros
	}
	by, whose, next := b.setBy, "limits."+name+" of "+strconv.Quote(b.setBy), "; raise this limit and send the message again"
	if by == "" {
		by, whose, next = agent.SetByCaller, "what the caller has left ("+name+")", ""
	}
	value := format(of(b.limit))
	e := agent.Errorf(agent.CodeInternal, agent.ReasonBudgetExceeded, "the budget does not cover what comes next: %s is %s%s, %s of it are spent or reserved, and %s are needed%s",
		whose, value, unit, format(of(b.spent.Plus(b.held))), format(of(c)), next).With(agent.DetailLimit, name).With(agent.DetailValue, value).With(agent.DetailSetBy, by)
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

// count formats n as a decimal number.
func count(n int64) string { return strconv.FormatInt(n, 10) }

// Dollars formats an amount of millionths of a USD as USD, without trailing zeros.
func Dollars(micros int64) string {
	s := strconv.FormatInt(micros%1e6, 10)
	s = strconv.FormatInt(micros/1e6, 10) + "." + strings.Repeat("0", 6-len(s)) + s
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// Shortfall is the cause of a BUDGET_EXCEEDED error if people may grant what is missing.
type Shortfall struct {
	// Request says which limit was reached. Its Most is not set.
	Request *teamv1.BudgetRequest
	// Roles of the people who may grant more. Empty means the owner of the task.
	Roles []string
}

// Error returns the name of the limit and who has set it. The text is for logs.
func (s *Shortfall) Error() string {
	return s.Request.GetLimit() + " of " + s.Request.GetSetBy() + " may be raised"
}
