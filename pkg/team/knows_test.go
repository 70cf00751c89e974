package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
)

// fixedTool answers each call with the same result.
type fixedTool struct {
	name   string
	result *teamv1.ToolResult
}

func (f fixedTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: f.name} }
func (f fixedTool) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return proto.CloneOf(f.result), nil
}

// TestRepeatedCall: a model that makes the same failing call again and again is told so, and then the
// run ends.
func TestRepeatedCall(t *testing.T) {
	t.Parallel()
	broken := fixedTool{"query", &teamv1.ToolResult{Text: "no such table", IsError: true}}
	run := func(limits *teamv1.Limits, arguments func(n int) string) (*record, []*agent.ModelRequest) {
		var requests []*agent.ModelRequest
		a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Limits: limits, Tools: []agent.Tool{broken}, Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
			requests = append(requests, req)
			if len(req.Tools) == 0 {
				return &teamv1.Turn{Text: "I could not"}
			}
			return calls(tool("query", arguments(len(requests))))
		})})
		if err != nil {
			t.Fatal(err)
		}
		r := newRecord()
		r.process(t.Context(), a, nil)
		return r, requests
	}
	same := func(n int) string { return []string{`{"a":1,"b":2}`, `{ "b": 2, "a": 1 }`}[n%2] }
	r, requests := run(nil, same)
	if e := wantReason(t, r.err, agent.ReasonRepeatedCall); len(requests) != 6 || !strings.Contains(e.Message, "called query with the same arguments and got the same error in 6 turns") || !strings.Contains(e.Message, "limits.max_repeated_calls") {
		t.Error(len(requests), e)
	}
	for i, req := range requests {
		if told := strings.Contains(lastSaid(req), fmt.Sprintf("has failed %d times", i)); told != (i >= 3) {
			t.Errorf("turn %d: told %v: %s", i+1, told, lastSaid(req))
		}
	}
	if r, requests = run(&teamv1.Limits{MaxRepeatedCalls: proto.Int32(2)}, same); len(requests) != 2 {
		t.Error(len(requests), r.err)
	}
	r, requests = run(&teamv1.Limits{MaxTurns: proto.Int32(9)}, func(n int) string { return fmt.Sprintf(`{"n":%d}`, n) })
	if wantReason(t, r.err, agent.ReasonMaxIterations); len(requests) != 9 {
		t.Error("other arguments are no repetition: ", len(requests))
	}
	r, requests = run(&teamv1.Limits{MaxTurns: proto.Int32(9), MaxRepeatedCalls: proto.Int32(0)}, same)
	if wantReason(t, r.err, agent.ReasonMaxIterations); len(requests) != 9 {
		t.Error("0 is no limit: ", len(requests))
	}
	r, requests = run(&teamv1.Limits{OnLimit: teamv1.OnLimit_FINALIZE}, same)
	if r.err != nil || agent.Text(r.reply.GetMessage()) != "I could not" || len(requests) != 7 {
		t.Error(r.err, r.reply, len(requests))
	}
}

// windowed is a model with a context of so many tokens. It refuses requests with more than three bytes
// for each.
type windowed struct {
	tokens, says int64 // what it takes, and what it says that it takes
	turns        []*teamv1.Turn
	requests     []*agent.ModelRequest
}

func (w *windowed) Name() string       { return "windowed" }
func (w *windowed) Files() agent.Files { return agent.Files{Types: agent.TextFiles, Window: w.says} }

func (w *windowed) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		turn, err := w.turn(req)
		if err != nil {
			yield(agent.ModelChunk{}, err)
			return
		}
		yield(agent.ModelChunk{Turn: turn, Spent: &teamv1.Spent{}}, nil)
	}
}

func (w *windowed) turn(req *agent.ModelRequest) (*teamv1.Turn, error) {
	w.requests = append(w.requests, req)
	size := 0
	for _, m := range req.Messages {
		size += len(m.Text)
	}
	if int64(size) > 3*w.tokens {
		return nil, &agent.Error{Reason: agent.ReasonContextTooLong, Message: "the request is longer than the model's context", Fresh: true}
	}
	turn := w.turns[0]
	w.turns = w.turns[1:]
	return turn, nil
}

