package team_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
)

// priced is a model that takes these turns, one a call, at a price, and keeps
// what it was asked.
type priced struct {
	turnsOf
	price agent.Price
	spent []*teamv1.Spent // by call; the last one again and again
	fails []error         // by call, nil answers
}

func (m *priced) Price() agent.Price { return m.price }

func (m *priced) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		n := len(m.requests)
		if n < len(m.fails) && m.fails[n] != nil {
			m.requests = append(m.requests, req)
			m.turns = slices.Insert(m.turns, 0, nil)
			yield(agent.ModelChunk{}, m.fails[n])
			return
		}
		for chunk, err := range m.turnsOf.Generate(ctx, req) {
			if chunk.Turn != nil && len(m.spent) > 0 {
				chunk.Spent = proto.CloneOf(m.spent[min(n, len(m.spent)-1)])
			}
			yield(chunk, err)
		}
	}
}

func echoCall() *teamv1.Turn {
	return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "echo", Arguments: "{}"}}}
}

func limitedAgent(t *testing.T, id string, m agent.Model, l *teamv1.Limits) *leader.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: m, Tools: []agent.Tool{echoTool{}}, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ofStep returns the events of a scope.
func ofStep(events []*teamv1.Event, scope string) []*teamv1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(ev *teamv1.Event) bool { return ev.GetScope() != scope })
}

func endOf(t *testing.T, events []*teamv1.Event, scope string) *teamv1.Ended {
	t.Helper()
	for _, ev := range ofStep(events, scope) {
		if e := ev.GetEnded(); e != nil {
			return e
		}
	}
	t.Fatalf("step %s has no end", scope)
	return nil
}

