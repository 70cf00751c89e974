package team_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/inputs"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// mind is a model with an effect: its turns, by how often it has spoken in the
// prompt. A new process has a new one, that remembers nothing.
type mind struct {
	w     *world
	name  string
	turns []func(req *agent.ModelRequest) *teamv1.Turn
}

func (m *mind) Name() string { return m.name }

func (m *mind) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		m.w.effect(m.name, req.Key)
		if err := wellFormed(req); err != nil {
			m.w.mu.Lock()
			m.w.faults = append(m.w.faults, m.name+": "+err.Error())
			m.w.mu.Unlock()
		}
		n := 0
		for _, msg := range req.Messages {
			if msg.Role == agent.RoleAssistant {
				n++
			}
		}
		yield(agent.ModelChunk{Turn: m.turns[min(n, len(m.turns)-1)](req), Spent: &teamv1.Spent{InputTokens: 3}}, nil)
	}
}

func (w *world) mind(name string, turns ...any) *mind {
	m := &mind{w: w, name: name}
	for _, turn := range turns {
		switch turn := turn.(type) {
		case *teamv1.Turn:
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return proto.CloneOf(turn) })
		case func(*agent.ModelRequest) *teamv1.Turn:
			m.turns = append(m.turns, turn)
		}
	}
	return m
}

// found is a turn that says which of these texts its prompt holds: when a leader
// learns of what does not wait for it is a matter of time.
func found(texts ...string) func(*agent.ModelRequest) *teamv1.Turn {
	return func(req *agent.ModelRequest) *teamv1.Turn {
		all := strings.Join(heard(req), "\n")
		var hits []string
		for _, text := range texts {
			if strings.Contains(all, text) {
				hits = append(hits, text)
			}
		}
		return says(strings.Join(hits, ", "))
	}
}

// crashLimits are those of the teams that are crashed.
func crashLimits(l *teamv1.Limits) *teamv1.Limits {
	limits := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Microsecond)}, MaxParallel: proto.Int32(6)}
	proto.Merge(limits, l)
	return limits
}

// cast are the members that crashed teams have.
func cast(w *world) registry {
	reg := registry{}
	for _, n := range []string{"a", "b", "c", "d"} {
		reg[n] = &worker{w: w, name: n}
	}
	reg["empty"] = &worker{w: w, name: "empty", do: func(*teamv1.ProcessRequest) (string, error) { return "", nil }}
	reg["asker"] = &asker{worker{w: w, name: "asker"}}
	reg["asker2"] = &asker{worker{w: w, name: "asker2"}}
	reg["peer"] = &peer{worker{w: w, name: "peer"}}
	reg["panicker"] = &worker{w: w, name: "panicker", do: func(*teamv1.ProcessRequest) (string, error) { panic("no") }}
	reg["broken"] = &worker{w: w, name: "broken", do: func(*teamv1.ProcessRequest) (string, error) {
		return "", &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "out of ink"}
	}}
	return reg
}

// crashLed is a leader above members that work at the same time: some fail, one
// asks, one is a leader itself, whose members work one after the other; between
// them calls that are refused, and a tool of its own.
func crashLed(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	inner := w.mind("inner-lead", calls(give("c", "one"), tool("foo", "{}"), give("d", "two"), give("asker2", "three")), calls(give("c", "one")), found("c(one)", "d(two", "told: yes", "second time"))
	reg["inner"] = ledBy(t, inner, reg, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "inner", crashLimits(nil), members("c", "d", "asker2")
	})
	lead := w.mind("lead",
		calls(give("a", "1"), give("inner", "2"), give("broken", "3"), tool("clock", `{"t":1}`), give("asker", "4"), give("panicker", "5"), tool("delegate_to_a", "{}"), give("peer", "6")),
		calls(give("b", "7"), give("a", "1"), give("empty", "8"), tool("clock", `{"t":2}`)),
		found("tides", "a(1)", "c(one), d(two, told: yes, second time", "out of ink", `{"t":1}`, "told: yes to asker?", "AGENT_PANIC", "argument task is missing", "peer(6)", "b(7)", "second time", "no content", `{"t":2}`))
	return ledBy(t, lead, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits = "root", crashLimits(nil)
		c.Tools = []agent.Tool{&clockTool{w}}
		c.Members = members("a", "b", "inner", "broken", "asker", "panicker", "peer", "empty")
	})
}

