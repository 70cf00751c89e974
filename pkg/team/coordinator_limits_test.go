package team_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

func TestCoordinator_Limits(t *testing.T) {
	always := func() (m *scriptedLead, n *int) {
		m, n = leads(t), new(int)
		for range 40 {
			m.turns = append(m.turns, func(req *agent.ModelRequest) *teamv1.Turn {
				if len(req.Tools) == 0 {
					return says("what I have")
				}
				*n++
				return calls(give("a", fmt.Sprint("task ", *n)))
			})
		}
		return m, n
	}

	t.Run("S-13 R-002-04 R-002-10.1 C-07 a leader that delegates for ever: 10 delegations, then MAX_DELEGATIONS_EXCEEDED", func(t *testing.T) {
		var d diary
		m, _ := always()
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		e := wantReason(t, r.err, agent.ReasonMaxDelegations)
		has(t, e.Message, `team "t1"`, "10", "limits.max_delegations")
		if e.Code != agent.CodeInternal {
			t.Error("1.8: a run that ends with it is INTERNAL, not", e.Code)
		}
		if len(d.all()) != 10 || len(r.delegations()) != 11 || r.delegations()[1] != "12 a: succeeded" {
			t.Error(d.all(), r.delegations())
		}
		r.complete(t)
	})

	t.Run("S-13 on_limit FINALIZE: one turn without tools, and its text is the answer", func(t *testing.T) {
		var d diary
		m, _ := always()
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *leader.CoordinatorConfig, _ *team.Config) { c.OnLimit = leader.Finalize }), "x")
		if r.err != nil || r.text() != "what I have" || len(d.all()) != 10 {
			t.Error(r.text(), r.err, d.all())
		}
		last := m.all()[len(m.all())-1]
		if len(last.Tools) != 0 {
			t.Error(offered(last))
		}
		has(t, lastSaid(last), "A limit is reached")
		refused := answers(last)
		has(t, refused[len(refused)-1], "10 delegations", "answer with what there is")
		if strings.Contains(refused[len(refused)-1], "on_limit") {
			t.Errorf("the leader is told of what is so already: %s", refused[len(refused)-1])
		}
	})

	t.Run("S-13 FINALIZE that answers with nothing is NO_RESPONSE", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "1"), give("a", "2")), says(""))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *leader.CoordinatorConfig, cfg *team.Config) {
			c.OnLimit, cfg.Limits.MaxDelegations = leader.Finalize, proto.Int32(1)
		}), "x")
		wantReason(t, r.err, agent.ReasonNoResponse)
	})

	for _, tt := range []struct {
		name   string
		limit  *int32 // nil is 10
		given  int
		called int
		ends   string
	}{
		{"R-002-17 at the limit", proto.Int32(3), 3, 3, ""},
		{"R-002-17 at the limit and one more", proto.Int32(3), 4, 3, agent.ReasonMaxDelegations},
		{"R-002-17 at the default", nil, 10, 10, ""},
		{"R-002-17 at the default and one more", nil, 11, 10, agent.ReasonMaxDelegations},
	} {
		for _, parallel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, parallel %t", tt.name, parallel), func(t *testing.T) {
				var d diary
				var list []*teamv1.ToolCall
				for i := range tt.given {
					list = append(list, give("a", fmt.Sprint("task ", i)))
				}
				r := watch(t.Context(), ledBy(t, leads(t, calls(list...), says("done")), d.crew("a"), func(c *leader.CoordinatorConfig, cfg *team.Config) {
					c.AllowParallel, cfg.Limits.MaxDelegations = parallel, tt.limit
				}), "x")
				if tt.ends != "" {
					wantReason(t, r.err, tt.ends)
				} else if r.err != nil {
					t.Error(r.err)
				}
				if len(d.all()) != tt.called {
					t.Error(d.all())
				}
			})
		}
	}

	t.Run("C-07 max_turns 100 bounds the turns of the leader", func(t *testing.T) {
		for _, c := range []struct {
			limit  leader.OnLimit
			reason string
		}{{leader.FailRun, agent.ReasonMaxIterations}, {leader.Finalize, ""}} {
			m := leads(t)
			for range 100 {
				m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return calls(tool("echo", "{}")) })
			}
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return says("in short") })
			r := watch(t.Context(), ledBy(t, m, registry{}, func(cc *leader.CoordinatorConfig, _ *team.Config) {
				cc.Tools, cc.OnLimit = []agent.Tool{echoTool{}}, c.limit
			}), "x")
			if c.reason != "" {
				has(t, wantReason(t, r.err, c.reason).Message, "100", "limits.max_turns")
			} else if r.err != nil || r.text() != "in short" {
				t.Error(r.err, r.text())
			}
		}
	})

	t.Run("C-07 max_steps counts what dispatches members; FINALIZE holds for it too", func(t *testing.T) {
		for _, limit := range []leader.OnLimit{leader.FailRun, leader.Finalize} {
			var d diary
			m, _ := always()
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *leader.CoordinatorConfig, cfg *team.Config) {
				c.OnLimit, cfg.Limits.MaxSteps = limit, proto.Int32(4)
			}), "x")
			if limit == leader.FailRun {
				has(t, wantReason(t, r.err, agent.ReasonMaxIterations).Message, "limits.max_steps")
			} else if r.err != nil || r.text() != "what I have" {
				t.Error(r.err, r.text())
			}
			if len(d.all()) != 4 {
				t.Error(d.all())
			}
		}
	})
}