func TestC_07_ModelTurns(t *testing.T) {
	t.Run("C-07 a turn is reserved before it and settled after it, both on record", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, price: agent.Price{Input: 1_000_000, Output: 2_000_000},
			spent: []*teamv1.Spent{{InputTokens: 7, OutputTokens: 3, CostMicros: 13}}}
		r := newRecord()
		r.process(t.Context(), limitedAgent(t, "root", m, &teamv1.Limits{MaxTokens: proto.Int64(10_000)}), nil)
		if r.err != nil {
			t.Fatal(r.err)
		}
		started := ofStep(r.events, "1")[0].GetStarted().GetReserved()
		if started.GetInputTokens() < 7 || started.GetOutputTokens() != team.DefaultOutput ||
			started.GetCostMicros() != started.GetInputTokens()+2*team.DefaultOutput || m.requests[0].MaxOutput != team.DefaultOutput {
			t.Error(started, m.requests[0].MaxOutput)
		}
		want := &teamv1.Spent{InputTokens: 7, OutputTokens: 3, CostMicros: 13, ModelCalls: 1}
		if got := endOf(t, r.events, "1").GetSpent(); !proto.Equal(got, want) || !proto.Equal(r.reply.GetSpent(), want) {
			t.Error(got, r.reply.GetSpent())
		}
	})
	t.Run("C-07 without a limit the most that a turn can cost is on record, and the model's own limit stands", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}}
		r := newRecord()
		r.process(t.Context(), limitedAgent(t, "root", m, nil), nil)
		if s := ofStep(r.events, "1")[0].GetStarted(); s.GetReserved().GetOutputTokens() != team.DefaultOutput || m.requests[0].MaxOutput != 0 {
			t.Error(s, m.requests[0].MaxOutput)
		}
	})
	t.Run("C-07 an answer may be as long as what is left, in tokens and in money", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}}
		r := newRecord()
		r.process(t.Context(), limitedAgent(t, "root", m, &teamv1.Limits{MaxTokens: proto.Int64(1000)}), nil)
		in := ofStep(r.events, "1")[0].GetStarted().GetReserved().GetInputTokens()
		if got := m.requests[0].MaxOutput; got != 1000-in || got < team.LeastOutput {
			t.Error(got, in)
		}
		m = &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, price: agent.Price{Output: 2_000_000}}
		r = newRecord()
		r.process(t.Context(), limitedAgent(t, "root", m, &teamv1.Limits{MaxCost: proto.Float64(0.0001)}), nil)
		if got := m.requests[0].MaxOutput; got != 50 {
			t.Error(got)
		}
	})
	t.Run("C-07 S-60 the turn that would exceed it is refused, and the run says what limit it was", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{echoCall(), {Text: "never"}}}, spent: []*teamv1.Spent{{InputTokens: 900, OutputTokens: 95}}}
		r := newRecord()
		r.process(t.Context(), limitedAgent(t, "root", m, &teamv1.Limits{MaxTokens: proto.Int64(1000)}), nil)
		e := wantReason(t, r.err, agent.ReasonBudgetExceeded)
		if e.Details[agent.DetailLimit] != "max_tokens" || e.Details[agent.DetailValue] != "1000" || e.Details[agent.DetailSetBy] != "root" ||
			!strings.Contains(e.Message, `limits.max_tokens of "root" is 1000 tokens`) || len(m.requests) != 1 {
			t.Error(e, len(m.requests))
		}
		if e.Spent.GetInputTokens() != 900 || e.Spent.GetToolCalls() != 1 {
			t.Error("what it cost all the same:", e.Spent)
		}
		refused := ofStep(r.events, "3")
		if end := refused[0].GetEnded(); len(refused) != 1 || end.GetOutcome() != teamv1.Outcome_OUTCOME_REJECTED || end.GetError().GetReason() != agent.ReasonBudgetExceeded {
			t.Error(refused)
		}
	})
	t.Run("C-07 R-002-32 an attempt that failed is settled with what it cost, and the next one reserved anew", func(t *testing.T) {
		busy := &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "busy", Spent: &teamv1.Spent{InputTokens: 400, ModelCalls: 1}}
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, fails: []error{busy}, spent: []*teamv1.Spent{{InputTokens: 100}}}
		r := newRecord()
		limits := &teamv1.Limits{MaxTokens: proto.Int64(2000), Retry: &teamv1.Retry{Backoff: durationpb.New(1)}}
		r.process(t.Context(), limitedAgent(t, "root", m, limits), nil)
		if r.err != nil || m.requests[1].MaxOutput != 2000-400-400 { // its prompt was counted now
			t.Fatal(r.err, m.requests[0].MaxOutput, m.requests[1].MaxOutput)
		}
		if got := ofStep(r.events, "1")[1].GetRetried().GetSpent().GetInputTokens(); got != 400 {
			t.Error(got)
		}
		if got := endOf(t, r.events, "1").GetSpent(); got.GetInputTokens() != 500 || got.GetModelCalls() != 2 {
			t.Error(got)
		}
	})
	t.Run("C-07 a turn of which only a part is reported is booked at its reservation", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, price: agent.FlatPrice(1_000_000, 2_000_000),
			spent: []*teamv1.Spent{{InputTokens: 7, OutputTokens: 1, CostMicros: 9, Estimated: true}}}
		r := newRecord()
		r.process(t.Context(), limitedAgent(t, "root", m, &teamv1.Limits{MaxTokens: proto.Int64(10_000)}), nil)
		want := &teamv1.Spent{InputTokens: 7, OutputTokens: team.DefaultOutput, CostMicros: 7 + 2*team.DefaultOutput, ModelCalls: 1, Estimated: true}
		if got := r.reply.GetSpent(); r.err != nil || !proto.Equal(got, want) {
			t.Error(r.err, got)
		}
	})
	t.Run("C-07 a failed turn that is billed more than it was allowed ends the run", func(t *testing.T) {
		broken := &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Message: "broken", Spent: &teamv1.Spent{InputTokens: 7, OutputTokens: 20_000, Estimated: true}}
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, fails: []error{broken}}
		r := newRecord()
		limits := &teamv1.Limits{MaxTokens: proto.Int64(100_000), Retry: &teamv1.Retry{Backoff: durationpb.New(1)}}
		r.process(t.Context(), limitedAgent(t, "root", m, limits), nil)
		if e := wantReason(t, r.err, agent.ReasonBudgetExceeded); len(m.requests) != 1 || e.Spent.GetOutputTokens() != 20_000 {
			t.Error(e, len(m.requests), e.Spent)
		}
	})
	t.Run("C-07 a turn that a crash interrupts is booked when a cancel closes it", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}}
		a := limitedAgent(t, "root", m, &teamv1.Limits{MaxTokens: proto.Int64(10_000)})
		r := newRecord()
		r.process(t.Context(), a, func(ev *teamv1.Event) bool { return ev.GetStarted() == nil })
		reserved := ofStep(r.events, "1")[0].GetStarted().GetReserved()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(agent.ErrCanceled)
		r.process(ctx, a, nil)
		end := endOf(t, r.events, "1")
		if got := end.GetSpent(); end.GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED || !got.GetEstimated() || agent.CostOf(got) != agent.CostOf(reserved) {
			t.Error(end, reserved)
		}
	})
	t.Run("C-07 a retry that the budget does not cover is not made", func(t *testing.T) {
		busy := &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "busy", Spent: &teamv1.Spent{InputTokens: 990}}
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, fails: []error{busy, busy}}
		r := newRecord()
		limits := &teamv1.Limits{MaxTokens: proto.Int64(1000), Retry: &teamv1.Retry{Backoff: durationpb.New(1)}}
		r.process(t.Context(), limitedAgent(t, "root", m, limits), nil)
		wantReason(t, r.err, agent.ReasonBudgetExceeded)
		if end := endOf(t, r.events, "1"); len(m.requests) != 1 || end.GetOutcome() != teamv1.Outcome_OUTCOME_FAILED || end.GetSpent().GetInputTokens() != 990 {
			t.Error(end, len(m.requests))
		}
	})
	t.Run("C-07 the router's turns count too", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{routeCall(`{"next": ["a"]}`), routeCall(`{"next": "finish"}`)}}, spent: []*teamv1.Spent{{InputTokens: 2900}}}
		reg := registry{"a": skilled("a")}
		v, err := supervisor.New(supervisor.Config{Members: members("a"), Router: &supervisor.Router{}})
		if err != nil {
			t.Fatal(err)
		}
		tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: v, Members: members("a"), Registry: reg, Model: m, Limits: &teamv1.Limits{MaxTokens: proto.Int64(3000)}})
		_, err = ask(t, tm, "hi")
		if e := wantReason(t, err, agent.ReasonBudgetExceeded); len(m.requests) != 1 {
			t.Error(e, len(m.requests))
		}
	})
}