// crashAsync is a leader that goes on while its members work: tickets, a
// duplicate, checks, one that asks, an answer that has to wait, a team with
// tickets of its own below.
func crashAsync(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	inner := w.mind("inner-lead", calls(give("c", "one"), give("asker2", "two")), says("soon"), found("c(one)", "told: yes to asker2?"))
	reg["inner"] = ledBy(t, inner, reg, async, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "inner", crashLimits(nil), members("c", "asker2")
	})
	all := found("tides", "a(1)", "b(2", "c(one), told: yes to asker2?", "out of ink", "told: yes to asker?", "under way already", "peer(6)")
	lead := w.mind("lead",
		calls(give("a", "1"), give("b", "2"), give("asker", "3"), give("asker", "3"), give("broken", "4"), give("inner", "5")),
		calls(tool(checkTool, `{"wait_seconds":30}`), tool("clock", "{}")),
		calls(give("peer", "6"), tool(checkTool, "{}")),
		says("soon"), all)
	return ledBy(t, lead, reg, async, member("b", func(m *team.Member) { m.Async = proto.Bool(false) }), func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits = "root", crashLimits(nil)
		c.Tools = []agent.Tool{&clockTool{w}}
	})
}

// crashGrants is a leader whose budget does not cover a call that was lost without a grant, above two agents that work at
// the same time: one in a team with such a limit of its own, and one with such a limit itself.
func crashGrants(t *testing.T, w *world) *team.Team {
	t.Helper()
	ask := func(tokens int64) *teamv1.Limits {
		return crashLimits(&teamv1.Limits{MaxTokens: &tokens, OnLimit: teamv1.OnLimit_ASK})
	}
	agentOf := func(id string, l *teamv1.Limits) agent.Agent {
		a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: w.mind(id, calls(tool("clock", "{}")), says("found")), Tools: []agent.Tool{&clockTool{w}}, Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	reg := registry{"x": agentOf("x", crashLimits(nil)), "y": agentOf("y", ask(10))}
	inner, err := team.New(team.Config{ID: "inner", Scheduler: inOrder("x"), Members: members("x"), Registry: reg, Limits: ask(1)})
	if err != nil {
		t.Fatal(err)
	}
	reg["inner"] = inner
	lead := w.mind("lead", calls(give("inner", "1"), give("y", "2")), func(req *agent.ModelRequest) *teamv1.Turn {
		all := strings.Join(heard(req), "\n")
		return says("tides, checked" + strings.Repeat(", found", strings.Count(all, "found")))
	})
	return ledBy(t, lead, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "root", ask(5200), members("inner", "y")
	})
}

// stamp is a tool that begins only with approval, and returns its arguments.
type stamp struct{ w *world }

func (*stamp) Spec() agent.ToolSpec                       { return agent.ToolSpec{Name: "stamp"} }
func (*stamp) Approvers(json.RawMessage) *agent.Approvers { return &agent.Approvers{} }
func (c *stamp) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	if err := c.w.effectWithin(ctx, "stamp", key); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, arguments); err != nil {
		return nil, err
	}
	return &teamv1.ToolResult{Text: compact.String()}, nil
}

// crashApprovals is a leader whose calls of a tool, and of two members, need approval: one is edited,
// one rejected, one allows those after it.
func crashApprovals(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	inner := w.mind("inner-lead", calls(tool("stamp", `{"n":5}`), give("c", "one")), found(`{"n":5}`, "c(one)"))
	reg["inner"] = ledBy(t, inner, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members, c.Tools = "inner", crashLimits(nil), members("c"), []agent.Tool{&stamp{w}}
	})
	lead := w.mind("lead",
		calls(give("d", "0"), tool("stamp", `{"n":1,"why":"edit this"}`), tool("stamp", `{"n":2,"why":"not this"}`)),
		calls(tool("stamp", `{"n":3,"why":"all of these"}`)),
		calls(tool("stamp", `{"n":4,"why":"edit this"}`), give("inner", "1"), give("b", "not this")),
		found("tides", "d(0)", `{"edited":true}`, "rejected it: not this", `{"n":3`, `{"n":4`, `{"n":5}`, "c(one)", `member "b" did not begin`))
	everything := func(*a2av1.Message) *agent.Approvers { return &agent.Approvers{} }
	return ledBy(t, lead, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits = "root", crashLimits(nil)
		c.Tools, c.Members = []agent.Tool{&stamp{w}}, members("inner", "b", "d")
		c.Members[0].Approve, c.Members[1].Approve = everything, everything
	})
}

