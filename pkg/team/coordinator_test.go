package team_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

func TestCoordinator_Answers(t *testing.T) {
	t.Run("S-04 R-002-1.1 R-003-10 C-05 a direct answer: one model call, no delegation", func(t *testing.T) {
		var d diary
		m := leads(t, says("Hi"))
		r := watch(t.Context(), ledBy(t, m, d.crew("writer")), "Hello")
		if r.err != nil || r.text() != "Hi" || len(m.all()) != 1 || len(d.all()) != 0 || len(r.delegations()) != 0 {
			t.Error(r.text(), r.err, d.all(), r.delegations())
		}
	})

	t.Run("S-05 R-004-02 R-003-01 R-002-39 one delegation, and the leader writes the answer; the other member is not called", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("writer", "poem")), says("Here it is."))
		r := watch(t.Context(), ledBy(t, m, d.crew("critic", "writer")), "A poem, please")
		if r.err != nil || r.text() != "Here it is." {
			t.Error(r.text(), r.err)
		}
		if diff := cmp.Diff([]string{"writer < poem"}, d.all()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"c1: writer: succeeded\n\nwriter(poem)"}, answers(m.all()[1])); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"2 writer: succeeded"}, r.delegations()); diff != "" {
			t.Error(diff)
		}
		r.complete(t)
	})

	t.Run("R-004-03 the leader's events carry the team's name", func(t *testing.T) {
		var d diary
		r := watch(t.Context(), ledBy(t, leads(t, calls(give("writer", "x")), says("done")), d.crew("writer")), "x")
		for _, ev := range r.events {
			if want := map[bool]string{true: "t1/writer", false: "t1"}[ev.GetScope() == "2"]; ev.GetAgent() != want {
				t.Errorf("%s is of %q, want %q", ev, ev.GetAgent(), want)
			}
		}
	})

	t.Run("C-05 R-000-19 a leader without a text has not answered", func(t *testing.T) {
		var d diary
		for _, turn := range []*teamv1.Turn{says(""), says(" \n")} {
			_, err := ask(t, ledBy(t, leads(t, turn, turn), d.crew("writer")), "x")
			has(t, wantReason(t, err, agent.ReasonNoResponse).Message, `team "t1"`)
		}
		_, err := ask(t, ledBy(t, leads(t, calls(give("writer", "x")), says(""), says("")), d.crew("writer")), "x")
		wantReason(t, err, agent.ReasonNoResponse)
	})

	t.Run("R-003-09 without an enabled member the leader works alone", func(t *testing.T) {
		var d diary
		m := leads(t, says("I do it."))
		tm := ledBy(t, m, d.crew("writer"), member("writer", func(m *team.Member) { m.Disabled = true }), func(c *leader.CoordinatorConfig, _ *team.Config) { c.Instructions = "Be kind." })
		if answer, err := ask(t, tm, "x"); err != nil || answer != "I do it." {
			t.Error(answer, err)
		}
		if req := m.all()[0]; len(req.Tools) != 0 || req.Instructions != "Be kind." {
			t.Error(offered(req), req.Instructions)
		}
		m = leads(t, says("Nobody there."))
		if answer, err := ask(t, ledBy(t, m, registry{}), "x"); err != nil || answer != "Nobody there." || len(m.all()[0].Tools) != 0 {
			t.Error("no members at all: ", answer, err)
		}
	})
}

