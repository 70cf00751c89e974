package team_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// diary notes who was called with what, in order.
type diary struct {
	mu    sync.Mutex
	calls []string
}

func (d *diary) note(call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.calls...)
}

// says is a member that answers with the results of f, one a call.
func (d *diary) says(id string, f func(text string) (string, error)) *agent.Func {
	return &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		d.note(id + " < " + agent.Text(m))
		text, err := f(agent.Text(m))
		if err != nil {
			return nil, err
		}
		return agent.NewMessage(text), nil
	}}
}

// crew is a registry of members that answer with their name around what they get.
func (d *diary) crew(ids ...string) registry {
	reg := registry{}
	for _, id := range ids {
		reg[id] = d.says(id, func(text string) (string, error) { return id + "(" + text + ")", nil })
	}
	return reg
}

func teamOf(t *testing.T, s team.Scheduler, reg registry, model agent.Model) *team.Team {
	t.Helper()
	return newTeamWith(t, team.Config{
		ID: "t1", Scheduler: s, Members: members(sortedKeys(reg)...), Registry: reg, Model: model,
		Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(1)}},
	})
}

// turnsOf is a model that takes these turns, one a call, and keeps what it was asked.
type turnsOf struct {
	mu       sync.Mutex
	turns    []*teamv1.Turn
	requests []*agent.ModelRequest
}

func (*turnsOf) Name() string { return "router" }

func (m *turnsOf) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.mu.Lock()
		n := len(m.requests)
		m.requests = append(m.requests, req)
		m.mu.Unlock()
		if n >= len(m.turns) {
			yield(agent.ModelChunk{}, &agent.Error{Code: agent.CodeUnavailable, Reason: agent.ReasonUnavailable, Message: "the model answered 500", Fresh: true})
			return
		}
		yield(agent.ModelChunk{Turn: m.turns[n]}, nil)
	}
}

