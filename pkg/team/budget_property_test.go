package team_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// dice are randomness that several goroutines share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// bill is what the providers of a company charge, whatever they report.
type bill struct {
	mu  sync.Mutex
	sum agent.Cost // guarded by mu
}

func (b *bill) add(s *teamv1.Spent) *teamv1.Spent {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := agent.CostOf(s)
	b.sum = agent.Cost{Tokens: b.sum.Tokens + c.Tokens, Micros: b.sum.Micros + c.Micros}
	return s
}

func (b *bill) total() agent.Cost {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum
}

// spender is a model that spends what its answer has, and never more than it was
// allowed: a third of a token a byte of the prompt, and MaxOutput.
type spender struct {
	*dice
	*bill
	price agent.Price
	limit int64    // MaxOutput of the model; 0 is not known
	plans []string // the members that it plans for
}

func (*spender) Name() string         { return "spender" }
func (m *spender) Price() agent.Price { return m.price }
func (m *spender) MaxOutput() int64   { return m.limit }
func (m *spender) spent(in, out int64) *teamv1.Spent {
	return m.price.Spent(agent.Usage{Input: in, Output: out})
}

// tokensOf are the tokens that a prompt has for the provider.
func tokensOf(req *agent.ModelRequest) int64 {
	n := int64(3 + len(req.Instructions)/3)
	for _, m := range req.Messages {
		n += 4 + int64(len(m.Text)/3)
	}
	return n
}

func (m *spender) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		out := int64(m.n(1500))
		if req.MaxOutput > 0 {
			out = min(out, req.MaxOutput)
		}
		in := tokensOf(req)
		if err := agent.Sleep(ctx, time.Duration(m.n(50))*time.Millisecond); err != nil {
			m.add(m.spent(in, out/2)) // cut off by a cancel, a timeout or the death of the process
			yield(agent.ModelChunk{}, err)
			return
		}
		busy := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "busy")
		busy.Retry = true
		switch m.n(10) {
		case 0: // fails, and reports what it costs
			busy.Fresh, busy.Spent = m.n(2) == 0, m.add(m.spent(in, out/2))
			yield(agent.ModelChunk{}, busy)
		case 1: // breaks off, and reports a part of what it costs or nothing
			m.add(m.spent(in, out))
			if m.n(2) == 0 {
				busy.Spent = m.spent(in, out/3)
				busy.Spent.Estimated = true
			}
			yield(agent.ModelChunk{}, busy)
		case 2: // refuses the request
			busy.Fresh = true
			yield(agent.ModelChunk{}, busy)
		case 3: // does not report what the turn costs
			m.add(m.spent(in, out))
			yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: strings.Repeat("z", 1+m.n(200))}}, nil)
		case 4, 5:
			turn := &teamv1.Turn{Text: strings.Repeat("y", m.n(200)), ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "echo", Arguments: `{}`}}}
			yield(agent.ModelChunk{Turn: turn, Spent: m.add(m.spent(in, out))}, nil)
		default:
			turn := &teamv1.Turn{Text: strings.Repeat("x", 1+m.n(200))}
			if len(m.plans) > 0 && req.Force != "" {
				turn = plans(m.steps()...)
			}
			yield(agent.ModelChunk{Turn: turn, Spent: m.add(m.spent(in, out))}, nil)
		}
	}
}

// steps are steps of a plan, each after some of those before it.
func (m *spender) steps() (all []string) {
	for i, id := range m.plans {
		var after []string
		if i > 0 && m.n(2) == 0 {
			after = []string{fmt.Sprintf("s%d-%s", i-1, m.plans[i-1])}
		}
		all = append(all, do(fmt.Sprintf("s%d-%s", i, id), id, "work", after...))
	}
	return all
}

// faraway is a member on another server: it spends within what it is told, and says so. A call that
// is repeated after a crash, with the same key, is the same task.
type faraway struct {
	*dice
	*bill
	began map[string]*teamv1.Spent // by key; one call at a time
	id    string
}

