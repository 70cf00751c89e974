package team_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
)

// heard is a prompt as "role: text".
func heard(req *agent.ModelRequest) []string {
	var list []string
	for _, m := range req.Messages {
		list = append(list, string(m.Role)+": "+m.Text)
	}
	return list
}

// minded is a model-backed member.
func minded(t *testing.T, id string, m agent.Model, tools ...agent.Tool) *leader.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: m, Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func earlierTalk() []*a2av1.Message {
	return []*a2av1.Message{agent.UserMessage("h1", "good day"), agent.NewMessage("and to you")}
}

// TestS_28_HistoryScopes has a leader that says something, uses a tool, asks a,
// and then, in another turn, a again and b. What b is shown differs by its scope.
func TestS_28_HistoryScopes(t *testing.T) {
	earlier := earlierTalk()
	before := []string{"user: good day", "assistant: and to you"}
	branch := []string{"user: the request", "user: t1: let me see", `user: echo: {"n":1}`, "user: a: succeeded\n\na(one)"}
	chained := "user: four\nResults so far:\n\na: succeeded\n\na(three)"
	for _, tt := range []struct {
		name  string
		scope team.HistoryScope
		want  []string
	}{
		{"S-28 C-14 R-004-12 R-004-15 the default: the request, and what the leader has said and seen", "", append(branch[:4:4], chained)},
		{"S-28 C-14 R-004-12 PARENT_BRANCH", team.HistoryParent, append(branch[:4:4], chained)},
		{"S-28 C-14 CONVERSATION: the one before, too", team.HistoryConversation, append(append(before[:2:2], branch...), chained)},
		{"S-28 C-14 LAST_RESULT: the task, and the results before it in this turn", team.HistoryLastResult, []string{chained}},
		{"S-28 C-14 R-004-16 ISOLATED: the task alone", team.HistoryIsolated, []string{"user: four"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d diary
			b := leads(t, says("b says"))
			reg := d.crew("a")
			reg["b"] = minded(t, "b", b)
			opening := calls(tool("echo", `{"n":1}`), give("a", "one"))
			opening.Text = "let me see"
			m := leads(t, opening, calls(give("a", "three"), give("b", "four")), says("done"))
			tm := ledBy(t, m, reg, member("b", func(m *team.Member) { m.History = tt.scope }), func(c *leader.CoordinatorConfig, _ *team.Config) {
				c.Tools, c.Instructions = []agent.Tool{echoTool{}}, "Secret of the leader."
			})
			r := watchRequest(t.Context(), tm, &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m", "the request"), History: earlier})
			if r.err != nil {
				t.Fatal(r.err)
			}
			if diff := cmp.Diff(tt.want, heard(b.all()[0])); diff != "" {
				t.Error(diff)
			}
			if text := strings.Join(heard(b.all()[0]), "\n") + b.all()[0].Instructions; strings.Contains(text, "Secret") {
				t.Error("C-26 the leader's instructions reach a member")
			}
			if diff := cmp.Diff(append(before[:2:2], "user: the request"), heard(m.all()[0])); diff != "" {
				t.Error("the leader sees the conversation: ", diff)
			}
		})
	}

	t.Run("C-14 a supervisor's member sees what it wrote before, and its message once", func(t *testing.T) {
		writer, critic := leads(t, says("draft"), says("better")), leads(t, says(`{"score": 5}`), says(`{"score": 9}`))
		v, err := supervisor.New(supervisor.Config{Members: membersOf("writer", "critic"), Rules: []supervisor.Rule{
			{When: "turn == 1", Next: []string{"writer"}}, {When: "last.member == 'writer'", Next: []string{"critic"}},
			{When: "critic.data.score < 7", Next: []string{"writer"}}, {Finish: "writer"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		reg := registry{"writer": minded(t, "writer", writer), "critic": minded(t, "critic", critic)}
		r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: v, Members: membersOf("writer", "critic"), Registry: reg}), "tides")
		if r.err != nil || r.text() != "better" {
			t.Fatal(r.text(), r.err)
		}
		for what, seen := range map[string][][]string{
			"writer": {heard(writer.all()[1]), {"user: tides", "assistant: draft", `user: {"score": 5}`}},
			"critic": {heard(critic.all()[0]), {"user: tides", "user: draft"}},
		} {
			if diff := cmp.Diff(seen[1], seen[0]); diff != "" {
				t.Error(what, diff)
			}
		}
		r.complete(t)
	})

	t.Run("R-004-15 what a member does inside stays out of the leader's view", func(t *testing.T) {
		b := leads(t, calls(tool("echo", `{"inside":true}`)), says("b says"))
		m := leads(t, calls(give("b", "x")), says("done"))
		if _, err := ask(t, ledBy(t, m, registry{"b": minded(t, "b", b, echoTool{})}), "x"); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(heard(m.all()[1]), "\n"); strings.Contains(text, "inside") {
			t.Error(text)
		}
	})

	t.Run("C-14 parallel members do not see each other", func(t *testing.T) {
		var d diary
		b := leads(t, says("b says"))
		m := leads(t, calls(give("a", "one"), give("b", "two")), says("done"))
		reg := d.crew("a")
		reg["b"] = minded(t, "b", b)
		if _, err := ask(t, ledBy(t, m, reg, inParallel), "x"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"user: x", "user: two"}, heard(b.all()[0])); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("R-004-15 its own words of an earlier delegation are its own", func(t *testing.T) {
		b := leads(t, says("first words"), says("more"))
		m := leads(t, calls(give("b", "one")), calls(give("b", "two")), says("done"))
		if _, err := ask(t, ledBy(t, m, registry{"b": minded(t, "b", b)}), "x"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"user: x", "assistant: first words", "user: two"}, heard(b.all()[1])); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("C-14 R-004-16 a workflow's members are shown the last result alone", func(t *testing.T) {
		b := leads(t, says("b says"))
		reg := registry{"a": skilled("a"), "b": minded(t, "b", b)}
		if _, err := ask(t, newTeam(t, reg, inOrder("a", "b"), "a", "b"), "x"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"user: a(x)"}, heard(b.all()[0])); diff != "" {
			t.Error(diff)
		}
	})
}

// TestR_002_22_WithoutARecord has nobody number the events: results are handed on
// all the same.
func TestR_002_22_WithoutARecord(t *testing.T) {
	var d diary
	tm := ledBy(t, leads(t, calls(give("d", "zero")), calls(give("a", "one"), give("b", "two"), give("c", "three")), says("done")), d.crew("a", "b", "c", "d"))
	for _, err := range tm.Process(t.Context(), &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m", "x")}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	last := d.all()[3]
	has(t, last, "three", "a: succeeded\n\na(one)", "b: succeeded\n\nb(two")
	if strings.Contains(last, "zero") {
		t.Error("it is given the result of another turn: ", last)
	}
}