// crashSwarm is a swarm of teams: a coordinator that hands over through its
// leader, a swarm that does through the member at work, a workflow with somebody
// behind it, and a member that asks before it answers, after it was refused: the
// hand-over within the pair counts with the four of the swarm above it (C-07).
func crashSwarm(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	agentOf := func(id string, m *mind, tools ...agent.Tool) { reg[id] = minded(t, id, m, tools...) }
	desk := w.mind("desk-lead", calls(give("a", "work"), give("asker", "ask")), handsTo("pair", ""))
	reg["desk"] = ledBy(t, desk, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "desk", crashLimits(nil), members("a", "asker")
	})
	agentOf("p1", w.mind("p1", calls(tool("clock", "{}"), handOver("p2", "for you"))), &clockTool{w})
	agentOf("p2", w.mind("p2", handsTo("bob", "out")))
	agentOf("bob", w.mind("bob", handsTo("flow", "do it")))
	agentOf("last", w.mind("last", func(req *agent.ModelRequest) *teamv1.Turn {
		if strings.Contains(lastSaid(req), "was refused") {
			return found("tides", "d(c(do it))", "was refused", "desk hands over to pair", "bob hands over to flow")(req)
		}
		return handsTo("bob", "again")
	}))
	reg["flow"] = newTeamWith(t, team.Config{ID: "flow", Registry: reg, Members: members("c", "d"), Scheduler: inOrder("c", "d")})
	reg["pair"] = swarmOf(t, reg, func(c *swarm.Config, cfg *team.Config) {
		c.Entry, c.Members, cfg.ID = "p1", members("p1", "p2"), "pair"
	})
	return swarmOf(t, reg, withLimits(&teamv1.Limits{MaxHandoffs: proto.Int32(5)}), func(c *swarm.Config, cfg *team.Config) {
		c.Entry, c.Members, cfg.ID = "desk", members("desk", "pair", "bob", "flow", "last"), "root"
		c.Members[3].HandoffAfter = "last"
	})
}

// crashPlanned is a team whose lead plans: a faulty plan, one that is rejected, one of which a step
// fails, and the rest of it, which a person changes. A member is such a team itself.
func crashPlanned(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	inner := w.mind("inner-lead", func(req *agent.ModelRequest) *teamv1.Turn {
		if req.Force != "" {
			return plans(do("c1", "c", "one"), do("q", "asker2", "two", "c1"))
		}
		return found("c(one)", "told: yes to asker2?")(req)
	})
	reg["inner"] = plannedBy(t, inner, reg, func(_ *workflow.PlannedConfig, cfg *team.Config) {
		cfg.ID, cfg.Members = "inner", members("c", "asker2")
	})
	lead := w.mind("lead", func(req *agent.ModelRequest) *teamv1.Turn {
		all := strings.Join(heard(req), "\n")
		switch {
		case req.Force == "":
			return found("tides", "a(go)", "c(one), told: yes to asker2?", "out of ink", "b(edited", "d(last")(req)
		case strings.Contains(all, "out of ink"):
			return plans(do("next", "b", "edit this", "one", "two"), do("last", "d", "last", "next"))
		case strings.Contains(all, "rejected it: not this"):
			return plans(do("one", "a", "go"), do("two", "inner", "work"), do("bad", "broken", "fail", "one"))
		case strings.Contains(all, "That is no valid plan"):
			return plans(do("one", "a", "not this"))
		}
		return plans(do("one", "nobody", "go"))
	}, func(*agent.ModelRequest) *teamv1.Turn { return plans(do("one", "a", "not this")) })
	n := 2
	return plannedBy(t, lead, reg, func(c *workflow.PlannedConfig, cfg *team.Config) {
		c.Approve, c.MaxRevisions = &agent.Approvers{}, &n
		cfg.ID, cfg.Members = "root", members("a", "b", "d", "inner", "broken")
	})
}

// crashNamed is a workflow whose steps read results by name, above a loop that wants one of them as its input.
func crashNamed(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	around, err := supervisor.New(supervisor.Config{Members: members("c", "asker"), Loop: &supervisor.Loop{MaxRounds: 2, Answer: "c"}, Inputs: []string{"draft"}})
	if err != nil {
		t.Fatal(err)
	}
	reg["inner"] = newTeamWith(t, team.Config{
		ID: "inner", Registry: reg, Members: members("c", "asker"), Scheduler: around, Limits: crashLimits(nil), Inputs: inputs.List{{Name: "draft", Schema: &structpb.Struct{}}},
	})
	flow, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "one", Member: "a", Output: "draft"}, {ID: "side", Member: "b", Output: "draft"},
		{ID: "around", Member: "inner", After: []string{"one"}, Task: "go", Output: "end"},
		{ID: "last", Member: "d", After: []string{"around", "side"}, When: "outputs.end.text != ''", Task: "{{outputs.end}} {{steps.one.text}}"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return newTeamWith(t, team.Config{ID: "root", Registry: reg, Members: members("a", "b", "inner", "d"), Scheduler: flow, Limits: crashLimits(nil)})
}