func TestC_07_Subtree(t *testing.T) {
	// nest is a team of a team of an agent with a model that spends 400 tokens a call.
	nest := func(t *testing.T, m agent.Model, top, low, leaf *teamv1.Limits, report bool) *team.Team {
		reg := registry{"writer": limitedAgent(t, "writer", m, leaf)}
		reg["low"] = newTeamWith(t, team.Config{ID: "low", Scheduler: inOrder("writer"), Members: members("writer"), Registry: reg, Limits: low})
		n := 0
		twice := next(func(s *team.State) (team.Decision, error) {
			if n = len(s.Steps); n == 2 {
				return team.Decision{Reply: agent.NewMessage("done")}, nil
			}
			d := delegateTo("low")
			d.Steps[0].Input = &teamv1.Input{Message: agent.UserMessage("", strings.Repeat("x", n+1))}
			return d, nil
		})
		return newTeamWith(t, team.Config{ID: "root", Scheduler: twice, Members: members("low"), Registry: reg, Limits: top, ReportErrors: report})
	}
	model := func() *priced {
		return &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "a"}, {Text: "b"}}}, spent: []*teamv1.Spent{{InputTokens: 300, OutputTokens: 600}}}
	}
	tokens := func(n int64) *teamv1.Limits { return &teamv1.Limits{MaxTokens: proto.Int64(n)} }
	t.Run("C-07 a limit at the top binds the whole subtree", func(t *testing.T) {
		m, r := model(), newRecord()
		r.process(t.Context(), nest(t, m, tokens(1000), nil, nil, true), nil) // also where failures are reported
		e := wantReason(t, r.err, agent.ReasonBudgetExceeded)
		if e.Details[agent.DetailSetBy] != "root" || len(m.requests) != 1 || e.Spent.GetOutputTokens() != 600 {
			t.Error(e, len(m.requests), e.Spent)
		}
	})
	t.Run("C-07 a limit below is a failure of that member for those above", func(t *testing.T) {
		m, r := model(), newRecord()
		r.process(t.Context(), nest(t, m, tokens(100_000), nil, tokens(50), true), nil)
		if r.err != nil || len(m.requests) != 0 || agent.Text(r.reply.GetMessage()) != "done" {
			t.Error(r.err, len(m.requests))
		}
		if e := endOf(t, r.events, "1").GetError(); e.GetReason() != agent.ReasonBudgetExceeded || e.GetDetails()[agent.DetailSetBy] != "root/low/writer" {
			t.Error(e)
		}
	})
	t.Run("C-07 each call of a member has its own limit anew", func(t *testing.T) {
		m, r := model(), newRecord()
		r.process(t.Context(), nest(t, m, nil, nil, tokens(1000), false), nil)
		if r.err != nil || len(m.requests) != 2 {
			t.Error(r.err, len(m.requests))
		}
	})
	t.Run("C-07 the smaller of the caller's and the own one holds", func(t *testing.T) {
		m, r := model(), newRecord()
		ctx := spending.WithBudget(t.Context(), spending.NewBudget("", agent.LimitOf(tokens(1000)), agent.Cost{}))
		r.process(ctx, nest(t, m, tokens(100_000), tokens(50_000), nil, true), nil)
		if e := wantReason(t, r.err, agent.ReasonBudgetExceeded); e.Details[agent.DetailSetBy] != agent.SetByCaller || len(m.requests) != 1 {
			t.Error(e, len(m.requests))
		}
	})
	t.Run("S-60 a failed member's spend is in the sum of the run", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{echoCall()}}, spent: []*teamv1.Spent{{InputTokens: 300, OutputTokens: 600}}}
		r := newRecord()
		r.process(t.Context(), nest(t, m, nil, nil, &teamv1.Limits{Retry: &teamv1.Retry{Attempts: proto.Int32(1)}}, true), nil)
		if r.err != nil || r.reply.GetSpent().GetOutputTokens() != 600 || endOf(t, r.events, "1").GetSpent().GetOutputTokens() != 600 {
			t.Error(r.err, r.reply.GetSpent(), endOf(t, r.events, "1"))
		}
	})
	t.Run("C-07 when nothing is left no delegation begins", func(t *testing.T) {
		m, r := model(), newRecord()
		ctx := spending.WithBudget(t.Context(), spending.NewBudget("", agent.LimitOf(tokens(1000)), agent.Cost{Tokens: 1000}))
		r.process(ctx, nest(t, m, nil, nil, nil, false), nil)
		wantReason(t, r.err, agent.ReasonBudgetExceeded)
		if events := ofStep(r.events, "1"); len(events) != 1 || events[0].GetEnded().GetOutcome() != teamv1.Outcome_OUTCOME_REJECTED {
			t.Error(events)
		}
	})
	t.Run("C-07 what is on record is spent after a crash, and so is what was reserved for a call that a crash cut off", func(t *testing.T) {
		interrupted := false
		for at := 1; ; at++ {
			m, r := model(), newRecord()
			n := 0
			r.process(t.Context(), nest(t, m, tokens(20_000), nil, nil, false), func(*teamv1.Event) bool { n++; return n < at })
			if r.reply != nil {
				break
			}
			calls := len(m.requests)
			m.turns = append(m.turns, m.turns...)
			cut := spending.SpentOn(r.events)
			r.process(t.Context(), nest(t, m, tokens(20_000), nil, nil, false), nil)
			if r.err != nil || r.reply == nil || len(m.requests) < 2 || len(m.requests) > calls+2 {
				t.Fatalf("after event %d: %v", at, r.err)
			}
			want := int64(1200)
			if cut.GetEstimated() {
				want += team.DefaultOutput
			}
			if got := spending.SpentOn(r.events); got.GetOutputTokens() != want || got.GetEstimated() != cut.GetEstimated() || !proto.Equal(got, r.reply.GetSpent()) {
				t.Fatalf("after event %d: %v, %v in the reply, %v before the crash", at, got, r.reply.GetSpent(), cut)
			}
			interrupted = interrupted || cut.GetEstimated()
		}
		if !interrupted {
			t.Error("no crash cut off a call")
		}
	})
}

