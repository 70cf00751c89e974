package account

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// Shares stores what runs hold and have spent of the budgets that they share, see teamv1.SharedBudget.
// Stores implement it. It is safe for concurrent use, by several processes if the store is.
type Shares interface {
	// ChangeShare replaces the part of a run by what change returns, in one transaction, and returns it
	// and what the other runs hold and have spent. The run that has the limit holds all of it until its
	// part is first changed. change may be called more than once. The error is agent.ErrFenced if an owner
	// of the run with a later epoch has changed its part.
	ChangeShare(ctx context.Context, of Share, change func(own, others Part) Part) (own, others Part, err error)
}

// Share identifies the part of a run in a shared budget, and the owner that writes it.
type Share struct {
	Task, Scope string     // of the budget
	Limit       agent.Cost // of the budget
	Run         string     // id of the root task of the run
	Epoch       int64      // epoch of its claim; 0 for a run that has not been claimed
}

// Part is what runs hold and have spent of a shared budget.
type Part struct{ Held, Spent agent.Cost }

// First returns the part of the run that has the limit before it is changed.
func (s Share) First() Part { return Part{Held: counted(s.Limit)} }

// Plus returns the sum of two parts.
func (p Part) Plus(q Part) Part { return Part{p.Held.Plus(q.Held), p.Spent.Plus(q.Spent)} }

// Purse is what a run may spend of the budgets that it shares with other runs of its message. What it may
// spend of the budgets that it was caused in has to be drawn, from what the other runs have left. Its own
// budgets, which begin with it, are its own until it ends, except the parts that it gives to tasks that it
// begins. A nil *Purse shares nothing. It is safe for concurrent use.
type Purse struct {
	o       PurseOpening
	changes chan struct{} // semaphore: held while parts are changed

	mu    sync.Mutex
	drawn agent.Cost            // altogether, with what was given away; guarded by mu
	ended map[string]agent.Cost // what the run had spent when it ended before, by the key of the budget; guarded by mu
	left  agent.Cost            // what could be drawn when the store was last asked; guarded by mu
	given map[string]given      // by the id of the task; guarded by mu
}

// given is the part of a task that the run has begun, and the run's own budgets that it is taken from.
type given struct {
	part agent.Cost
	own  []*teamv1.SharedBudget
}

// PurseOpening says how an owner opens the purse of its run.
type PurseOpening struct {
	Shares Shares
	Run    string
	Epoch  int64
	// Agent is the id of the agent of the run.
	Agent string
	// Inherited are the budgets that the run was caused in, outermost first.
	Inherited []*teamv1.SharedBudget
	// Recorded are the recorded events of the run.
	Recorded []*teamv1.Event
	// Fail stops the drive because the store cannot be written, and returns the error for the work that
	// meets it.
	Fail func(error) error
}

// OpenPurse opens the purse of a run. What the run held when it ended before is not its own any more: it may
// have to end again after a crash, and draws what it needs for that.
func OpenPurse(ctx context.Context, o PurseOpening) (*Purse, error) {
	p := &Purse{
		o: o, changes: make(chan struct{}, 1), given: map[string]given{}, ended: map[string]agent.Cost{}, drawn: agent.NoLimit(), left: agent.NoLimit(),
	}
	for _, ev := range o.Recorded {
		if s := ev.GetSpawned(); s != nil {
			p.given[s.GetTaskId()] = given{agent.CostOf(s.GetBudget()), s.GetBudgets()}
		}
	}
	for _, b := range p.Chain(p.ownBudgets()) {
		own, others, err := o.Shares.ChangeShare(ctx, p.share(b), func(own, _ Part) Part { return own })
		if err != nil {
			return nil, err
		}
		if own.Spent != (agent.Cost{}) {
			p.ended[keyOf(b)] = own.Spent
		}
		if had := own.Held.Plus(own.Spent).Plus(p.gave(b)); !p.isOwn(b) {
			p.drawn, p.left = p.drawn.Min(within(b, had)), p.left.Min(leftOf(b, own, others))
		} else if b.GetScope() == "" && own.Spent != (agent.Cost{}) {
			p.drawn = p.drawn.Min(within(b, had))
		}
	}
	return p, nil
}

