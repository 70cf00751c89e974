package team

import (
	"context"
	"fmt"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// What is reserved.
const (
	defaultOutput = 4096 // tokens of an answer, where neither the model nor the request says
	decentOutput  = 1024 // tokens of an answer that are worth waiting for
	leastOutput   = 16   // tokens of an answer that are worth asking for
	finalOutput   = 1024 // tokens of the last turn, see Traits.FinalTurn
)

// least is what a delegation needs: nothing is started when nothing is left.
var least = agent.Cost{Tokens: 1, Micros: 1}

// spending is what a process knows of the budget that binds it; its goroutines share it.
type spending struct {
	budget *agent.Budget // nil is no limit
	meter  meter

	mu    sync.Mutex
	final *agent.Budget // reserved for the last turn; guarded by mu
}

// bind returns ctx with the budget of the run: that of its caller, which ctx has, and the
// team's or agent's own limits, less what the record says was spent. Work that a process
// left unfinished when it died reserves nothing.
func (p *process) bind(ctx context.Context) context.Context {
	if len(p.cfg.Members) > 0 {
		ctx = agent.WithDepthLimit(ctx, p.limits.maxDepth)
	}
	b := agent.BudgetOf(ctx)
	if limit := agent.LimitOf(p.cfg.Limits); limit != agent.NoLimit() {
		b = b.Child(p.Path, limit, agent.BookedOn(p.req.GetRecorded()))
	}
	if b == nil {
		return ctx
	}
	p.spending = &spending{budget: b}
	return agent.WithBudget(ctx, b)
}

// unbind gives back what is kept for a last turn.
func (p *process) unbind() {
	if p.spending != nil {
		p.spending.keep(nil)
	}
}

// reserve takes what an attempt may cost out of the budget, before it starts. It
// waits for siblings to give back what they do not need. The error is
// BUDGET_EXCEEDED, or the end of ctx.
func (r *runner) reserve(ctx context.Context, w *work, ex *executor) (err error) {
	if r.spending == nil {
		return nil
	}
	switch {
	case w.prompt != nil:
		return r.reserveTurn(ctx, w, ex)
	case !r.gate.called(w.step):
		return nil
	case !ex.spends: // its leaves reserve for themselves
		w.budget = r.spending.budget.Among(w.peers)
		if w.attempts > 0 {
			return nil
		}
		return w.budget.Room(least)
	}
	want := agent.Want{Least: least, Enough: least, Most: agent.NoLimit(), Part: true}
	if w.open { // it has begun, and knows what it may spend
		want = agent.Want{Most: r.told(w)}
	}
	if w.hold, err = r.spending.budget.Among(w.peers).Acquire(ctx, want); err != nil {
		return err
	}
	w.budget, w.reserved = w.hold, reservedPart(w.hold.Reserved())
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

// told is what a delegation was given that is under way.
func (r *runner) told(w *work) agent.Cost {
	c, limit := agent.CostOf(w.reserved), r.spending.budget.Left()
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
func (r *runner) reserveTurn(ctx context.Context, w *work, ex *executor) error {
	s, price := r.spending, agent.PriceOf(ex.by)
	in, most := s.meter.bound(w.prompt), outputOf(ex.by, w.prompt)
	want := agent.Want{
		Least: turnCost(price, in, min(leastOutput, most)), Enough: turnCost(price, in, min(decentOutput, most)),
		Most: turnCost(price, in, most),
	}
	switch name := r.traits.FinalTurn; {
	case name == "", w.step.GetKind() == teamv1.Step_KIND_JUDGE:
	case name == w.step.GetName():
		s.keep(nil) // it is for this
	default:
		if err := s.grow(ctx, turnCost(price, in+most, finalOutput)); err != nil {
			return err
		}
	}
	held, err := s.budget.Acquire(ctx, want)
	if err != nil {
		return err
	}
	got := held.Reserved()
	out := min(most, got.Tokens-in, price.Affords(got.Micros, in))
	w.hold, w.maxOutput = held, out
	w.reserved = &teamv1.Spent{InputTokens: in, OutputTokens: out, CostMicros: price.Ceil(in, out), ModelCalls: 1}
	return nil
}

func turnCost(price agent.Price, in, out int64) agent.Cost {
	return agent.Cost{Tokens: in + out, Micros: price.Ceil(in, out)}
}

// outputOf is how many tokens an answer may have.
func outputOf(m agent.Model, req *agent.ModelRequest) int64 {
	most := int64(defaultOutput)
	if l, ok := m.(agent.OutputLimiter); ok && l.MaxOutput() > 0 {
		most = l.MaxOutput()
	}
	if req.MaxOutput > 0 {
		most = min(most, req.MaxOutput)
	}
	return most
}

// keep gives back what is reserved for the last turn.
func (s *spending) keep(r *agent.Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.final.Settle(agent.Cost{})
	s.final = r
}

// grow sees to it that the last turn can cost c.
func (s *spending) grow(ctx context.Context, c agent.Cost) error {
	s.mu.Lock()
	have := s.final
	s.mu.Unlock()
	if have != nil && have.Reserved().Covers(c) {
		return nil
	}
	r, err := s.budget.Acquire(ctx, agent.Want{Least: c, Enough: c, Most: c, Keep: true, Instead: have})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.final = r
	return nil
}

// settle books what an attempt has cost. Where nobody says what it was, as when
// a connection breaks, it was nothing: nothing of a reservation outlives its
// attempt.
func (r *runner) settle(w *work, ex *executor, res *result) {
	spent := res.reply.GetSpent()
	if e := agent.AsError(res.err); e != nil {
		spent = e.Spent
		if ex.spends && e.Reason == agent.ReasonBudgetExceeded {
			res.err = r.partExceeded(w, e)
		}
	}
	if r.spending != nil && w.prompt != nil {
		r.spending.meter.learn(w.prompt, spent.GetInputTokens())
	}
	w.lost = spent // unless its end has it
	cost := agent.CostOf(spent)
	if w.step.GetDetached() && res.err == nil {
		cost = agent.CostOf(w.reserved) // its part went with it, and does not come back
	}
	w.hold.Settle(cost)
}

// partExceeded is the error of a member that needs more than its part, which is
// a failure of the member and not the end of the whole.
func (r *runner) partExceeded(w *work, e *agent.Error) *agent.Error {
	e = e.With(agent.DetailSetBy, r.path+"/"+w.step.GetMember())
	e.Message = fmt.Sprintf("member %q has no budget left of the part that it was given: %s", w.step.GetMember(), e.Message)
	return e
}

// giveBack ends what an attempt holds that did not come to its end.
func (w *work) giveBack() { w.hold.Settle(agent.Cost{}) }

// costs adds to the end of a step what its attempts have cost.
func (w *work) costs(e *teamv1.Ended) *teamv1.Ended {
	if e.GetSpent() == nil {
		e.Spent = w.lost
	}
	e.Spent = agent.AddSpent(w.spent, e.GetSpent())
	return e
}

// withSpent is err with what the run has cost all the same.
func (p *process) withSpent(err error) error {
	spent := p.spent()
	if spent == nil || err == nil {
		return err
	}
	e := agent.AsError(err).Because(err)
	e.Spent = spent
	return e
}

// peersOf counts those that share with a step what is left: the open steps of
// members, and who goes on deciding.
func (p *process) peersOf(st *StepState) int {
	n := 0
	if p.spending == nil || !st.ByMember() {
		return n
	}
	for o := range p.pending() {
		if o.ByMember() && !o.Parked() {
			n++
		}
	}
	if st.Step.GetAsync() && st.Step.GetKind() == teamv1.Step_KIND_DELEGATE {
		n++ // the leader
	}
	return n
}

// bound returns ctx for an attempt, with the budget that it has.
func (w *work) bound(ctx context.Context) context.Context {
	if w.budget == nil {
		return ctx
	}
	return agent.WithBudget(ctx, w.budget)
}

// exhausted ends the run where a limit that holds for all of it has refused a
// step, and nothing else comes of it. What it means for a result that nobody can
// be paid to judge is the gate's to say.
func (f *fold) exhausted(st *StepState) {
	if !agent.Binds(st.Err, f.Path) || st.Step.GetKind() == teamv1.Step_KIND_JUDGE {
		return
	}
	final := f.loop.traits.FinalTurn
	if f.failed == nil && (final == "" || final == st.Step.GetName()) {
		f.failed = st.Err
	}
}