// remoteFake is a member that is told its part and says what it spent.
type remoteFake struct {
	id    string
	told  []*teamv1.Limits
	reply func(ctx context.Context, req *teamv1.ProcessRequest) (*teamv1.Spent, error)
}

func (f *remoteFake) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: f.id}, nil
}
func (f *remoteFake) HealthCheck(context.Context) (*teamv1.Health, error) {
	return agent.Healthy(), nil
}
func (f *remoteFake) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		f.told = append(f.told, req.GetEnvelope())
		spent, err := f.reply(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("ok")}, Spent: spent}), nil)
	}
}

func TestC_07_Envelopes(t *testing.T) {
	spends := func(n int64) func(context.Context, *teamv1.ProcessRequest) (*teamv1.Spent, error) {
		return func(ctx context.Context, _ *teamv1.ProcessRequest) (*teamv1.Spent, error) {
			return &teamv1.Spent{OutputTokens: n, CostMicros: n}, agent.Sleep(ctx, time.Second)
		}
	}
	t.Run("C-07 a remote member is told what is left, and what it spent is gone", func(t *testing.T) {
		a, b := &remoteFake{id: "a", reply: spends(300)}, &remoteFake{id: "b", reply: spends(100)}
		reg := registry{"a": a, "b": b}
		synctest.Test(t, func(t *testing.T) {
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a", "b"), Members: members("a", "b"), Registry: reg,
				Limits: &teamv1.Limits{MaxTokens: proto.Int64(1000), MaxCost: proto.Float64(0.002)}})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			if r.err != nil || a.told[0].GetMaxTokens() != 1000 || a.told[0].GetMaxCost() != 0.002 || b.told[0].GetMaxTokens() != 700 || b.told[0].GetMaxCost() != 0.0017 {
				t.Error(r.err, a.told, b.told)
			}
			if got := ofStep(r.events, "2")[0].GetStarted().GetReserved(); got.GetOutputTokens() != 700 || got.GetCostMicros() != 1700 {
				t.Error(got)
			}
		})
	})
	t.Run("C-07 side by side they share, so that together they cannot overspend", func(t *testing.T) {
		reg := registry{}
		for _, id := range []string{"a", "b", "c"} {
			reg[id] = &remoteFake{id: id, reply: spends(10)}
		}
		synctest.Test(t, func(t *testing.T) {
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("a"), to("b"), to("c")}), Members: members("a", "b", "c"), Registry: reg,
				Limits: &teamv1.Limits{MaxTokens: proto.Int64(900)}})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			for id, a := range reg {
				if got := a.(*remoteFake).told; r.err != nil || len(got) != 1 || got[0].GetMaxTokens() != 300 || got[0].MaxCost != nil { //nolint:forcetypeassert,protogetter // they are; set or not matters
					t.Error(id, r.err, got)
				}
			}
		})
	})
	t.Run("C-07 a member that exceeds its part is a failed member", func(t *testing.T) {
		over := agent.Errorf(agent.CodeInternal, agent.ReasonBudgetExceeded, "its budget is used up").With(agent.DetailSetBy, agent.SetByCaller)
		over.Spent = &teamv1.Spent{OutputTokens: 5}
		a := &remoteFake{id: "a", reply: func(context.Context, *teamv1.ProcessRequest) (*teamv1.Spent, error) { return nil, over }}
		tm := newTeamWith(t, team.Config{ID: "root", Scheduler: next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) > 0 {
				return team.Decision{Reply: agent.NewMessage(s.Steps[0].Err.Reason)}, nil
			}
			return delegateTo("a"), nil
		}), Members: members("a"), Registry: registry{"a": a}, ReportErrors: true, Limits: &teamv1.Limits{MaxTokens: proto.Int64(900)}})
		r := newRecord()
		r.process(t.Context(), tm, nil)
		if r.err != nil || agent.Text(r.reply.GetMessage()) != agent.ReasonBudgetExceeded || len(a.told) != 1 || r.reply.GetSpent().GetOutputTokens() != 5 {
			t.Error(r.err, r.reply, a.told)
		}
	})
	for name, c := range map[string]struct{ limits, part *teamv1.Limits }{
		"tokens": {&teamv1.Limits{MaxTokens: proto.Int64(900)}, &teamv1.Limits{MaxTokens: proto.Int64(450)}},
		"money":  {&teamv1.Limits{MaxCost: proto.Float64(0.0009)}, &teamv1.Limits{MaxCost: proto.Float64(0.00045)}},
	} {
		t.Run("C-07 after a crash a member that works keeps the part it was told: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := &remoteFake{id: "a", reply: spends(10)}, &remoteFake{id: "b", reply: spends(10)}
				tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("a"), to("b")}), Members: members("a", "b"), Registry: registry{"a": a, "b": b},
					Limits: c.limits})
				r := newRecord()
				started := 0
				r.process(t.Context(), tm, func(ev *teamv1.Event) bool {
					if ev.GetStarted() != nil {
						started++
					}
					return started < 2
				})
				a.told, b.told = nil, nil
				r.process(t.Context(), tm, nil)
				if r.err != nil || len(a.told) != 1 || len(b.told) != 1 || !proto.Equal(a.told[0], c.part) || !proto.Equal(b.told[0], c.part) {
					t.Error(r.err, a.told, b.told)
				}
			})
		})
	}
	t.Run("C-07 what teams side by side have is shared below them, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := &remoteFake{id: "a", reply: spends(10)}, &remoteFake{id: "b", reply: spends(10)}
			reg := registry{"a": a, "b": b}
			reg["x"] = newTeamWith(t, team.Config{ID: "x", Scheduler: inOrder("a"), Members: members("a"), Registry: reg})
			reg["y"] = newTeamWith(t, team.Config{ID: "y", Scheduler: inOrder("b"), Members: members("b"), Registry: reg})
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("x"), to("y")}), Members: members("x", "y"), Registry: reg,
				Limits: &teamv1.Limits{MaxTokens: proto.Int64(900)}})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			if r.err != nil || a.told[0].GetMaxTokens() != 450 || b.told[0].GetMaxTokens() != 450 {
				t.Error(r.err, a.told, b.told)
			}
		})
	})
	t.Run("S-60 what a member has cost that was stopped for its time is on record", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := &remoteFake{id: "a", reply: func(ctx context.Context, _ *teamv1.ProcessRequest) (*teamv1.Spent, error) {
				<-ctx.Done()
				return nil, &agent.Error{Reason: agent.ReasonUnavailable, Spent: &teamv1.Spent{OutputTokens: 7}}
			}}
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a"), Members: members("a"), Registry: registry{"a": a},
				Limits: &teamv1.Limits{MaxTokens: proto.Int64(900), MemberTimeout: durationpb.New(time.Second)}})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			if e := wantReason(t, r.err, agent.ReasonTimeout); e.Spent.GetOutputTokens() != 7 || endOf(t, r.events, "1").GetSpent().GetOutputTokens() != 7 {
				t.Error(e.Spent, endOf(t, r.events, "1"))
			}
		})
	})
	t.Run("C-07 who waits for siblings to give back gets it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "hello"}}}, spent: []*teamv1.Spent{{InputTokens: 1, OutputTokens: 1}}}
			reg := registry{"a": &remoteFake{id: "a", reply: spends(10)}, "w": limitedAgent(t, "w", m, nil)}
			tm := newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("a"), to("w")}), Members: members("a", "w"), Registry: reg,
				Limits: &teamv1.Limits{MaxTokens: proto.Int64(1500)}})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			if r.err != nil || m.requests[0].MaxOutput < 700 { // not 1500/2, less the prompt
				t.Error(r.err, m.requests[0].MaxOutput)
			}
		})
	})
}