func (f *faraway) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: f.id}, nil
}
func (f *faraway) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }
func (f *faraway) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		limit := agent.LimitOf(req.GetEnvelope())
		spent := f.began[req.GetKey()]
		if spent == nil {
			most := [...]int64{900, 100_000}[f.n(2)] // often less than it is told, and often all of it
			in := min(int64(f.n(900)), limit.Tokens/2)
			spent = f.add(&teamv1.Spent{InputTokens: in, OutputTokens: min(most, limit.Tokens-in), CostMicros: min(most, limit.Micros)})
			f.began[req.GetKey()] = spent
		}
		if err := agent.Sleep(ctx, time.Duration(f.n(80))*time.Millisecond); err != nil {
			yield(nil, &agent.Error{Reason: agent.ReasonCanceled, Code: agent.CodeAborted, Message: "canceled", Err: err, Spent: spent})
			return
		}
		if f.n(6) == 0 {
			e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "away")
			e.Retry, e.Fresh, e.Spent = f.n(2) == 0, true, spent
			yield(nil, e)
			return
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("far")}, Spent: spent}), nil)
	}
}

// Reap reports what a task has spent that a crash has interrupted.
func (f *faraway) Reap(ctx context.Context, req *teamv1.ProcessRequest) error {
	return &agent.Error{Reason: agent.ReasonCanceled, Code: agent.CodeAborted, Message: "canceled", Err: context.Cause(ctx), Spent: f.began[req.GetKey()]}
}

// company is a random team of three levels, and what its agents may spend a call.
type company struct {
	*dice
	bill   bill
	t      *testing.T
	reg    registry
	limits map[string]agent.Cost
	root   agent.Agent
	next   int
}

func newCompany(t *testing.T, d *dice) *company {
	c := &company{dice: d, t: t, reg: registry{}, limits: map[string]agent.Cost{}}
	c.root = c.reg[c.team(2)]
	return c
}

// id names an agent once.
func (c *company) id(word string) string {
	c.next++
	return fmt.Sprintf("%s%d", word, c.next)
}

// limited draws limits for an agent.
func (c *company) limited(id string) *teamv1.Limits {
	l := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Millisecond)}}
	if c.n(3) == 0 {
		l.MaxTokens = proto.Int64(int64(1 + c.n(12_000)))
	}
	if c.n(3) == 0 {
		l.MaxCost = proto.Float64(float64(1+c.n(6_000)) / 1e6)
	}
	c.limits[id] = agent.LimitOf(l)
	if c.n(3) == 0 {
		l.OnLimit = teamv1.OnLimit_ASK
	}
	return l
}

// team adds a team with levels below it.
func (c *company) team(levels int) string {
	id := c.id("team")
	var ids []string
	for range 1 + c.n(3) {
		switch {
		case levels > 0 && c.n(2) == 0:
			ids = append(ids, c.team(levels-1))
		case c.n(4) == 0:
			far := c.id("far")
			c.reg[far] = &faraway{c.dice, &c.bill, map[string]*teamv1.Spent{}, far}
			ids = append(ids, far)
		case c.n(6) == 0:
			fn := c.id("fn")
			c.reg[fn] = skilled(fn)
			ids = append(ids, fn)
		default:
			ids = append(ids, c.agent())
		}
	}
	n := 1 + c.n(3)
	limits := c.limited(id)
	if c.n(4) == 0 {
		m := &spender{dice: c.dice, bill: &c.bill, price: agent.Price{Input: int64(c.n(500_000)), Output: int64(c.n(2_000_000))}, limit: int64(100 + c.n(2000)), plans: ids}
		c.reg[id] = plannedBy(c.t, m, c.reg, func(_ *workflow.PlannedConfig, cfg *team.Config) {
			cfg.ID, cfg.Members, cfg.Limits, cfg.ReportErrors = id, members(ids...), limits, c.n(2) == 0
		})
		return id
	}
	tm, err := team.New(team.Config{ID: id, Members: members(ids...), Registry: c.reg, Limits: limits, ReportErrors: c.n(2) == 0, Scheduler: next(func(s *team.State) (team.Decision, error) {
		if s.Rounds == n || s.Rounds > 0 && s.Last.Message == nil {
			return team.Decision{Reply: agent.NewMessage("done by " + id)}, nil
		}
		d := delegateTo(ids...)
		for i, st := range d.Steps {
			st.Input = &teamv1.Input{Message: agent.UserMessage("", fmt.Sprintf("%s %d %d", id, s.Rounds, i))}
		}
		return d, nil
	})})
	if err != nil {
		c.t.Fatal(err)
	}
	c.reg[id] = tm
	return id
}

// agent adds an agent with a model.
func (c *company) agent() string {
	id := c.id("agent")
	m := &spender{dice: c.dice, bill: &c.bill, price: agent.Price{Input: int64(c.n(500_000)), Output: int64(c.n(2_000_000))}}
	if c.n(2) == 0 {
		m.limit = int64(100 + c.n(2000))
	}
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Instructions: strings.Repeat("be good. ", c.n(30)), Model: m, Tools: []agent.Tool{echoTool{}}, Limits: c.limited(id)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.reg[id] = a
	return id
}