// TestLongResults: the results of tools are cut to what the context of the model allows, and a request
// that cannot fit has its older results shortened instead of being lost.
func TestLongResults(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789", 3000)
	big := fixedTool{"big", &teamv1.ToolResult{Text: text}}
	run := func(m *windowed) *record {
		a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Tools: []agent.Tool{big}, Model: m})
		if err != nil {
			t.Fatal(err)
		}
		r := newRecord()
		r.process(t.Context(), a, nil)
		return r
	}
	t.Run("one result, and it can be read on", func(t *testing.T) {
		t.Parallel()
		m := &windowed{tokens: 8000, says: 8000, turns: []*teamv1.Turn{calls(tool("big", "{}")), calls(tool("read_result", `{"id":"2","offset":8000}`)), says("done")}}
		if r := run(m); r.err != nil || agent.Text(r.reply.GetMessage()) != "done" {
			t.Fatal(r.err, r.reply)
		}
		has(t, lastSaid(m.requests[1]), text[:8000], "[the first 8000 of 30000 bytes", `"2"`, "read_result from offset 8000")
		has(t, lastSaid(m.requests[2]), text[8000:16000], "read on from offset 16000")
		if n := len(m.requests[1].Tools); n != 2 {
			t.Errorf("%d tools, want big and read_result", n)
		}
	})
	t.Run("many results: the older ones are shortened", func(t *testing.T) {
		t.Parallel()
		m := &windowed{tokens: 12000, says: 12000}
		for range 6 {
			m.turns = append(m.turns, calls(tool("big", "{}")))
		}
		m.turns = append(m.turns, says("done"))
		if r := run(m); r.err != nil || agent.Text(r.reply.GetMessage()) != "done" || len(m.requests) != 7 {
			t.Fatal(r.err, r.reply, len(m.requests))
		}
		last := m.requests[6].Messages
		if n := len(last[len(last)-1].Text); n < 12000 {
			t.Errorf("the last result has %d bytes", n)
		}
		if n := len(last[2].Text); n > 1500 {
			t.Errorf("the first result has %d bytes", n)
		}
	})
	t.Run("a context that is smaller than it says", func(t *testing.T) {
		t.Parallel()
		m := &windowed{tokens: 6000, turns: []*teamv1.Turn{calls(tool("big", "{}")), says("done")}}
		if r := run(m); r.err != nil || agent.Text(r.reply.GetMessage()) != "done" || len(m.requests) != 3 {
			t.Fatal(r.err, r.reply, len(m.requests))
		}
	})
	t.Run("nothing can be shortened", func(t *testing.T) {
		t.Parallel()
		m := &windowed{tokens: 1, turns: []*teamv1.Turn{says("done")}}
		wantReason(t, run(m).err, agent.ReasonContextTooLong)
	})
}

// unending is a model that writes pieces and does not end.
type unending struct{ pieces []string }

func (unending) Name() string { return "unending" }