// finalizing is a team of a leader alone, which answers at its limits with what there is.
func finalizing(t *testing.T, m agent.Model, c team.Config) *team.Team {
	t.Helper()
	tools := []agent.Tool{echoTool{}}
	lead, err := leader.NewCoordinator(leader.CoordinatorConfig{Tools: tools, OnLimit: leader.Finalize, Limits: c.Limits})
	if err != nil {
		t.Fatal(err)
	}
	c.Scheduler, c.Model, c.Tools, c.ReportErrors = lead, m, tools, true
	return newTeamWith(t, c)
}

func TestC_07_Finalize(t *testing.T) {
	root := func(t *testing.T, m agent.Model, limit int64) *team.Team {
		return finalizing(t, m, team.Config{ID: "root", Limits: &teamv1.Limits{MaxTokens: proto.Int64(limit)}})
	}
	t.Run("C-07 at the limit there is enough for one turn without tools", func(t *testing.T) {
		for limit := int64(3000); limit < 12_000; limit += 250 {
			m := &priced{spent: []*teamv1.Spent{{InputTokens: 200, OutputTokens: 700}}}
			for range 50 {
				m.turns = append(m.turns, echoCall())
			}
			r := newRecord()
			r.process(t.Context(), root(t, &finalModel{m}, limit), nil)
			last := m.requests[len(m.requests)-1]
			if r.err != nil || agent.Text(r.reply.GetMessage()) != "summed up" || len(last.Tools) != 0 || last.MaxOutput < team.LeastOutput {
				t.Fatalf("limit %d: %v, %d calls, %+v", limit, r.err, len(m.requests), last)
			}
			if got := agent.CostOf(spending.SpentOn(r.events)).Tokens; got > limit {
				t.Fatalf("limit %d: spent %d", limit, got)
			}
		}
	})
	t.Run("C-07 where there is not, the run fails", func(t *testing.T) {
		m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{echoCall(), echoCall()}}}
		r := newRecord()
		r.process(t.Context(), root(t, &finalModel{m}, 90), nil)
		wantReason(t, r.err, agent.ReasonBudgetExceeded)
	})
}