func TestCoordinator_Refusals(t *testing.T) {
	t.Run("200 calls of one turn that are refused are one turn: the leader is told, and goes on", func(t *testing.T) {
		for _, change := range []func(*leader.CoordinatorConfig, *team.Config){func(*leader.CoordinatorConfig, *team.Config) {}, inParallel} {
			var list []*teamv1.ToolCall
			for range 200 {
				list = append(list, tool("nothing", "{}"))
			}
			var told []string
			m := leads(t, calls(list...), func(req *agent.ModelRequest) *teamv1.Turn {
				told = answers(req)
				return says("then without")
			})
			var d diary
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), change), "x")
			if r.err != nil || r.text() != "then without" || len(told) != 200 {
				t.Fatal(r.text(), r.err, len(told))
			}
			has(t, told[199], `c200: there is no tool "nothing"; the tools are `)
		}
	})

	t.Run("2.3 refused calls spend no delegation; ten turns in a row of nothing else end the run", func(t *testing.T) {
		var d diary
		m := leads(t)
		for range 30 {
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return calls(give("nobody", "x")) })
		}
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		has(t, wantReason(t, r.err, agent.ReasonDelegationFailed).Message, "10", `no member "nobody"`)
		if len(m.all()) != 10 {
			t.Error(len(m.all()))
		}
	})

	t.Run("2.3 a turn with a call that runs begins the count anew", func(t *testing.T) {
		var d diary
		m := leads(t)
		for i := range 19 {
			m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn {
				if i == 9 {
					return calls(give("a", "x"))
				}
				return calls(give("nobody", "x"))
			})
		}
		m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return says("done") })
		if answer, err := ask(t, ledBy(t, m, d.crew("a")), "x"); err != nil || answer != "done" {
			t.Error(answer, err)
		}
	})

	t.Run("2.3 answering ends the count", func(t *testing.T) { // the tenth is refused while the leader answers
		synctest.Test(t, func(t *testing.T) {
			reg := registry{"slow": skilled("slow")}
			var list []*teamv1.ToolCall
			for range 9 {
				list = append(list, give("nobody", "x"))
			}
			list = append([]*teamv1.ToolCall{give("slow", "x"), give("late", "x")}, list...)
			m := leads(t, calls(list...), says("first"), says("second"))
			r := watch(t.Context(), ledBy(t, m, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
				c.Async, cfg.Limits.MaxParallel = true, proto.Int32(1)
				c.Members = append(c.Members, team.Member{Agent: "late"}) // not registered: refused at dispatch
			}), "x")
			if r.err != nil || r.text() != "second" {
				t.Error(r.text(), r.err, r.delegations())
			}
		})
	})

	t.Run("S-14 C-23 R-002-10.2 the same words: an error first, CYCLE_DETECTED the second time", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), calls(give("a", " x\n")), calls(give("a", "x")))
		r := watch(t.Context(), ledBy(t, m, d.crew("a")), "x")
		wantReason(t, r.err, agent.ReasonCycleDetected)
		if len(d.all()) != 1 || len(m.all()) != 3 {
			t.Error(d.all(), len(m.all()))
		}
		has(t, answers(m.all()[2])[0], "c1: ", "second time", "other words")
		if diff := cmp.Diff([]string{"2 a: succeeded", "4 a: rejected CYCLE_DETECTED", "6 a: rejected CYCLE_DETECTED"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("S-14 C-23 strict_cycles: with the first repeat", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), calls(give("a", "x")))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *leader.CoordinatorConfig, _ *team.Config) { c.StrictCycles = true }), "x")
		wantReason(t, r.err, agent.ReasonCycleDetected)
		if len(d.all()) != 1 || len(m.all()) != 2 {
			t.Error(d.all(), len(m.all()))
		}
	})

	t.Run("C-23 repeats of other words are counted on their own", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x"), give("a", "x"), give("b", "x"), give("b", "x"), give("a", "y")), says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a", "b"), inParallel), "x")
		if r.err != nil || r.text() != "done" {
			t.Error(r.err, r.delegations())
		}
	})

	t.Run("C-23 the context is part of the words, results that are handed over are not", func(t *testing.T) {
		var d diary
		again := calls(tool("delegate_to_a", `{"task":"x","context":"one"}`), give("b", "x"), tool("delegate_to_a", `{"task":"x","context":"two"}`), tool("delegate_to_a", `{"task":"x","context":"one"}`))
		m := leads(t, again, says("done"))
		r := watch(t.Context(), ledBy(t, m, d.crew("a", "b")), "x")
		if diff := cmp.Diff([]string{"2 a: succeeded", "3 b: succeeded", "4 a: succeeded", "5 a: rejected CYCLE_DETECTED"}, r.delegations()); diff != "" || r.err != nil {
			t.Error(diff, r.err)
		}
	})

	t.Run("C-07 C-23 a repeat spends no delegation, also beside others of its turn", func(t *testing.T) {
		var d diary
		for _, parallel := range []bool{false, true} {
			d.calls = nil
			m := leads(t, calls(give("a", "x"), give("a", "x"), give("a", "y")), says("done"))
			r := watch(t.Context(), ledBy(t, m, d.crew("a"), func(c *leader.CoordinatorConfig, cfg *team.Config) {
				c.AllowParallel, cfg.Limits.MaxDelegations = parallel, proto.Int32(2)
			}), "x")
			if r.err != nil || len(d.all()) != 2 {
				t.Error(r.err, d.all(), r.delegations())
			}
		}
	})

	t.Run("R-000-30 C-23 a second run begins anew", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), says("one"), calls(give("a", "x")), says("two"))
		tm := ledBy(t, m, d.crew("a"))
		for range 2 {
			if _, err := ask(t, tm, "x"); err != nil {
				t.Error(err)
			}
		}
	})
}