func keyOf(b *teamv1.SharedBudget) string { return agent.ChildTask(b.GetTaskId(), b.GetScope()) }

// isOwn reports whether a budget begins with the run.
func (p *Purse) isOwn(b *teamv1.SharedBudget) bool { return b.GetTaskId() == p.o.Run }

// gave returns what the run has given away of a budget. The caller holds mu, or is the only user.
func (p *Purse) gave(b *teamv1.SharedBudget) (c agent.Cost) {
	for _, g := range p.given {
		if !p.isOwn(b) || slices.ContainsFunc(g.own, func(o *teamv1.SharedBudget) bool { return keyOf(o) == keyOf(b) }) {
			c = c.Plus(g.part)
		}
	}
	return c
}

// Limit returns what the run may spend, with what it has spent and given away: what it has drawn of the
// budgets that it was caused in. What they do not limit is Unlimited.
func (p *Purse) Limit() agent.Cost {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn
}

// Left returns about how much could be drawn.
func (p *Purse) Left() agent.Cost {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// limitOf returns the limit of a shared budget.
func limitOf(b *teamv1.SharedBudget) agent.Cost {
	c := agent.NoLimit()
	if b.MaxTokens != nil {
		c.Tokens = b.GetMaxTokens()
	}
	if b.MaxCostMicros != nil {
		c.Micros = b.GetMaxCostMicros()
	}
	return c
}

// within returns c, in which what b does not limit is Unlimited.
func within(b *teamv1.SharedBudget, c agent.Cost) agent.Cost {
	if b.MaxTokens == nil {
		c.Tokens = agent.Unlimited
	}
	if b.MaxCostMicros == nil {
		c.Micros = agent.Unlimited
	}
	return c
}

// leftOf returns what can be drawn of b.
func leftOf(b *teamv1.SharedBudget, own, others Part) agent.Cost {
	all := own.Plus(others)
	return free(limitOf(b), all.Spent, all.Held, agent.Cost{})
}

func (p *Purse) share(b *teamv1.SharedBudget) Share {
	return Share{Task: b.GetTaskId(), Scope: b.GetScope(), Limit: limitOf(b), Run: p.o.Run, Epoch: p.o.Epoch}
}

// lock acquires the right to change parts. The error is the cause of ctx.
func (p *Purse) lock(ctx context.Context) error {
	select {
	case p.changes <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Purse) unlock() { <-p.changes }

// Draw implements spending.Source. If the other runs hold what is missing, it waits for a limited time if wait
// is set.
func (p *Purse) Draw(ctx context.Context, w spending.Want, wait bool) (agent.Cost, error) {
	until := time.Now().Add(maxWait)
	for {
		c, short, err := p.draw(ctx, w)
		if short == nil || err != nil {
			return c, err
		}
		if !wait || !short.later || !time.Now().Before(until) {
			return agent.Cost{}, short.exceeded(p.o.Agent, w.Least)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return agent.Cost{}, context.Cause(ctx)
		}
	}
}

// shortage says that a budget does not have what a run wants to draw.
type shortage struct {
	of    *teamv1.SharedBudget
	all   Part
	later bool // it may have it when other runs end
}

// exceeded returns the error for what the agent needs at least.
func (s *shortage) exceeded(id string, need agent.Cost) *agent.Error {
	limit, unit, name, format := limitOf(s.of), " USD", agent.LimitMaxCost, spending.Dollars
	value, spent, held, wants := limit.Micros, s.all.Spent.Micros, s.all.Held.Micros, need.Micros
	if !free(limit, s.all.Spent, s.all.Held, agent.Cost{}).Covers(agent.Cost{Tokens: need.Tokens}) {
		unit, name, format = " tokens", agent.LimitMaxTokens, func(n int64) string { return strconv.FormatInt(n, 10) }
		value, spent, held, wants = limit.Tokens, s.all.Spent.Tokens, s.all.Held.Tokens, need.Tokens
	}
	whose, by := "limits."+name+" of "+strconv.Quote(s.of.GetSetBy()), agent.SetByCaller
	if s.of.GetSetBy() == "" {
		whose = "what the caller has left (" + name + ")"
	}
	if s.of.GetSetBy() == id {
		by = id
	}
	return agent.Errorf(agent.CodeInternal, agent.ReasonBudgetExceeded,
		"the budget does not cover what comes next: %s is %s%s for all that task %s causes, %s of it are spent and %s reserved, and %s are needed",
		whose, format(value), unit, keyOf(s.of), format(spent), format(held), format(wants)).
		With(agent.DetailLimit, name).With(agent.DetailValue, format(value)).With(agent.DetailSetBy, by)
}

// draw draws w of all budgets that the run was caused in, or nothing.
func (p *Purse) draw(ctx context.Context, w spending.Want) (c agent.Cost, short *shortage, err error) {
	if err := p.lock(ctx); err != nil {
		return c, nil, err
	}
	defer p.unlock()
	c = w.Most
	left := agent.NoLimit()
	for _, b := range p.o.Inherited {
		before := c
		own, others, err := p.hold(ctx, b, func(own, others Part) agent.Cost {
			some := leftOf(b, own, others)
			if w.Part {
				some = some.Min(part(some, 2).Max(w.Least))
			}
			if c = before.Min(some); !c.Covers(w.Least) {
				return agent.Cost{}
			}
			return within(b, c)
		})
		if err != nil {
			return c, nil, err
		}
		left = left.Min(leftOf(b, own, others))
		if !c.Covers(w.Least) {
			short = &shortage{of: b, all: own.Plus(others), later: free(limitOf(b), own.Plus(others).Spent, own.Held, agent.Cost{}).Covers(w.Least)}
			c = agent.Cost{}
			break
		}
	}
	p.mu.Lock()
	p.left = left
	p.drawn = agent.Cost{Tokens: more(p.drawn.Tokens, c.Tokens), Micros: more(p.drawn.Micros, c.Micros)}
	p.mu.Unlock()
	if c != w.Most && len(p.o.Inherited) > 1 { // one budget may have granted more than another one
		err = p.write(ctx, p.o.Inherited)
	}
	return c, short, err
}

// more returns a+b. If a is Unlimited, it is that.
func more(a, b int64) int64 {
	if a == agent.Unlimited || b == agent.Unlimited {
		return a
	}
	return a + b
}

// hold writes what the run holds of b: what it has drawn, without what it has given away, and what extra
// returns on top.
func (p *Purse) hold(ctx context.Context, b *teamv1.SharedBudget, extra func(own, others Part) agent.Cost) (own, others Part, err error) {
	had := p.part(b)
	own, others, err = p.o.Shares.ChangeShare(ctx, p.share(b), func(_, others Part) Part {
		return Part{had.Held.Plus(counted(extra(had, others))), had.Spent}
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = p.o.Fail(err)
	}
	return own, others, err
}

// part returns the part of the run in b.
func (p *Purse) part(b *teamv1.SharedBudget) Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	most, gave, spent := p.drawn, p.gave(b), p.ended[keyOf(b)]
	switch {
	case p.isOwn(b) && spent != (agent.Cost{}):
		most = agent.Cost{}
	case p.isOwn(b):
		most = limitOf(b)
	}
	return Part{Held: counted(within(b, free(most, gave, spent, agent.Cost{}))), Spent: spent}
}

// write writes what the run holds of budgets.
func (p *Purse) write(ctx context.Context, budgets []*teamv1.SharedBudget) error {
	for _, b := range budgets {
		if _, _, err := p.hold(ctx, b, func(_, _ Part) agent.Cost { return agent.Cost{} }); err != nil {
			return err
		}
	}
	return nil
}

// Chain returns the budgets of a task that the run begins for a step: those that it was caused in, and own,
// those of the run that limit the step.
func (p *Purse) Chain(own []*teamv1.SharedBudget) []*teamv1.SharedBudget {
	if p == nil {
		return nil
	}
	return slices.Concat(p.o.Inherited, own)
}

// Give gives a part of the budgets to a task that the run is going to begin. What the run itself holds
// becomes less when Gave is called. A second call for the same task does nothing if that has begun.
func (p *Purse) Give(ctx context.Context, task string, c agent.Cost, own []*teamv1.SharedBudget) error {
	if p == nil {
		return nil
	}
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if err := p.write(ctx, own); err != nil { // before the other one holds anything
		return err
	}
	for _, b := range p.Chain(own) {
		s := p.share(b)
		s.Run, s.Epoch = task, 0
		_, _, err := p.o.Shares.ChangeShare(ctx, s, func(_, _ Part) Part { return Part{Held: counted(within(b, c))} })
		if err != nil && !errors.Is(err, agent.ErrFenced) { // fenced: it has begun
			return p.o.Fail(err)
		}
	}
	return nil
}

// TakeBack takes back the part that was given to a task that will not begin.
func (p *Purse) TakeBack(ctx context.Context, task string, own []*teamv1.SharedBudget) error {
	return p.Give(ctx, task, agent.Cost{}, own)
}

// Gave records that a task has begun that was given a part.
func (p *Purse) Gave(ctx context.Context, task string, c agent.Cost, own []*teamv1.SharedBudget) error {
	if p == nil {
		return nil
	}
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	p.mu.Lock()
	p.given[task] = given{c, own}
	p.mu.Unlock()
	return p.write(ctx, p.Chain(own))
}

// Settle writes that the run has ended: it holds nothing more, and has spent what spent returns for a scope.
// It returns the budgets with what all runs hold and have spent.
func (p *Purse) Settle(ctx context.Context, spent func(scope string) agent.Cost) ([]*teamv1.SharedBudget, error) {
	if p == nil {
		return nil, nil
	}
	p.changes <- struct{}{}
	defer p.unlock()
	var list []*teamv1.SharedBudget
	for _, b := range p.Chain(p.ownBudgets()) {
		scope := ""
		if p.isOwn(b) {
			scope = b.GetScope()
		}
		own, others, err := p.o.Shares.ChangeShare(ctx, p.share(b), func(own, _ Part) Part {
			return Part{Spent: own.Spent.Max(saturated(spent(scope)))}
		})
		if err != nil {
			return nil, err
		}
		all := own.Plus(others) // a run holds a part that it gives away for a moment longer
		all.Held = all.Held.Min(free(limitOf(b), all.Spent, agent.Cost{}, agent.Cost{}))
		list = append(list, &teamv1.SharedBudget{
			TaskId: b.GetTaskId(), Scope: b.GetScope(), SetBy: b.GetSetBy(), MaxTokens: b.MaxTokens, MaxCostMicros: b.MaxCostMicros,
			SpentTokens: all.Spent.Tokens, SpentCostMicros: all.Spent.Micros, HeldTokens: all.Held.Tokens, HeldCostMicros: all.Held.Micros,
		})
	}
	return list, nil
}

// ownBudgets returns the budgets of the run of which it has given parts, outermost first.
func (p *Purse) ownBudgets() (list []*teamv1.SharedBudget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.given {
		for _, b := range g.own {
			if !slices.ContainsFunc(list, func(o *teamv1.SharedBudget) bool { return o.GetScope() == b.GetScope() }) {
				list = append(list, b)
			}
		}
	}
	slices.SortFunc(list, func(a, b *teamv1.SharedBudget) int { return strings.Compare(a.GetScope(), b.GetScope()) })
	return list
}
