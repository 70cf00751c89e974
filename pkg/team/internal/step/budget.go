package step

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
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

// Budget is the budget of a run, and the part of it that is reserved for the final turn. Without a
// limit nothing is reserved, but the largest cost of each model turn is still computed, to be booked
// if the provider does not report the actual cost. Safe for concurrent use.
type Budget struct {
	budget *spending.Budget // nil means no limit
	final  string           // name of the final turn, or empty
	meter  meter

	mu      sync.Mutex
	reserve *spending.Budget // reservation for the final turn, or nil; guarded by mu
}

// NewBudget returns a Budget that reserves from b, which may be nil. final is the name of the turn
// that answers when the limit is reached: its cost is reserved from the beginning. If final is empty,
// nothing is reserved for it.
func NewBudget(b *spending.Budget, final string) *Budget { return &Budget{budget: b, final: final} }

// Limited reports whether there is a limit.
func (b *Budget) Limited() bool { return b.budget != nil }

// Release gives back the reservation for the final turn.
func (b *Budget) Release() { b.setReserve(nil) }

// cost is the part of the budget that an attempt holds, and what the attempt cost.
type cost struct {
	budget    *spending.Budget // budget that binds the attempt; nil means no limit
	hold      *spending.Budget // reservation of the attempt; nil means none
	maxOutput int64            // maximum number of output tokens; 0 means no limit
	lost      *teamv1.Spent    // cost of the last attempt, which has not been recorded yet
	booked    agent.Cost       // what hold is settled with, see release
	most      agent.Cost       // maximum cost of the attempt; zero if it is not known
	besides   agent.Cost       // what it needs at least besides the reservation that was refused
	continues bool             // the attempt continues a task that an earlier one has begun
}

// budget reserves the maximum cost of an attempt before it, and computes the actual cost after it,
// which release books.
func budget(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if err := w.by.Budget.acquire(ctx, w); err != nil {
			return w.askForBudget(err)
		}
		if b := w.cost.budget; b != nil {
			ctx = spending.WithBudget(ctx, b)
		}
		w.cost.continues = w.isBound()
		res := next(ctx, w)
		if !res.notStarted {
			w.settle(&res)
		}
		return res
	}
}

// acquire reserves the maximum cost of an attempt before it starts. It waits while siblings may
// still give back parts of their reservations. The error is BUDGET_EXCEEDED, or the cause of ctx.
func (b *Budget) acquire(ctx context.Context, w *Work) (err error) {
	switch {
	case w.Prompt != nil:
		return b.reserveTurn(ctx, w)
	case !b.Limited(), w.Target.Agent == nil:
		return nil
	case !w.Target.Spends: // its leaves reserve for themselves
		w.cost.budget = b.budget.Among(w.Peers)
		if w.Attempts > 0 {
			return nil
		}
		return w.cost.budget.Room(minCost)
	}
	if w.cost.hold != nil { // taken over from an earlier process
		w.cost.budget = w.cost.hold
		return nil
	}
	least := minCost
	if p, ok := w.Target.Agent.(agent.TaskPricer); ok {
		least.Micros = max(least.Micros, p.TaskCost())
	}
	want := spending.Want{Least: least, Enough: least, Most: agent.NoLimit(), Part: true, By: w.by.path(w.Step)}
	if w.Open { // the attempt was given a part before it waited for people
		want = spending.Want{Most: b.reservedBefore(w.Reserved), By: want.By}
	}
	if w.cost.hold, err = b.budget.Among(w.Peers).Acquire(ctx, want); err != nil {
		return err
	}
	w.cost.budget, w.Reserved = w.cost.hold, reservedPart(w.cost.hold.Reserved())
	return nil
}

