package step

import (
	"context"
	"fmt"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Sizes of reservations, in tokens.
const (
	DefaultOutput = 4096 // an answer, if neither the model nor the request sets a maximum
	usefulOutput  = 1024 // an answer; a reservation waits for siblings until it gets this much
	LeastOutput   = 16   // an answer; with less the model is not called
	finalOutput   = 1024 // the answer of the final turn, see NewBudget
)

// minCost is the minCost that must be left of the budget to start a delegation.
var minCost = agent.Cost{Tokens: 1, Micros: 1}

// Budget is the budget of a run, and the part of it that is reserved for the final turn. Safe for
// concurrent use.
type Budget struct {
	budget *agent.Budget
	final  string // name of the final turn; empty if there is none
	meter  meter

	mu      sync.Mutex
	reserve *agent.Budget // reservation for the final turn; nil if there is none; guarded by mu
}

// NewBudget returns a Budget that reserves from b. final is the name of the turn that answers when
// the limit is reached: its cost is reserved from the beginning. If final is empty, nothing is
// reserved for it.
func NewBudget(b *agent.Budget, final string) *Budget { return &Budget{budget: b, final: final} }

// Release gives back the reservation for the final turn. It does nothing for a nil Budget.
func (b *Budget) Release() {
	if b != nil {
		b.setReserve(nil)
	}
}

// cost is the part of the budget that an attempt holds, and what the attempt cost.
type cost struct {
	budget    *agent.Budget // budget that binds the attempt; nil means no limit
	hold      *agent.Budget // reservation of the attempt; nil means none
	maxOutput int64         // maximum number of output tokens; 0 means no limit
	lost      *teamv1.Spent // cost of the last attempt, if its end on record does not include it
}

// budget reserves the maximum cost of an attempt before it, and books the actual cost after it.
func budget(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if err := w.reserve(ctx); err != nil {
			return w.refused(err)
		}
		defer func() { w.cost.hold.Settle(agent.Cost{}) }() // releases the reservation unless settle has done so
		if b := w.cost.budget; b != nil {
			ctx = agent.WithBudget(ctx, b)
		}
		res := next(ctx, w)
		if !res.notStarted {
			w.settle(&res)
		}
		return res
	}
}

// reserve reserves the maximum cost of an attempt before it starts. It waits while siblings may
// still give back parts of their reservations. The error is BUDGET_EXCEEDED, or the cause of ctx.
func (w *Work) reserve(ctx context.Context) (err error) {
	b := w.by.Budget
	switch {
	case b == nil:
		return nil
	case w.Prompt != nil:
		return b.reserveTurn(ctx, w)
	case w.Target.Agent == nil:
		return nil
	case !w.Target.Spends: // its leaves reserve for themselves
		w.cost.budget = b.budget.Among(w.Peers)
		if w.Attempts > 0 {
			return nil
		}
		return w.cost.budget.Room(minCost)
	}
	want := agent.Want{Least: minCost, Enough: minCost, Most: agent.NoLimit(), Part: true}
	if w.Open { // started before a crash: reserve the same part again
		want = agent.Want{Most: b.reservedBefore(w.Reserved)}
	}
	if w.cost.hold, err = b.budget.Among(w.Peers).Acquire(ctx, want); err != nil {
		return err
	}
	w.cost.budget, w.Reserved = w.cost.hold, reservedPart(w.cost.hold.Reserved())
	return nil
}

// reservedPart returns the recorded form of a part of the budget. It counts all tokens as output
// tokens, because the split is not known in advance.
func reservedPart(c agent.Cost) *teamv1.Spent {
	s := &teamv1.Spent{}
	if c.Tokens != agent.Unlimited {
		s.OutputTokens = c.Tokens
	}
	if c.Micros != agent.Unlimited {
		s.CostMicros = c.Micros
	}
	return s
}

// reservedBefore returns the part that an open delegation was given, from its record.
func (b *Budget) reservedBefore(reserved *teamv1.Spent) agent.Cost {
	c, limit := agent.CostOf(reserved), b.budget.Left()
	if limit.Tokens == agent.Unlimited {
		c.Tokens = agent.Unlimited
	}
	if limit.Micros == agent.Unlimited {
		c.Micros = agent.Unlimited
	}
	return c
}