func (s unending) Generate(ctx context.Context, _ *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		for _, p := range s.pieces {
			if !yield(agent.ModelChunk{Text: p}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(agent.ModelChunk{}, context.Cause(ctx))
	}
}

// endlessTool answers when its call is canceled.
type endlessTool struct{ echoTool }

func (endlessTool) Call(ctx context.Context, _ json.RawMessage, _ string) (*teamv1.ToolResult, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestFinalize: at a limit a run hands back what there is, in every mode.
func TestFinalize(t *testing.T) {
	t.Parallel()
	finalize := func(l *teamv1.Limits) *teamv1.Limits {
		l.OnLimit = teamv1.OnLimit_FINALIZE
		return l
	}
	t.Run("steps of a supervisor", func(t *testing.T) {
		t.Parallel()
		for _, on := range []bool{true, false} {
			limits := &teamv1.Limits{MaxSteps: proto.Int32(2)}
			if on {
				limits = finalize(limits)
			}
			var d diary
			r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a", "b", "c"), Members: members("a", "b", "c"), Registry: d.crew("a", "b", "c"), Limits: limits}), "x")
			if !on {
				wantReason(t, r.err, agent.ReasonMaxIterations)
				continue
			}
			if r.err != nil || r.text() != "b(a(x))" {
				t.Fatal(r.text(), r.err)
			}
			if w := r.reply.GetWarnings(); len(w) != 1 || !strings.Contains(w[0], "ended early") || !strings.Contains(w[0], "max_steps") {
				t.Error(w)
			}
			r.complete(t)
		}
	})
	t.Run("members that worked together", func(t *testing.T) {
		t.Parallel()
		var d diary
		r := watch(t.Context(), newTeamWith(t, team.Config{
			ID: "t1", Scheduler: batches([]*teamv1.Step{to("a"), to("b")}, []*teamv1.Step{to("c")}), Members: members("a", "b", "c"), Registry: d.crew("a", "b", "c"),
			Limits: finalize(&teamv1.Limits{MaxSteps: proto.Int32(1)}),
		}), "x")
		if r.err != nil {
			t.Fatal(r.err)
		}
		has(t, r.text(), "a(x)", "b(x)")
	})
	t.Run("time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.crew("a")["a"], "b": d.takes("b", time.Hour)}
			r := watch(t.Context(), newTeamWith(t, team.Config{
				ID: "t1", Scheduler: inOrder("a", "b"), Members: members("a", "b"), Registry: reg, Limits: finalize(&teamv1.Limits{Timeout: durationpb.New(time.Minute), MemberTimeout: durationpb.New(time.Minute)}),
			}), "x")
			if r.err != nil || r.text() != "a(x)" {
				t.Error(r.text(), r.err)
			}
		})
	})
	t.Run("an agent that has no time to end its answer", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			pieces []string
			on     teamv1.OnLimit_Value
			want   string
		}{
			"a part":        {[]string{"so far ", "so good"}, teamv1.OnLimit_FINALIZE, "so far so good"},
			"nothing":       {nil, teamv1.OnLimit_FINALIZE, ""},
			"not if it may": {[]string{"so far"}, teamv1.OnLimit_FAIL, ""},
		} {
			synctest.Test(t, func(t *testing.T) {
				a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Model: unending{pieces: c.pieces}, Limits: &teamv1.Limits{Timeout: durationpb.New(time.Minute), OnLimit: c.on}})
				if err != nil {
					t.Fatal(err)
				}
				r := newRecord()
				r.process(t.Context(), a, nil)
				if c.want == "" {
					wantReason(t, r.err, agent.ReasonTimeout)
					return
				}
				if r.err != nil || agent.Text(r.reply.GetMessage()) != c.want {
					t.Fatal(name, r.reply, r.err)
				}
				if w := r.reply.GetWarnings(); len(w) != 1 || !strings.Contains(w[0], "limits.timeout") {
					t.Error(name, w)
				}
			})
		}
	})
	t.Run("an agent that works with a tool", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			turn := calls(tool("echo", "{}"))
			turn.Text = "Let me look this up."
			a, err := leader.NewAgent(leader.AgentConfig{
				ID: "m", Model: modelFunc(func(*agent.ModelRequest) *teamv1.Turn { return turn }), Tools: []agent.Tool{endlessTool{}},
				Limits: finalize(&teamv1.Limits{Timeout: durationpb.New(time.Minute)}),
			})
			if err != nil {
				t.Fatal(err)
			}
			r := newRecord()
			r.process(t.Context(), a, nil)
			wantReason(t, r.err, agent.ReasonTimeout)
		})
	})
	t.Run("a swarm in which nobody has answered", func(t *testing.T) {
		t.Parallel()
		reg := registry{"a": &mover{Func: skilled("a"), targets: []string{"b", "b", "b"}}, "b": &mover{Func: skilled("b"), targets: []string{"a", "a", "a"}}}
		r := watch(t.Context(), swarmOf(t, reg, func(c *swarm.Config, cfg *team.Config) {
			c.Limits = finalize(&teamv1.Limits{MaxHandoffs: proto.Int32(2)})
			cfg.Limits = c.Limits
		}), "x")
		if e := wantReason(t, r.err, agent.ReasonMaxHandoffs); !strings.Contains(e.Message, "limits.max_handoffs") || r.reply != nil {
			t.Error(e, r.reply)
		}
	})
	t.Run("nothing to hand back", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var d diary
			r := watch(t.Context(), newTeamWith(t, team.Config{
				ID: "t1", Scheduler: inOrder("a"), Members: members("a"), Registry: registry{"a": d.takes("a", time.Hour)}, Limits: finalize(&teamv1.Limits{Timeout: durationpb.New(time.Minute)}),
			}), "x")
			wantReason(t, r.err, agent.ReasonTimeout)
		})
	})
	t.Run("required work is missing", func(t *testing.T) {
		t.Parallel()
		var d diary
		ms := members("a", "b")
		ms[1].Required = true
		r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a", "b"), Members: ms, Registry: d.crew("a", "b"), Limits: finalize(&teamv1.Limits{MaxSteps: proto.Int32(1)})}), "x")
		wantReason(t, r.err, agent.ReasonMaxIterations)
	})
}