// crashModes are the teams with what they must answer.
var crashModes = []struct {
	name  string
	build func(*testing.T, *world) *team.Team
	want  string
}{
	{
		"coordinator", crashLed,
		`OUTCOME_SUCCEEDED: tides, a(1), c(one), d(two, told: yes, second time, out of ink, {"t":1}, told: yes to asker?, AGENT_PANIC, argument task is missing, peer(6), b(7), second time, no content, {"t":2}`,
	},
	{"async", crashAsync, "OUTCOME_SUCCEEDED: tides, a(1), b(2, c(one), told: yes to asker2?, out of ink, told: yes to asker?, under way already, peer(6)"},
	{"grants", crashGrants, "OUTCOME_SUCCEEDED: tides, checked, found, found"},
	{"approvals", crashApprovals, `OUTCOME_SUCCEEDED: tides, d(0), {"edited":true}, rejected it: not this, {"n":3, {"n":4, {"n":5}, c(one), member "b" did not begin`},
	{"accepted", crashAccepted, "OUTCOME_SUCCEEDED: tides, The last result, told: yes to asker?, c(3, no accepted result after round 2 of 2, out of ink"},
	{"swarm", crashSwarm, "OUTCOME_SUCCEEDED: tides, d(c(do it)), was refused, desk hands over to pair, bob hands over to flow"},
	{"named", crashNamed, "OUTCOME_SUCCEEDED: d("},
	{"planned", crashPlanned, "OUTCOME_SUCCEEDED: tides, a(go), c(one), told: yes to asker2?, out of ink, b(edited, d(last"},
}

// TestCrash_Modes_AtEveryEvent kills the process at every event of leaders and swarms: S-50.
func TestCrash_Modes_AtEveryEvent(t *testing.T) {
	for _, m := range crashModes {
		t.Run("S-50 "+m.name, func(t *testing.T) { crashEverywhere(t, m.build, m.want) })
	}
}

// TestCrash_Modes_Cancel cancels at every event: each step that began has its end.
func TestCrash_Modes_Cancel(t *testing.T) {
	for _, m := range crashModes {
		t.Run("S-24 "+m.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			for at := 1; cancelAt(t, m.build, at); at++ {
			}
		})
	}
}

// cancelAt cancels a run at one of its events; false when it has fewer.
func cancelAt(t *testing.T, build func(*testing.T, *world) *team.Team, at int) bool {
	t.Helper()
	w := newWorld(t)
	top := build(t, w)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r := &recorded{}
	for ev, err := range top.Process(ctx, &teamv1.ProcessRequest{AgentId: "root", Message: agent.UserMessage("m", "tides")}) {
		if err != nil {
			r.err = err
			continue
		}
		if r.events = append(r.events, ev); len(r.events) == at {
			cancel(agent.ErrCanceled)
		}
		_ = w.Append(t.Context(), ev)
		_ = w.Commit(t.Context())
	}
	if r.err != nil && !errors.Is(r.err, agent.ErrCanceled) {
		t.Errorf("cancel at %d: ended with %v", at, r.err)
	}
	if r.err != nil {
		r.complete(t)
	}
	return len(r.events) >= at
}

// TestCrash_Modes_Break breaks off at every event: nothing is left behind.
func TestCrash_Modes_Break(t *testing.T) {
	for _, m := range crashModes {
		t.Run(m.name, func(t *testing.T) {
			for at := 1; ; at++ {
				w := newWorld(t)
				n := 0
				for ev, err := range m.build(t, w).Process(t.Context(), &teamv1.ProcessRequest{AgentId: "root", Message: agent.UserMessage("m", "tides")}) {
					if err != nil {
						t.Fatal(err)
					}
					_ = w.Append(t.Context(), ev)
					_ = w.Commit(t.Context())
					if n++; n == at {
						break
					}
				}
				goleak.VerifyNone(t)
				if n < at {
					return
				}
			}
		})
	}
}

// TestCrash_Modes_PanickingConsumer panics in the journal at every event.
func TestCrash_Modes_PanickingConsumer(t *testing.T) {
	for _, m := range crashModes {
		t.Run(m.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			n, baseline := baselineOf(t, m.build, m.want)
			for at := range n {
				w := newWorld(t)
				w.build, w.budget, w.panics = m.build, at, true
				if !survives(w) {
					w.panics = false
					w.crash(true)
					w.live(true)
				}
				w.verify(baseline)
			}
		})
	}
}