// auditor keeps the record of a run and adds up what its scopes spend.
type auditor struct {
	c      *company
	events []*teamv1.Event
	limit  map[string]agent.Cost // by scope
	spent  map[string]agent.Cost // by scope, with everything below
	leaves *teamv1.Spent
	decide map[string]bool
	tried  map[string]*teamv1.Spent // on attempts that were repeated, by scope
	grants int                      // answers to questions for more budget
}

func audit(c *company, envelope agent.Cost, root string) *auditor {
	a := &auditor{c: c, limit: map[string]agent.Cost{}, spent: map[string]agent.Cost{}, decide: map[string]bool{}, tried: map[string]*teamv1.Spent{}}
	own := c.limits[root]
	a.limit[""] = agent.Cost{Tokens: min(envelope.Tokens, own.Tokens), Micros: min(envelope.Micros, own.Micros)}
	return a
}

// take puts an event on record. It returns what is wrong.
func (a *auditor) take(ev *teamv1.Event) error {
	ev.Seq = int64(len(a.events) + 1)
	ev.Time = timestamppb.New(time.Now())
	a.events = append(a.events, ev)
	scope := ev.GetScope()
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		a.decide[scope] = true
	case *teamv1.Event_Started:
		id := ev.GetAgent()[strings.LastIndexByte(ev.GetAgent(), '/')+1:]
		if _, known := a.limit[scope]; !known && k.Started.GetModel() == "" {
			if l, ok := a.c.limits[id]; ok {
				a.limit[scope] = l
			}
		}
	case *teamv1.Event_Retried:
		a.tried[scope] = agent.AddSpent(a.tried[scope], k.Retried.GetSpent())
		return a.book(scope, k.Retried.GetSpent())
	case *teamv1.Event_Ended:
		if !a.decide[scope] {
			s := k.Ended.GetSpent()
			a.leaves = agent.AddSpent(a.leaves, s)
			return a.book(scope, s, a.tried[scope])
		}
	}
	return nil
}

// book adds what a leaf has spent, less what was booked before, to all scopes above.
func (a *auditor) book(scope string, spent *teamv1.Spent, before ...*teamv1.Spent) error {
	c := agent.CostOf(spent)
	for _, b := range before {
		c.Tokens -= agent.CostOf(b).Tokens
		c.Micros -= agent.CostOf(b).Micros
	}
	for {
		sum := a.spent[scope]
		sum = agent.Cost{Tokens: sum.Tokens + c.Tokens, Micros: sum.Micros + c.Micros}
		a.spent[scope] = sum
		if l, ok := a.limit[scope]; ok && !l.Covers(sum) {
			return fmt.Errorf("scope %q has spent %v of %v", scope, sum, l)
		}
		if scope == "" {
			return nil
		}
		scope = agent.Parent(scope)
	}
}

// life is one process that works on the run: until the run ends, or the process
// dies after so many events. It reports whether the run has ended.
func (a *auditor) life(ctx context.Context, root string, envelope agent.Cost, dies int) (ended bool, err error) {
	budget := spending.NewBudget("", envelope, spending.BookedOn(a.events)).Holding(spending.HeldOn(a.events))
	ctx = spending.WithBudget(agent.With(ctx, &agent.Run{Root: crashRoot, Seed: 1}), budget)
	var said *teamv1.Spent
	req := &teamv1.ProcessRequest{AgentId: root, Message: agent.UserMessage("m", "go"), Recorded: a.events[:len(a.events):len(a.events)]}
	for ev, err := range a.c.root.Process(ctx, req) {
		if err != nil {
			said, ended = agent.AsError(err).Spent, true
			break
		}
		if r := ev.GetReply(); r != nil && ev.GetScope() == "" {
			said, ended = r.GetSpent(), true
			break
		}
		if err := a.take(ev); err != nil {
			return true, err
		}
		if dies--; dies == 0 {
			return false, nil
		}
	}
	spent := agent.CostOf(spending.SpentOn(a.events))
	if !ended && a.answer() {
		return false, nil
	}
	switch {
	case !ended:
		return true, errors.New("it ended without an answer")
	case budget.Spent() != spent:
		return true, fmt.Errorf("on the books are %v, on record %v", budget.Spent(), spent)
	case budget.Left() != (agent.Cost{Tokens: envelope.Tokens - spent.Tokens, Micros: envelope.Micros - spent.Micros}):
		return true, fmt.Errorf("something is held after the end: left %v, spent %v of %v", budget.Left(), spent, envelope)
	case !spent.Covers(a.c.bill.total()):
		return true, fmt.Errorf("spent are %v, and the bill is %v", spent, a.c.bill.total())
	case !envelope.Covers(a.c.bill.total()):
		return true, fmt.Errorf("the bill is %v, and the limit %v", a.c.bill.total(), envelope)
	case agent.CostOf(said) != spent:
		return true, fmt.Errorf("the end says %v, on record are %v", agent.CostOf(said), spent)
	}
	return true, nil
}