func TestCoordinator_TellsTheLeader(t *testing.T) {
	var d diary
	reg := d.crew("draw", "write", "off")
	reg["write"] = &agent.Func{ID: "write", Description: "Writes texts", Call: d.says("write", func(s string) (string, error) { return s, nil }).Call}
	m := leads(t, calls(tool("echo", `{"a":1}`)), says("ok"))
	tm := ledBy(t, m, reg, member("off", func(m *team.Member) { m.Disabled = true }), member("draw", func(m *team.Member) {
		m.Description, m.Role = "Draws pictures", "artist"
	}), member("write", func(m *team.Member) { m.Priority = 5 }), func(c *leader.CoordinatorConfig, cfg *team.Config) {
		c.Instructions, c.Tools, cfg.Name = "Be brief.", []agent.Tool{echoTool{}}, "Studio"
	})
	if _, err := ask(t, tm, "x"); err != nil {
		t.Fatal(err)
	}
	req := m.all()[0]

	t.Run("R-002-15 R-004-05 the prompt has the instructions, and every enabled member with what it does", func(t *testing.T) {
		has(t, req.Instructions, "Be brief.", `"Studio"`, "- draw (artist): Draws pictures", "- write: Writes texts")
		if strings.Contains(req.Instructions, "off") {
			t.Error("it names the disabled member: ", req.Instructions)
		}
	})
	t.Run("R-002-09 the highest priority comes first", func(t *testing.T) {
		if strings.Index(req.Instructions, "- draw") < strings.Index(req.Instructions, "- write") {
			t.Error(req.Instructions)
		}
		if got := offered(req); got[0] != "delegate_to_write" {
			t.Error(got)
		}
	})
	t.Run("R-003-07 R-003-16 C-08 each enabled member is a tool, beside the leader's own", func(t *testing.T) {
		if diff := cmp.Diff([]string{"delegate_to_write", "delegate_to_draw", "echo"}, offered(req)); diff != "" {
			t.Error(diff)
		}
		has(t, req.Tools[0].Description, "write", "Writes texts")
	})
	t.Run("R-003-16 the leader's own tool runs on the same path", func(t *testing.T) {
		if got := answers(m.all()[1]); got[0] != `c1: {"a":1}` {
			t.Error(got)
		}
	})
	t.Run("R-004-05 without instructions there are the tools all the same", func(t *testing.T) {
		m := leads(t, says("ok"))
		if _, err := ask(t, ledBy(t, m, d.crew("write")), "x"); err != nil || !slices.Contains(offered(m.all()[0]), "delegate_to_write") {
			t.Error(offered(m.all()[0]), err)
		}
	})
	t.Run("R-002-2.5 S-54 a member's tools are not the leader's, nor the other way round", func(t *testing.T) {
		mind := leads(t, calls(tool("echo", "{}")), says("used it"))
		a, err := leader.NewAgent(leader.AgentConfig{ID: "mind", Model: mind, Tools: []agent.Tool{echoTool{}}})
		if err != nil {
			t.Fatal(err)
		}
		m := leads(t, calls(give("mind", "x")), says("done"))
		if _, err := ask(t, ledBy(t, m, registry{"mind": a}), "x"); err != nil {
			t.Fatal(err)
		}
		if got := answers(m.all()[1]); got[0] != "c1: mind: succeeded\n\nused it" || slices.Contains(offered(m.all()[0]), "echo") {
			t.Error(got, offered(m.all()[0]))
		}
		if diff := cmp.Diff([]string{"echo"}, offered(mind.all()[0])); diff != "" {
			t.Error(diff)
		}
	})
}

// TestS_54_LeastPrivilege has a member that calls what is its leader's: members,
// the leader's tool, tickets, a hand-over. It is told that there is no such tool,
// and nothing is run.
func TestS_54_LeastPrivilege(t *testing.T) {
	var d diary
	mind := leads(t, calls(give("writer", "do my work"), tool("writer", `{"task":"x"}`), tool("delegate_task_to_member", `{"member_id":"writer","task":"x"}`),
		tool("echo", "{}"), tool(checkTool, "{}"), tool(prompt.ReadTool, `{"id":"1","offset":0}`), tool(team.TransferTool, `{"agent_name":"writer"}`)), says("alone then"))
	a, err := leader.NewAgent(leader.AgentConfig{ID: "mind", Model: mind})
	if err != nil {
		t.Fatal(err)
	}
	reg := d.crew("writer")
	reg["mind"] = a
	m := leads(t, calls(give("mind", "x")), says("done"))
	r := watch(t.Context(), ledBy(t, m, reg, func(c *leader.CoordinatorConfig, _ *team.Config) { c.Tools, c.Async = []agent.Tool{echoTool{}}, false }), "x")
	if r.err != nil || len(d.all()) != 0 || len(mind.all()) != 2 {
		t.Fatal(r.err, d.all())
	}
	if len(mind.all()[0].Tools) != 0 {
		t.Error(offered(mind.all()[0]))
	}
	got := answers(mind.all()[1])
	if len(got) != 7 {
		t.Fatal(got)
	}
	for _, text := range got {
		has(t, text, "there is no tool")
	}
	if len(r.noted("TOOL_CALL_IGNORED")) != 7 {
		t.Error(r.noted("TOOL_CALL_IGNORED"))
	}
}