func TestSupervisorTeam(t *testing.T) {
	t.Run("R-000-31 R-000-18 research, then writing, the writer's words are the answer", func(t *testing.T) {
		var d diary
		reg := d.crew("researcher", "writer")
		v, err := supervisor.New(supervisor.Config{Members: members(sortedKeys(reg)...), Rules: []supervisor.Rule{
			{When: "turn == 1", Next: []string{"researcher"}}, {When: "turn == 2", Next: []string{"writer"}}, {Finish: supervisor.FinishLast},
		}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := ask(t, teamOf(t, v, reg, nil), "tides")
		if err != nil || answer != "writer(researcher(tides))" {
			t.Error(answer, err)
		}
		if diff := cmp.Diff([]string{"researcher < tides", "writer < researcher(tides)"}, d.all()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-000-31 C-01 the router chooses, in one turn each, and finishes", func(t *testing.T) {
		var d diary
		reg := d.crew("researcher", "writer")
		m := &turnsOf{turns: []*teamv1.Turn{
			routeCall(`{"next": ["researcher"], "reason": "facts first"}`), {Text: "I would say: writer"},
			routeCall(`{"next": ["writer"], "reason": "now write", "message": "Write it."}`), {Text: "finish"},
		}}
		v, err := supervisor.New(supervisor.Config{Members: members(sortedKeys(reg)...), Router: &supervisor.Router{}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := ask(t, teamOf(t, v, reg, m), "tides")
		if err != nil || answer != "writer(Write it.)" || len(m.requests) != 4 {
			t.Error(answer, err, len(m.requests))
		}
		if got := m.requests[0].Messages; len(got) != 1 || got[0].Text != "tides" {
			t.Errorf("R-000-16: %+v", got)
		}
		if got := m.requests[2].Messages; len(got) != 4 || got[2].Text != "I would say: writer" || !strings.Contains(got[3].Text, "That is no choice") {
			t.Errorf("%+v", got)
		}
	})

	t.Run("C-16 several next work at the same time, joined in order", func(t *testing.T) {
		var d diary
		reg := d.crew("a", "b", "c")
		v, err := supervisor.New(supervisor.Config{Members: members(sortedKeys(reg)...), Rules: []supervisor.Rule{
			{When: "turn == 1", Next: []string{"c", "a", "b"}}, {When: "last.member == 'c, a, b'", Finish: supervisor.FinishLast},
		}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := ask(t, teamOf(t, v, reg, nil), "x")
		if err != nil || answer != "## c\n\nc(x)\n\n## a\n\na(x)\n\n## b\n\nb(x)" {
			t.Error(answer, err)
		}
	})

	t.Run("R-000-25 router model fails: SCHEDULER_ERROR that names it", func(t *testing.T) {
		var d diary
		reg := d.crew("writer")
		v, err := supervisor.New(supervisor.Config{Members: members("writer"), Router: &supervisor.Router{}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask(t, teamOf(t, v, reg, &turnsOf{}), "x")
		if e := wantReason(t, err, agent.ReasonSchedulerError); !strings.Contains(e.Message, "the model answered 500") {
			t.Error(err)
		}
	})

	t.Run("S-14 C-23 the same member with the same message: CYCLE_DETECTED on the second", func(t *testing.T) {
		var d diary
		reg := registry{"writer": d.says("writer", func(string) (string, error) { return "x", nil })}
		v, err := supervisor.New(supervisor.Config{Members: members("writer"), Rules: []supervisor.Rule{{Next: []string{"writer"}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask(t, teamOf(t, v, reg, nil), "x")
		wantReason(t, err, agent.ReasonCycleDetected)
		if len(d.all()) != 1 {
			t.Error(d.all())
		}
	})
}

func TestWorkflowTeam(t *testing.T) {
	t.Run("R-000-32 S-18 four steps in order, each with the previous result", func(t *testing.T) {
		var d diary
		w := flow(t, workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b", After: []string{"1"}},
			workflow.Step{ID: "3", Member: "c", After: []string{"2"}}, workflow.Step{ID: "4", Member: "a", After: []string{"3"}})
		answer, err := ask(t, teamOf(t, w, d.crew("a", "b", "c"), nil), "x")
		if err != nil || answer != "a(c(b(a(x))))" {
			t.Error(answer, err)
		}
		if diff := cmp.Diff([]string{"a < x", "b < a(x)", "c < b(a(x))", "a < c(b(a(x)))"}, d.all()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("S-18 C-02 hybrid: b and c at the same time", func(t *testing.T) {
		var d diary
		var both sync.WaitGroup
		both.Add(2)
		meet := func(text string) (string, error) { // ends when the other one runs as well
			both.Done()
			both.Wait()
			return text + "!", nil
		}
		reg := d.crew("a", "d")
		reg["b"], reg["c"] = d.says("b", meet), d.says("c", meet)
		w := flow(t, workflow.Step{ID: "a", Member: "a"},
			workflow.Step{After: []string{"a"}, Parallel: []workflow.Step{{ID: "b", Member: "b"}, {ID: "c", Member: "c"}}},
			workflow.Step{ID: "d", Member: "d", After: []string{"b", "c"}})
		answer, err := ask(t, teamOf(t, w, reg, nil), "x")
		if err != nil || answer != "d(## b\n\na(x)!\n\n## c\n\na(x)!)" {
			t.Error(answer, err)
		}
	})

	t.Run("S-14 C-23 a broadcast to two steps of one member is no cycle", func(t *testing.T) {
		var d diary
		w := flow(t, workflow.Step{ID: "de", Member: "a"}, workflow.Step{ID: "fr", Member: "a"})
		answer, err := ask(t, teamOf(t, w, d.crew("a"), nil), "x")
		if err != nil || answer != "## a (de)\n\na(x)\n\n## a (fr)\n\na(x)" {
			t.Error(answer, err)
		}
	})

	t.Run("ANY goes on with the first one, and the run does not wait for the other", func(t *testing.T) {
		var d diary
		reg := d.crew("fast", "end")
		reg["slow"] = &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		w := flow(t, workflow.Step{ID: "slow", Member: "slow"}, workflow.Step{ID: "fast", Member: "fast"},
			workflow.Step{ID: "end", Member: "end", After: []string{"slow", "fast"}, Join: workflow.JoinAny})
		answer, err := ask(t, teamOf(t, w, reg, nil), "x")
		if err != nil || answer != "end(fast(x))" {
			t.Error(answer, err)
		}
	})

	t.Run("repeat until it is good; when skips", func(t *testing.T) {
		var d diary
		round := 0
		reg := d.crew("a", "never")
		reg["fixer"] = d.says("fixer", func(string) (string, error) {
			round++
			return fmt.Sprintf(`{"ok": %t, "round": %d}`, round == 3, round), nil
		})
		w := flow(t, workflow.Step{ID: "fix", Member: "fixer", Repeat: &workflow.Repeat{Until: "steps.fix.data.ok", Max: 4}},
			workflow.Step{ID: "no", Member: "never", After: []string{"fix"}, When: "!steps.fix.data.ok"},
			workflow.Step{ID: "end", Member: "a", After: []string{"no"}})
		answer, err := ask(t, teamOf(t, w, reg, nil), "x")
		if err != nil || answer != `a({"ok": true, "round": 3})` || round != 3 {
			t.Error(answer, err, round)
		}
		if got := d.all()[1]; got != "fixer < x\n\n## Your last result\n\n"+`{"ok": false, "round": 1}` {
			t.Errorf("%q", got)
		}
	})

	t.Run("C-23 a repeat that is given the same again is a cycle", func(t *testing.T) {
		var d diary
		reg := registry{"a": d.says("a", func(string) (string, error) { return "no", nil })}
		w := flow(t, workflow.Step{ID: "fix", Member: "a", Repeat: &workflow.Repeat{Until: "steps.fix.data.ok", Max: 9}})
		_, err := ask(t, teamOf(t, w, reg, nil), "x")
		wantReason(t, err, agent.ReasonCycleDetected)
		if len(d.all()) != 2 {
			t.Error(d.all())
		}
	})

	t.Run("S-19 R-000-27 a failing step ends the run with its error; what follows is not called", func(t *testing.T) {
		var d diary
		reg := d.crew("a", "c")
		reg["b"] = failing("b", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))
		w := flow(t, workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b", After: []string{"1"}}, workflow.Step{ID: "3", Member: "c", After: []string{"2"}})
		_, err := ask(t, teamOf(t, w, reg, nil), "x")
		if e := wantReason(t, err, agent.ReasonAgentNotFound); e.Message != "no such book" || len(d.all()) != 1 {
			t.Error(err, d.all())
		}
	})

	t.Run("S-19 the team goes on after errors: dependents SKIPPED, others run", func(t *testing.T) {
		var d diary
		reg := d.crew("a", "c")
		reg["b"] = failing("b", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))
		w := flow(t, workflow.Step{ID: "bad", Member: "b"}, workflow.Step{ID: "next", Member: "c", After: []string{"bad"}}, workflow.Step{ID: "good", Member: "a"})
		tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Members: members("a", "b", "c"), Registry: reg, ReportErrors: true})
		answer, err := ask(t, tm, "x")
		if err != nil || answer != "a(x)" || len(d.all()) != 1 {
			t.Error(answer, err, d.all())
		}
	})
}

// play drives an agent without a journal and returns what is on record then.
func play(t *testing.T, a agent.Agent, recorded []*teamv1.Event) ([]*teamv1.Event, *teamv1.Reply) {
	t.Helper()
	req := &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m-1", "x"), Recorded: recorded}
	for ev, err := range a.Process(agent.With(t.Context(), &agent.Run{Root: crashRoot, Seed: 1}), req) {
		if err != nil {
			t.Fatal(err)
		}
		if r := ev.GetReply(); r != nil && ev.GetScope() == "" {
			return recorded, r
		}
		ev.Seq, ev.Time = int64(len(recorded)+1), timestamppb.Now()
		recorded = append(recorded[:len(recorded):len(recorded)], ev)
	}
	return recorded, nil
}

func TestWorkflowTeam_AsksPeople(t *testing.T) {
	var d diary
	w := flow(t, workflow.Step{ID: "draft", Member: "a"},
		workflow.Step{ID: "approve", After: []string{"draft"}, Human: &workflow.Human{Question: "Publish {{steps.draft.text}}?", Options: []string{"yes", "no"}}},
		workflow.Step{ID: "side", Member: "b", After: []string{"draft"}},
		workflow.Step{ID: "print", Member: "c", After: []string{"approve"}, When: "steps.approve.text == 'yes'", Task: "Print {{steps.draft.text}}"})
	tm := teamOf(t, w, d.crew("a", "b", "c"), nil)

	recorded, reply := play(t, tm, nil)
	var asked *teamv1.Event
	for _, ev := range recorded {
		if ev.GetAsked() != nil {
			asked = ev
		}
	}
	if reply != nil || asked == nil || agent.Text(asked.GetAsked().GetMessage()) != "Publish a(x)?" {
		t.Fatalf("it does not ask: %v, %v", reply, asked)
	}
	if left := time.Until(asked.GetAsked().GetExpires().AsTime()); left < team.DefaultQuestion-time.Minute || left > team.DefaultQuestion {
		t.Error("a question without a time stands for ", left)
	}
	if asked.GetAsked().GetKind() != teamv1.Asked_KIND_APPROVAL {
		t.Error("a choice is an approval: ", asked)
	}
	if diff := cmp.Diff([]string{"a < x", "b < a(x)"}, d.all()); diff != "" {
		t.Error("others run while it waits: ", diff)
	}
	recorded = append(recorded, &teamv1.Event{
		Seq: int64(len(recorded) + 1), Time: timestamppb.Now(), Scope: asked.GetScope(),
		Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: asked.GetAsked().GetQuestion(), Message: agent.UserMessage("m-2", "yes")}},
	})
	_, reply = play(t, tm, recorded)
	if got := agent.Text(reply.GetMessage()); got != "c(Print a(x))" {
		t.Errorf("%q", got)
	}
	if len(d.all()) != 3 {
		t.Error("a step ran twice: ", d.all())
	}
}

func TestWorkflowTeam_ResumesAfterEveryEvent(t *testing.T) {
	var d diary
	reg := d.crew("a", "b", "c")
	reg["fixer"] = d.says("fixer", func(text string) (string, error) {
		return fmt.Sprintf(`{"ok": %t}`, strings.Contains(text, "Your last result")), nil
	})
	w := flow(t, workflow.Step{ID: "draft", Member: "a"},
		workflow.Step{ID: "more", Member: "b", After: []string{"draft"}},
		workflow.Step{ID: "fix", Member: "fixer", After: []string{"draft"}, Repeat: &workflow.Repeat{Until: "steps.fix.data.ok"}},
		workflow.Step{ID: "no", Member: "c", After: []string{"fix"}, When: "!steps.fix.data.ok"},
		workflow.Step{ID: "end", Member: "c", After: []string{"more", "no"}})
	tm := teamOf(t, w, reg, nil)
	recorded, reply := play(t, tm, nil)
	want := agent.Text(reply.GetMessage())
	if want != "c(b(a(x)))" {
		t.Fatalf("%q", want)
	}
	for i := range recorded {
		d.calls = nil
		_, reply := play(t, tm, recorded[:i])
		if got := agent.Text(reply.GetMessage()); got != want {
			t.Errorf("after %d events: %q", i, got)
		}
	}
	if len(d.all()) != 0 {
		t.Error("with everything on record somebody was called: ", d.all())
	}
}