// takeOver reserves the part of the budget that an open attempt was given by an earlier process.
func (b *Budget) takeOver(w *Work) {
	if w.Held && b.Limited() {
		w.cost.hold = b.budget.Resume(b.reservedBefore(w.Reserved), w.by.path(w.Step))
	}
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
	in, most := b.meter.bound(w.Target.Model, w.Prompt), max(outputOf(w.Target.Model, w.Prompt), w.MaxOutput)
	want := spending.Want{
		Least: turnCost(price, in, min(LeastOutput, most)), Enough: turnCost(price, in, min(usefulOutput, most)),
		Most: turnCost(price, in, most), By: w.by.path(w.Step),
	}
	w.cost.most, w.cost.besides = want.Most, agent.Cost{}
	switch name := b.final; {
	case name == "", !b.Limited(), w.Step.GetKind() == teamv1.Step_KIND_JUDGE:
	case name == w.Step.GetName():
		b.setReserve(nil) // the reservation was made for this turn
	default:
		if err := b.growReserve(ctx, turnCost(price, in+most, finalOutput)); err != nil {
			w.cost.besides = want.Least
			return err
		}
	}
	held, err := b.budget.Acquire(ctx, want)
	if err != nil {
		return err
	}
	out := most
	if got := held.Reserved(); held != nil {
		out = min(most, got.Tokens-in, price.Affords(got.Micros, in))
		w.cost.hold, w.cost.maxOutput = held, out
	}
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
func (b *Budget) setReserve(r *spending.Budget) {
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
	r, err := b.budget.Acquire(ctx, spending.Want{Least: c, Enough: c, Most: c, Keep: true, Instead: have})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserve = r
	return nil
}

// settle books the cost of an attempt. A model turn that may be billed and whose cost the provider
// did not report in full, for example because a connection broke, is booked at its reservation.
func (w *Work) settle(res *Result) {
	spent := res.Reply.GetSpent()
	if e := agent.AsError(res.Err); e != nil {
		spent = e.Spent
		switch {
		case !w.Target.Spends:
		case e.Reason == agent.ReasonBudgetExceeded:
			res.Err = partExceeded(e, w.by.Path, w.Step.GetMember())
		case e.Reason == agent.ReasonAccountLimit: // of an account on the other server
			res.Err = e.With(agent.DetailSetBy, w.by.Path+"/"+w.Step.GetMember())
		}
	}
	switch {
	case w.Prompt != nil:
		spent = w.by.Budget.settleTurn(w, res, spent)
	case w.Target.Agent != nil && !res.waits():
		spent = w.withTaskCost(spent, res.Err)
	}
	w.cost.lost = spent
	cost := agent.CostOf(spent)
	if w.Step.GetDetached() && res.Err == nil {
		cost = agent.CostOf(w.Reserved) // the new task keeps its part
	}
	w.cost.booked = cost
}

// isBound reports whether an earlier attempt has begun a task on a peer, which the next one continues.
func (p *Past) isBound() bool {
	return slices.ContainsFunc(p.Recorded, func(ev *teamv1.Event) bool { return ev.GetBound() != nil })
}

// withTaskCost returns what is booked for a call of an agent that has reported spent; see
// spending.WithTaskCost. What was booked for earlier attempts at the same task is not booked again. A
// detached task is booked by its own run.
func (w *Work) withTaskCost(spent *teamv1.Spent, err error) *teamv1.Spent {
	if _, ok := w.Target.Agent.(agent.TaskPricer); !ok || w.Step.GetDetached() {
		return spent
	}
	spent = spending.WithTaskCost(w.Target.Agent, spent, err, w.Recorded)
	if w.cost.continues && w.Billed > 0 && spent != nil {
		spent = proto.CloneOf(spent)
		spent.CostMicros = max(spent.CostMicros-w.Billed, 0)
	}
	return spent
}

// release books the cost of the last attempt and gives back the rest of its reservation. It is called
// after the cost is on record: otherwise another step could begin with what the record, after a crash,
// still counts for this one. Further calls do nothing.
func (c *cost) release(step *teamv1.Step) {
	if step.GetDetached() {
		c.hold.HandOver(c.booked)
	} else {
		c.hold.Settle(c.booked)
	}
	c.hold, c.booked = nil, agent.Cost{}
}

// settleTurn returns what is booked for a model turn of which spent is known. If the provider has
// billed more than the turn was allowed, whether it succeeded or failed, the result becomes an error
// that ends the run.
func (b *Budget) settleTurn(w *Work, res *Result, spent *teamv1.Spent) *teamv1.Spent {
	e := agent.AsError(res.Err)
	if e == nil && (spent == nil || spent.GetEstimated()) || e != nil && e.MayBeBilled() {
		spent = estimate(w.Target.Model, w.Reserved, spent)
	} else {
		b.meter.learn(w.Target.Model, w.Prompt, spent.GetInputTokens())
	}
	if w.cost.hold != nil && !w.cost.hold.Reserved().Covers(agent.CostOf(spent)) {
		*res = Result{Err: w.overbilled(spent)}
	}
	return spent
}

// estimate returns the most that a turn of m can have cost of which only part is known: its reservation,
// with the number of input tokens that the provider has reported.
func estimate(m agent.Model, reserved, known *teamv1.Spent) *teamv1.Spent {
	in, out := reserved.GetInputTokens(), max(reserved.GetOutputTokens(), known.GetOutputTokens())
	if n := known.GetInputTokens(); n > 0 {
		in = n
	}
	return &teamv1.Spent{
		ModelCalls: 1, InputTokens: in, OutputTokens: out, CostMicros: agent.PriceOf(m).Ceil(in, out), Estimated: true,
		CachedInputTokens: known.GetCachedInputTokens(), CacheWriteTokens: known.GetCacheWriteTokens(), ReasoningTokens: known.GetReasoningTokens(),
	}
}

// affords reports whether the budget has room for another attempt like the one that c is the cost of, if it needs that much.
func (b *Budget) affords(c *cost, need agent.Cost) bool {
	if !b.Limited() {
		return true
	}
	left, held := b.budget.Left(), c.hold.Reserved()
	return (left.Tokens == agent.Unlimited || left.Tokens+held.Tokens-c.booked.Tokens >= need.Tokens) &&
		(left.Micros == agent.Unlimited || left.Micros+held.Micros-c.booked.Micros >= need.Micros)
}

// overbilled returns the error for a turn for which the provider has billed more than was reserved.
// It ends the run, because no reservation for this model can be relied on.
func (w *Work) overbilled(spent *teamv1.Spent) error {
	w.by.Log.Error("a provider billed more than the turn was allowed", w.task(), zap.String("agent", w.by.Path), zap.String("scope", w.Scope),
		zap.String("model", w.Target.Model.Name()), zap.Int64("allowed_tokens", agent.CostOf(w.Reserved).Tokens), zap.Int64("billed_tokens", agent.CostOf(spent).Tokens),
		zap.Int64("allowed_micros", w.Reserved.GetCostMicros()), zap.Int64("billed_micros", spent.GetCostMicros()))
	e := agent.Errorf(agent.CodeInternal, agent.ReasonBudgetExceeded,
		"the provider of model %q billed %d input and %d output tokens for a turn that was allowed %d and %d; the run has ended because its budget cannot be kept with this model",
		w.Target.Model.Name(), spent.GetInputTokens(), spent.GetOutputTokens(), w.Reserved.GetInputTokens(), w.Reserved.GetOutputTokens())
	return e.With(agent.DetailSetBy, agent.SetByCaller)
}

// partExceeded returns the error of a member of the team at path that exceeded its part of the budget. It fails the
// member, not the whole run.
func partExceeded(e *agent.Error, path, member string) *agent.Error {
	e = e.With(agent.DetailSetBy, path+"/"+member)
	e.Message = fmt.Sprintf("member %q has used up its part of the budget: %s", member, e.Message)
	return e
}

// addCosts adds the cost of all attempts to the end of a step.
func (w *Work) addCosts(e *teamv1.Ended) *teamv1.Ended {
	continued := w.cost.lost != nil && w.cost.continues && w.Billed > 0 // lost is without what was booked before
	if e.GetSpent() == nil || w.Prompt != nil || continued || w.cost.lost.GetCostMicros() > e.GetSpent().GetCostMicros() {
		e.Spent = w.cost.lost
	}
	if !w.Step.GetDetached() {
		w.cost.booked = agent.CostOf(e.GetSpent()) // also where closeOpen made the attempt
	}
	e.Spent = agent.AddSpent(w.Spent, e.GetSpent())
	return e
}