func TestCoordinator_SkipsSummary(t *testing.T) {
	skip := func(c *leader.CoordinatorConfig, _ *team.Config) {
		for i := range c.Members {
			c.Members[i].SkipSummarization = true
		}
	}

	t.Run("S-29 R-004-17 one call: the member's text is the answer, the leader is called once", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")))
		r := watch(t.Context(), ledBy(t, m, d.crew("a"), skip), "x")
		if r.err != nil || r.text() != "a(x)" || len(m.all()) != 1 {
			t.Error(r.text(), r.err, len(m.all()))
		}
	})

	t.Run("S-29 R-004-18 C-16 two parallel calls: joined in the order of the calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			reg := registry{"a": d.takes("a", 2*time.Second), "b": d.takes("b", time.Second)}
			m := leads(t, calls(give("a", "x"), give("b", "y")))
			r := watch(t.Context(), ledBy(t, m, reg, skip, inParallel), "x")
			if r.err != nil || r.text() != "## a\n\na(x)\n\n## b\n\nb(y)" || len(m.all()) != 1 {
				t.Error(r.text(), r.err, len(m.all()))
			}
		})
	})

	t.Run("R-004-13 not set: one more call of the leader", func(t *testing.T) {
		var d diary
		m := leads(t, calls(give("a", "x")), says("sum"))
		if answer, err := ask(t, ledBy(t, m, d.crew("a")), "x"); err != nil || answer != "sum" || len(m.all()) != 2 {
			t.Error(answer, err, len(m.all()))
		}
	})

	for name, turn := range map[string]*teamv1.Turn{
		"another member's reply is among them": calls(give("a", "x"), give("b", "x")),
		"a tool is among them":                 calls(give("a", "x"), tool("echo", "{}")),
		"one of them failed":                   calls(give("a", "x"), give("bad", "x")),
		"one of them is empty":                 calls(give("a", "x"), give("empty", "x")),
		"one was refused":                      calls(give("a", "x"), give("nobody", "x")),
	} {
		t.Run("R-004-17 the leader is asked where "+name, func(t *testing.T) {
			var d diary
			reg := d.crew("a", "b")
			reg["bad"] = failing("bad", agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "no"))
			reg["empty"] = d.says("empty", func(string) (string, error) { return "", nil })
			m := leads(t, turn, says("sum"))
			tm := ledBy(t, m, reg, skip, member("b", func(m *team.Member) { m.SkipSummarization = false }), func(c *leader.CoordinatorConfig, _ *team.Config) { c.Tools = []agent.Tool{echoTool{}} })
			if answer, err := ask(t, tm, "x"); err != nil || answer != "sum" {
				t.Error(answer, err)
			}
		})
	}

	t.Run("A-17 the leader is asked where the user has said more meanwhile", func(t *testing.T) {
		run := &agent.Run{Root: crashRoot}
		reg := registry{"a": &agent.Func{ID: "a", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
			run.Deliver(&teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m2", "in red")}}})
			return agent.NewMessage("blue"), nil
		}}}
		m := leads(t, calls(give("a", "x")), func(req *agent.ModelRequest) *teamv1.Turn { return says("heard: " + lastSaid(req)) })
		got, err := agent.Reply(agent.With(t.Context(), run), ledBy(t, m, reg, skip), agent.UserMessage("m1", "x"))
		if err != nil || agent.Text(got) != "heard: in red" {
			t.Error(agent.Text(got), err)
		}
	})
}

// TestR_002_38_NamesOfOurOwn: the tools of a leader are named as C-08 has them.
func TestR_002_38_NamesOfOurOwn(t *testing.T) {
	var d diary
	for style, want := range map[leader.ToolStyle]string{leader.PerMember: "delegate_to_a", leader.Single: "delegate_task_to_member"} {
		m := leads(t, says("Hi"))
		watch(t.Context(), ledBy(t, m, d.crew("a"), func(k *leader.CoordinatorConfig, _ *team.Config) { k.ToolStyle = style }), "Hello")
		if tools := m.all()[0].Tools; len(tools) != 1 || tools[0].Name != want {
			t.Errorf("%s: the tools are %v, want %s", style, tools, want)
		}
	}
}