// TestLeft: a leader with a budget is told what is left of it before each turn but the first, and is
// told the same again in later turns.
func TestLeft(t *testing.T) {
	t.Parallel()
	var d diary
	m := leads(t, calls(give("a", "one")), calls(give("a", "two")), says("done"))
	limits := &teamv1.Limits{MaxTokens: proto.Int64(100000)}
	r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *leader.CoordinatorConfig, cfg *team.Config) { c.Limits, cfg.Limits = limits, limits }), "x")
	if r.err != nil {
		t.Fatal(r.err)
	}
	first, second, third := m.all()[0], m.all()[1], m.all()[2]
	if strings.Contains(lastSaid(first), "Left for this run") {
		t.Error(lastSaid(first))
	}
	has(t, lastSaid(second), "[Left for this run: ", " tokens, 9 delegations]")
	has(t, lastSaid(third), " tokens, 8 delegations]")
	if second.Messages[len(second.Messages)-1].Text != third.Messages[len(second.Messages)-1].Text {
		t.Error("an earlier message has changed")
	}
}

// TestLeft_OfTheCaller: what is left is the smaller of the leader's own limits and those above it.
func TestLeft_OfTheCaller(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own   *teamv1.Limits
		above agent.Cost
		want  string
	}{
		"none of its own": {nil, agent.Cost{Tokens: agent.Unlimited, Micros: 5_000_000}, "[Left for this run: 5.0000 USD, 9 delegations]"},
		"a smaller one":   {&teamv1.Limits{MaxCost: proto.Float64(9)}, agent.Cost{Tokens: agent.Unlimited, Micros: 5_000_000}, "[Left for this run: 5.0000 USD, 9 delegations]"},
		"a larger one":    {&teamv1.Limits{MaxCost: proto.Float64(2)}, agent.Cost{Tokens: agent.Unlimited, Micros: 5_000_000}, "[Left for this run: 2.0000 USD, 9 delegations]"},
		"none":            {nil, agent.NoLimit(), ""},
	} {
		var d diary
		m := leads(t, calls(give("a", "one")), says("done"))
		ctx := spending.WithBudget(t.Context(), spending.NewBudget("", c.above, agent.Cost{}))
		r := watch(ctx, ledBy(t, m, d.crew("a"), func(l *leader.CoordinatorConfig, cfg *team.Config) { l.Limits, cfg.Limits = c.own, c.own }), "x")
		if r.err != nil {
			t.Fatal(name, r.err)
		}
		if said := lastSaid(m.all()[1]); !strings.HasSuffix(said, c.want) || c.want == "" && strings.Contains(said, "Left for") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestPastCalls: a conversation shows the last tool calls before the answers that they led to.
func TestPastCalls(t *testing.T) {
	t.Parallel()
	answer := func(text string, results ...string) *a2av1.Message {
		var list []any
		for _, r := range results {
			list = append(list, map[string]any{"tool": "lookup", "arguments": `{"q":1}`, "result": r})
		}
		m := agent.NewMessage(text)
		m.Metadata, _ = structpb.NewStruct(map[string]any{agent.ToolCallsKey: list})
		return m
	}
	history := []*a2av1.Message{agent.UserMessage("h1", "order 7?"), answer("shipped", "order 7: shipped", "order 8: lost"), agent.UserMessage("h2", "and 9?"), answer("lost", "order 9: lost")}
	history[3].Metadata.Fields[agent.ToolCallsKey].GetListValue().GetValues()[0].GetStructValue().Fields["error"] = structpb.NewBoolValue(true)
	for remembers, want := range map[int][]string{
		20: {"user: order 7?", "user: Tools … order 7: shipped order 8: lost", "assistant: shipped", "user: and 9?", "user: Tools … failed: order 9: lost", "assistant: lost", "user: refund it"},
		2:  {"user: order 7?", "user: Tools … order 8: lost", "assistant: shipped", "user: and 9?", "user: Tools … failed: order 9: lost", "assistant: lost", "user: refund it"},
		0:  {"user: order 7?", "assistant: shipped", "user: and 9?", "assistant: lost", "user: refund it"},
	} {
		m := leads(t, says("ok"))
		a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Model: m, ToolMemory: &remembers})
		if err != nil {
			t.Fatal(err)
		}
		watchRequest(t.Context(), a, &teamv1.ProcessRequest{AgentId: "m", Message: agent.UserMessage("m", "refund it"), History: history})
		var got []string
		for _, line := range heard(m.all()[0]) {
			if head, rest, ok := strings.Cut(line, "\n"); ok && strings.HasPrefix(head, "user: Tools that were called") {
				line = "user: Tools … " + strings.ReplaceAll(strings.ReplaceAll(rest, `- lookup {"q":1}: `, ""), "\n", " ")
			}
			got = append(got, line)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%d: %q, want %q", remembers, got, want)
		}
	}
}