// answer answers the open questions for more budget, with an amount or with no, and raises the limits
// that are kept here. It returns false if there are none.
func (a *auditor) answer() bool {
	open := map[string]*teamv1.Event{}
	for _, ev := range a.events {
		if q := ev.GetAsked(); q != nil {
			open[q.GetQuestion()] = ev
		}
		delete(open, ev.GetAnswered().GetQuestion())
		if ev.GetEnded() != nil {
			maps.DeleteFunc(open, func(_ string, q *teamv1.Event) bool { return agent.Within(q.GetScope(), ev.GetScope()) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		q := open[id]
		b := q.GetAsked().GetBudget()
		answer := &teamv1.Answered{Question: id, Message: agent.UserMessage("a", "x")}
		if n := int64(a.c.n(6000)); n > 2000 {
			at := strings.Join(strings.Split(q.GetScope(), ".")[:strings.Count(b.GetSetBy(), "/")], ".")
			l := a.limit[at]
			if b.GetLimit() == agent.LimitMaxTokens {
				answer.Grant, l.Tokens = &teamv1.Spent{OutputTokens: n}, l.Tokens+n
			} else {
				answer.Grant, l.Micros = &teamv1.Spent{CostMicros: n}, l.Micros+n
			}
			a.limit[at] = l
		}
		a.grants++
		if err := a.take(&teamv1.Event{Scope: q.GetScope(), Agent: q.GetAgent(), Kind: &teamv1.Event_Answered{Answered: answer}}); err != nil {
			a.c.t.Error(err)
		}
	}
	return len(open) > 0
}

// schedule plays one random run.
func schedule(t *testing.T, seed uint64) (events, grants int, err error) {
	d := &dice{r: rand.New(rand.NewPCG(seed, 11))}
	c := newCompany(t, d)
	envelope := agent.Cost{Tokens: int64(1 + d.n(30_000)), Micros: int64(1 + d.n(30_000))}
	root := c.root.(*team.Team).Config().ID //nolint:forcetypeassert // it is
	a := audit(c, envelope, root)
	for life := 0; ; life++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		if d.n(6) == 0 {
			timer := time.AfterFunc(time.Duration(d.n(300))*time.Millisecond, func() { cancel(agent.ErrCanceled) })
			defer timer.Stop()
		}
		dies := -1
		if life < 2 && d.n(4) == 0 {
			dies = 1 + d.n(60)
		}
		ended, err := a.life(ctx, root, envelope, dies)
		cancel(nil)
		if ended || err != nil {
			return len(a.events), a.grants, err
		}
	}
}

// TestC_07_TeamsNeverOverspend plays 10,000 random runs of teams of up to three
// levels, with siblings side by side, failures, repetitions, cancels, people who
// grant more or decline, and processes that die: what is settled never exceeds a limit, of any scope, after
// any event; and at the end nothing is held, and the books, the record and the
// last word say the same.
func TestC_07_TeamsNeverOverspend(t *testing.T) {
	runs := uint64(10_000)
	if testing.Short() {
		runs = 500
	}
	runs /= uint64(sample.Stride())
	total, granted := 0, 0
	for seed := range runs {
		synctest.Test(t, func(t *testing.T) {
			n, grants, err := schedule(t, seed)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			total, granted = total+n, granted+grants
		})
	}
	if granted == 0 {
		t.Error("no run has asked for more")
	}
	t.Logf("%d runs, %d events, %d answers to questions for more budget", runs, total, granted)
}

// TestC_07_TeamsNeverOverspendRaced is the same in real time, many at once.
func TestC_07_TeamsNeverOverspendRaced(t *testing.T) {
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			for seed := range uint64(6) {
				if _, _, err := schedule(t, worker*1000+seed); err != nil {
					t.Errorf("worker %d seed %d: %v", worker, seed, err)
				}
			}
		})
	}
	wg.Wait()
}