// reserveTurn reserves the cost of a model turn: the upper bound of its prompt, and the longest
// answer that the budget allows.
func (b *Budget) reserveTurn(ctx context.Context, w *Work) error {
	price := agent.PriceOf(w.Target.Model)
	in, most := b.meter.bound(w.Prompt), outputOf(w.Target.Model, w.Prompt)
	want := agent.Want{
		Least: turnCost(price, in, min(LeastOutput, most)), Enough: turnCost(price, in, min(usefulOutput, most)),
		Most: turnCost(price, in, most),
	}
	switch name := b.final; {
	case name == "", w.Step.GetKind() == teamv1.Step_KIND_JUDGE:
	case name == w.Step.GetName():
		b.setReserve(nil) // the reservation was made for this turn
	default:
		if err := b.growReserve(ctx, turnCost(price, in+most, finalOutput)); err != nil {
			return err
		}
	}
	held, err := b.budget.Acquire(ctx, want)
	if err != nil {
		return err
	}
	got := held.Reserved()
	out := min(most, got.Tokens-in, price.Affords(got.Micros, in))
	w.cost.hold, w.cost.maxOutput = held, out
	w.Reserved = &teamv1.Spent{InputTokens: in, OutputTokens: out, CostMicros: price.Ceil(in, out), ModelCalls: 1}
	return nil
}

func turnCost(price agent.Price, in, out int64) agent.Cost {
	return agent.Cost{Tokens: in + out, Micros: price.Ceil(in, out)}
}

// outputOf returns the maximum number of tokens of an answer.
func outputOf(m agent.Model, req *agent.ModelRequest) int64 {
	most := int64(DefaultOutput)
	if l, ok := m.(agent.OutputLimiter); ok && l.MaxOutput() > 0 {
		most = l.MaxOutput()
	}
	if req.MaxOutput > 0 {
		most = min(most, req.MaxOutput)
	}
	return most
}

// setReserve gives back the reservation for the final turn, and stores r in its place.
func (b *Budget) setReserve(r *agent.Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserve.Settle(agent.Cost{})
	b.reserve = r
}

// growReserve makes sure that at least c is reserved for the final turn.
func (b *Budget) growReserve(ctx context.Context, c agent.Cost) error {
	b.mu.Lock()
	have := b.reserve
	b.mu.Unlock()
	if have != nil && have.Reserved().Covers(c) {
		return nil
	}
	r, err := b.budget.Acquire(ctx, agent.Want{Least: c, Enough: c, Most: c, Keep: true, Instead: have})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserve = r
	return nil
}

// settle books the cost of an attempt. If the cost is unknown, for example because a connection
// broke, it books nothing: no reservation outlives its attempt.
func (w *Work) settle(res *Result) {
	spent := res.Reply.GetSpent()
	if e := agent.AsError(res.Err); e != nil {
		spent = e.Spent
		if w.Target.Spends && e.Reason == agent.ReasonBudgetExceeded {
			res.Err = w.partExceeded(e)
		}
	}
	if b := w.by.Budget; b != nil && w.Prompt != nil {
		b.meter.learn(w.Prompt, spent.GetInputTokens())
	}
	w.cost.lost = spent
	cost := agent.CostOf(spent)
	if w.Step.GetDetached() && res.Err == nil {
		cost = agent.CostOf(w.Reserved) // the new task keeps its part
	}
	w.cost.hold.Settle(cost)
}

// partExceeded returns the error of a member that exceeded its part of the budget. It fails the
// member, not the whole run.
func (w *Work) partExceeded(e *agent.Error) *agent.Error {
	e = e.With(agent.DetailSetBy, w.by.Path+"/"+w.Step.GetMember())
	e.Message = fmt.Sprintf("member %q has used up its part of the budget: %s", w.Step.GetMember(), e.Message)
	return e
}

// addCosts adds the cost of all attempts to the end of a step.
func (w *Work) addCosts(e *teamv1.Ended) *teamv1.Ended {
	if e.GetSpent() == nil {
		e.Spent = w.cost.lost
	}
	e.Spent = agent.AddSpent(w.Spent, e.GetSpent())
	return e
}
