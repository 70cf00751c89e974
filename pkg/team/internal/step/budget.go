package step

import (
	"context"
	"fmt"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// What is reserved.
const (
	DefaultOutput = 4096 // tokens of an answer, where neither the model nor the request says
	decentOutput  = 1024 // tokens of an answer that are worth waiting for
	LeastOutput   = 16   // tokens of an answer that are worth asking for
	finalOutput   = 1024 // tokens of the last turn, see NewBudget
)

// least is what a delegation needs: nothing is started when nothing is left.
var least = agent.Cost{Tokens: 1, Micros: 1}

// Budget is the budget of a run, and what of it is reserved for the last turn. Safe for
// concurrent use.
type Budget struct {
	budget *agent.Budget
	final  string // the turn that a limit leaves
	meter  meter

	mu   sync.Mutex
	kept *agent.Budget // reserved for the last turn; guarded by mu
}

// NewBudget returns what reserves out of b. final is the name of the turn by which a run
// ends at the limit: what it needs is reserved from the beginning. Empty: there is none.
func NewBudget(b *agent.Budget, final string) *Budget { return &Budget{budget: b, final: final} }

// Release gives back what is kept for a last turn. A nil Budget has nothing.
func (b *Budget) Release() {
	if b != nil {
		b.keep(nil)
	}
}

// cost is what an attempt holds of the budget, and has cost.
type cost struct {
	budget    *agent.Budget // that binds the attempt; nil is no limit
	hold      *agent.Budget // what is reserved for the attempt; nil is nothing
	maxOutput int64         // tokens that the answer may have; 0 is no limit
	lost      *teamv1.Spent // on the last attempt, unless its end has it
}

// budget reserves what an attempt may cost, and books afterwards what it has cost.
func budget(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if err := w.reserve(ctx); err != nil {
			return w.refused(err)
		}
		defer func() { w.cost.hold.Settle(agent.Cost{}) }() // where the attempt did not come to its end
		if b := w.cost.budget; b != nil {
			ctx = agent.WithBudget(ctx, b)
		}
		res := next(ctx, w)
		if !res.unbegun {
			w.settle(&res)
		}
		return res
	}
}

// reserve takes what an attempt may cost out of the budget, before it starts. It
// waits for siblings to give back what they do not need. The error is
// BUDGET_EXCEEDED, or the end of ctx.
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
		return w.cost.budget.Room(least)
	}
	want := agent.Want{Least: least, Enough: least, Most: agent.NoLimit(), Part: true}
	if w.Open { // it has begun, and knows what it may spend
		want = agent.Want{Most: b.given(w.Reserved)}
	}
	if w.cost.hold, err = b.budget.Among(w.Peers).Acquire(ctx, want); err != nil {
		return err
	}
	w.cost.budget, w.Reserved = w.cost.hold, reservedPart(w.cost.hold.Reserved())
	return nil
}

// reservedPart is how a part of the budget stands on record: what its tokens will
// be is not known.
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

// given is what a delegation was given that is under way.
func (b *Budget) given(reserved *teamv1.Spent) agent.Cost {
	c, limit := agent.CostOf(reserved), b.budget.Left()
	if limit.Tokens == agent.Unlimited {
		c.Tokens = agent.Unlimited
	}
	if limit.Micros == agent.Unlimited {
		c.Micros = agent.Unlimited
	}
	return c
}

// reserveTurn reserves what a turn of the model may cost: all that its prompt can
// be, and as long an answer as it may give.
func (b *Budget) reserveTurn(ctx context.Context, w *Work) error {
	price := agent.PriceOf(w.Target.Model)
	in, most := b.meter.bound(w.Prompt), outputOf(w.Target.Model, w.Prompt)
	want := agent.Want{
		Least: turnCost(price, in, min(LeastOutput, most)), Enough: turnCost(price, in, min(decentOutput, most)),
		Most: turnCost(price, in, most),
	}
	switch name := b.final; {
	case name == "", w.Step.GetKind() == teamv1.Step_KIND_JUDGE:
	case name == w.Step.GetName():
		b.keep(nil) // it is for this
	default:
		if err := b.grow(ctx, turnCost(price, in+most, finalOutput)); err != nil {
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

// outputOf is how many tokens an answer may have.
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

// keep gives back what is reserved for the last turn, and keeps r instead.
func (b *Budget) keep(r *agent.Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept.Settle(agent.Cost{})
	b.kept = r
}

// grow sees to it that the last turn can cost c.
func (b *Budget) grow(ctx context.Context, c agent.Cost) error {
	b.mu.Lock()
	have := b.kept
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
	b.kept = r
	return nil
}

// settle books what an attempt has cost. Where nobody says what it was, as when
// a connection breaks, it was nothing: nothing of a reservation outlives its
// attempt.
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
		cost = agent.CostOf(w.Reserved) // its part went with it, and does not come back
	}
	w.cost.hold.Settle(cost)
}

// partExceeded is the error of a member that needs more than its part, which is
// a failure of the member and not the end of the whole.
func (w *Work) partExceeded(e *agent.Error) *agent.Error {
	e = e.With(agent.DetailSetBy, w.by.Path+"/"+w.Step.GetMember())
	e.Message = fmt.Sprintf("member %q has no budget left of the part that it was given: %s", w.Step.GetMember(), e.Message)
	return e
}

// costs adds to the end of a step what its attempts have cost.
func (w *Work) costs(e *teamv1.Ended) *teamv1.Ended {
	if e.GetSpent() == nil {
		e.Spent = w.cost.lost
	}
	e.Spent = agent.AddSpent(w.Spent, e.GetSpent())
	return e
}