// finalModel answers when it has no tools.
type finalModel struct{ *priced }

func (m *finalModel) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	if len(req.Tools) == 0 {
		m.turns = append(m.turns[:len(m.requests):len(m.requests)], &teamv1.Turn{Text: "summed up"})
	}
	return m.priced.Generate(ctx, req)
}

// BenchmarkBudget is a run of ten model turns, with and without a budget.
func BenchmarkBudget(b *testing.B) {
	for name, limits := range map[string]*teamv1.Limits{"none": nil, "tokens": {MaxTokens: proto.Int64(1 << 40)}} {
		b.Run(name, func(b *testing.B) {
			a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Limits: limits, Tools: []agent.Tool{echoTool{}}, Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
				if len(req.Messages) < 18 {
					return echoCall()
				}
				return &teamv1.Turn{Text: "done"}
			})})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := agent.Reply(b.Context(), a, agent.UserMessage("m", "hi")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// away begins tasks that nobody here sees.
type away struct{ begun []*teamv1.Spawned }

func (a *away) Detach(_ context.Context, s *teamv1.Spawned) error {
	a.begun = append(a.begun, proto.CloneOf(s))
	return nil
}
func (*away) Detached(context.Context, string) (*teamv1.Ended, error) { return nil, nil }

func TestC_07_DetachedWorkTakesItsPartAlong(t *testing.T) {
	m := &priced{turnsOf: turnsOf{turns: []*teamv1.Turn{{Text: "a"}}}}
	reg := registry{"w": limitedAgent(t, "w", m, nil), "far": &remoteFake{id: "far", reply: func(context.Context, *teamv1.ProcessRequest) (*teamv1.Spent, error) { return nil, nil }}}
	tm := newTeamWith(t, team.Config{ID: "root", Members: members("w", "far"), Registry: reg, Limits: &teamv1.Limits{MaxTokens: proto.Int64(1000)},
		Scheduler: next(func(s *team.State) (team.Decision, error) {
			switch n := len(s.Steps); {
			case len(s.Open()) > 0:
				return team.Decision{}, nil
			case n == 0:
				return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "w", Async: true, Detached: true}}}, nil
			case n == 1:
				return delegateTo("far"), nil
			}
			return team.Decision{Reply: agent.NewMessage("done")}, nil
		})})
	for at := 1; ; at++ {
		a, r, n := &away{}, newRecord(), 0
		r.run.Detacher = a
		far := reg["far"].(*remoteFake) //nolint:forcetypeassert // it is
		far.told = nil
		r.process(t.Context(), tm, func(*teamv1.Event) bool { n++; return n < at })
		whole := r.reply != nil
		if !whole {
			r.process(t.Context(), tm, nil)
		}
		if r.err != nil || r.reply == nil {
			t.Fatal(at, r.err)
		}
		// It shares with the team, which goes on: each has a half.
		if s := a.begun[len(a.begun)-1]; s.GetBudget().GetOutputTokens() != 500 || spending.PartLimits(s.GetBudget()).GetMaxTokens() != 500 {
			t.Error(at, s)
		}
		if got := far.told[len(far.told)-1].GetMaxTokens(); got != 500 {
			t.Errorf("after event %d: the others have %d left, the part came back", at, got)
		}
		if len(m.requests) != 0 || agent.CostOf(r.reply.GetSpent()) != (agent.Cost{}) {
			t.Error(at, "it is no cost of this run:", r.reply.GetSpent())
		}
		if whole {
			return
		}
	}
}