// tapped is a team that keeps what it was given, by scope.
type tapped struct {
	*team.Team
	mu    *sync.Mutex
	given map[string]*teamv1.ProcessRequest
	teams map[string]*team.Team
}

func (k *tapped) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	k.mu.Lock()
	if _, ok := k.given[req.GetScope()]; !ok {
		k.given[req.GetScope()], k.teams[req.GetScope()] = proto.CloneOf(req), k.Team
		k.given[req.GetScope()].Recorded = nil
	}
	k.mu.Unlock()
	return k.Team.Process(ctx, req)
}

// TestCrash_Modes_DecisionsBelow recomputes every decision of every team below the
// root from what was on record before it: Next is a function of the record.
func TestCrash_Modes_DecisionsBelow(t *testing.T) {
	for _, m := range crashModes {
		t.Run(m.name, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			given, teams := map[string]*teamv1.ProcessRequest{}, map[string]*team.Team{}
			w.build = func(t *testing.T, w *world) *team.Team {
				top := m.build(t, w)
				for id, a := range top.Config().Registry.(registry) {
					if tm, ok := a.(*team.Team); ok {
						top.Config().Registry.(registry)[id] = &tapped{tm, &mu, given, teams}
					}
				}
				return top
			}
			if !w.live(true) || len(teams) == 0 {
				t.Fatal("did not end, or has no team below")
			}
			for _, scope := range sortedKeys(teams) {
				n := replay(t, teams[scope], given[scope], w.events)
				if n == 0 {
					t.Errorf("scope %q has no decision", scope)
				}
			}
		})
	}
}

// replay recomputes the decisions of one scope and returns how many there are.
func replay(t *testing.T, tm *team.Team, req *teamv1.ProcessRequest, events []*teamv1.Event) int {
	t.Helper()
	for _, ev := range events {
		if !agent.Within(ev.GetScope(), req.GetScope()) {
			req.Recorded = append(req.Recorded, ev) // what the run is given may be there
		}
	}
	p := team.NewReplay(t.Context(), tm, req, crashRoot)
	n := 0
	for _, ev := range events {
		if !agent.Within(ev.GetScope(), req.GetScope()) {
			continue
		}
		own := ev.GetScope() == req.GetScope()
		if own && ev.GetDecided() != nil {
			d, err := p.Decide()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ev.GetDecided(), d, protocmp.Transform()); diff != "" {
				t.Errorf("scope %s, decision %d is not what Next says now:\n%s", req.GetScope(), n, diff)
			}
			n++
		}
		if !own || ev.GetDecided() != nil || ev.GetObserved() != nil || ev.GetReceived() != nil || ev.GetNoted() != nil {
			p.Apply(ev)
		}
	}
	return n
}

// TestPrompt_SameAfterReplay words each turn of each leader again from the record
// at the place where it was decided: what depends on the order in which others
// ended is on record too.
func TestPrompt_SameAfterReplay(t *testing.T) {
	for _, m := range append(crashModes[:2:2], crashModes[len(crashModes)-1]) {
		t.Run(m.name, func(t *testing.T) {
			w := newWorld(t)
			w.build = m.build
			if !w.live(true) {
				t.Fatal("did not end")
			}
			tm := m.build(t, newWorld(t))
			req := &teamv1.ProcessRequest{AgentId: "root", Message: w.events[0].GetAccepted().GetMessage()}
			worded := map[string]string{} // the first words of a turn's prompt
			for end := range w.events {
				f := team.NewReplay(t.Context(), tm, req, crashRoot)
				for _, ev := range w.events[1 : end+1] {
					if ev.GetScope() != "" || ev.GetDecided() != nil || ev.GetObserved() != nil {
						f.Apply(ev)
					}
				}
				for _, st := range f.Steps {
					if st.Step.GetKind() != teamv1.Step_KIND_MODEL || st.Done {
						continue
					}
					text := fmt.Sprint(heard(tm.Config().Scheduler.Prompt(&f.State, st.Step)))
					if worded[st.Scope] == "" {
						worded[st.Scope] = text
					}
					if worded[st.Scope] != text {
						t.Errorf("turn %s is worded anew after event %d:\n%s", st.Scope, end, cmp.Diff(worded[st.Scope], text))
					}
				}
			}
			if len(worded) < 3 {
				t.Error(len(worded))
			}
		})
	}
}