// pricedFar is a member on another server that reports no cost, and whose tasks have a fixed one. A
// call begins a task, which later calls with the same key continue.
type pricedFar struct {
	*remoteFake
	tasks map[string]bool // by key
}

func (*pricedFar) TaskCost() int64 { return 400 }

func (f *pricedFar) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		f.tasks[req.GetKey()] = true
		if !slices.ContainsFunc(req.GetRecorded(), func(ev *teamv1.Event) bool { return ev.GetBound() != nil }) &&
			!yield(&teamv1.Event{Scope: req.GetScope(), Kind: &teamv1.Event_Bound{Bound: &teamv1.Bound{TaskId: "far"}}}, nil) {
			return
		}
		f.remoteFake.Process(ctx, req)(yield)
	}
}

func TestC_07_CostOfTasks(t *testing.T) {
	far := func(reply func(context.Context, *teamv1.ProcessRequest) (*teamv1.Spent, error)) (*pricedFar, *team.Team) {
		f := &pricedFar{&remoteFake{id: "far", reply: reply}, map[string]bool{}}
		return f, newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("far"), Members: members("far"), Registry: registry{"far": f},
			Limits: &teamv1.Limits{MaxCost: proto.Float64(0.01), Retry: &teamv1.Retry{Backoff: durationpb.New(1)}}})
	}
	t.Run("C-07 a task that a retry continues is booked once", func(t *testing.T) {
		for _, reported := range []int64{0, 900} {
			calls := 0
			f, tm := far(func(context.Context, *teamv1.ProcessRequest) (*teamv1.Spent, error) {
				if calls++; calls < 3 {
					return nil, &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Message: "broken", Retry: true}
				}
				return &teamv1.Spent{CostMicros: reported}, nil
			})
			r := newRecord()
			r.process(t.Context(), tm, nil)
			if got := r.reply.GetSpent().GetCostMicros(); r.err != nil || len(f.tasks) != 1 || got != max(reported, 400) {
				t.Errorf("%d tasks cost %d, %v", len(f.tasks), got, r.err)
			}
		}
	})
	t.Run("C-07 tasks that retries begin anew are all booked", func(t *testing.T) {
		calls := 0
		f, tm := far(func(context.Context, *teamv1.ProcessRequest) (*teamv1.Spent, error) {
			if calls++; calls < 3 {
				return nil, &agent.Error{Reason: agent.ReasonUnavailable, Code: agent.CodeUnavailable, Message: "failed", Retry: true, Fresh: true}
			}
			return nil, nil
		})
		r := newRecord()
		r.process(t.Context(), tm, nil)
		if got := r.reply.GetSpent().GetCostMicros(); r.err != nil || len(f.tasks) != 3 || got != 1200 {
			t.Errorf("%d tasks cost %d, %v", len(f.tasks), got, r.err)
		}
	})
	t.Run("C-07 a task that a cancel closes after a crash is booked once", func(t *testing.T) {
		for _, at := range []func(*teamv1.Event) bool{
			func(ev *teamv1.Event) bool { return ev.GetStarted() != nil && ev.GetScope() == "1" },
			func(ev *teamv1.Event) bool { return ev.GetBound() != nil },
		} {
			f, tm := far(func(ctx context.Context, _ *teamv1.ProcessRequest) (*teamv1.Spent, error) {
				return nil, &agent.Error{Reason: agent.ReasonCanceled, Code: agent.CodeAborted, Message: "canceled", Err: context.Cause(ctx)}
			})
			r := newRecord()
			r.process(t.Context(), tm, func(ev *teamv1.Event) bool { return !at(ev) })
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(agent.ErrCanceled)
			r.process(ctx, tm, nil)
			if got := endOf(t, r.events, "1").GetSpent().GetCostMicros(); got != 400 {
				t.Errorf("%d tasks cost %d, %v\n%v", len(f.tasks), got, r.err, r.events)
			}
		}
	})
	t.Run("C-07 a detached task is booked by its own run", func(t *testing.T) {
		_, tm := far(nil)
		c := *tm.Config()
		c.Scheduler = next(func(s *team.State) (team.Decision, error) {
			if len(s.Steps) == 0 {
				return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "far", Async: true, Detached: true}}}, nil
			}
			return team.Decision{Reply: agent.NewMessage("done")}, nil
		})
		r := newRecord()
		r.run.Detacher = &away{}
		r.process(t.Context(), newTeamWith(t, c), nil)
		if got := r.reply.GetSpent().GetCostMicros(); r.err != nil || got != 0 {
			t.Error(r.err, got)
		}
	})
}
