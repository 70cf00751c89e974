package team_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// TestCoordinator_InheritsModel is S-53 without keys: R-003-14, C-26.
func TestCoordinator_InheritsModel(t *testing.T) {
	lead := leads(t, calls(give("plain", "x"), give("own", "x"), give("flow", "x")), says("by the lead: plain"), says("by the lead: deep"), says("done"))
	own := leads(t, says("by its own"))
	plain, err := leader.NewAgent(leader.AgentConfig{ID: "plain", Instructions: "You are plain."})
	if err != nil {
		t.Fatal(err)
	}
	owned, err := leader.NewAgent(leader.AgentConfig{ID: "own", Model: own})
	if err != nil {
		t.Fatal(err)
	}
	deep, err := leader.NewAgent(leader.AgentConfig{ID: "deep"})
	if err != nil {
		t.Fatal(err)
	}
	flow := newTeamWith(t, team.Config{ID: "flow", Scheduler: inOrder("deep"), Members: members("deep"), Registry: registry{"deep": deep}})
	tm := ledBy(t, lead, registry{"plain": plain, "own": owned, "flow": flow})
	r := watch(t.Context(), tm, "x")
	if r.err != nil {
		t.Fatal(r.err)
	}
	reqs := lead.all()
	t.Run("S-53 R-003-14 a member without a model takes the leader's, also below a team in between", func(t *testing.T) {
		has(t, strings.Join(answers(reqs[3]), "\n"), "by the lead: plain", "by the lead: deep")
		for _, ev := range r.events {
			if s := ev.GetStarted(); s != nil && strings.HasPrefix(ev.GetScope(), "2.") && s.GetModel() != "lead" {
				t.Error(ev)
			}
		}
	})
	t.Run("S-53 C-26 its own setting wins", func(t *testing.T) {
		has(t, strings.Join(answers(reqs[3]), "\n"), "by its own")
		if len(own.all()) != 1 {
			t.Error(len(own.all()))
		}
	})
	t.Run("C-26 C-27 prompt, tools and history are not inherited; the task is a user message", func(t *testing.T) {
		got := reqs[1]
		if got.Instructions != "You are plain." || len(got.Tools) != 0 || got.Agent != "plain" {
			t.Error(got.Instructions, offered(got))
		}
		if last := got.Messages[len(got.Messages)-1]; last.Role != agent.RoleUser || last.Text != "x" {
			t.Error(last)
		}
	})
	t.Run("R-003-14 nobody to inherit from: an error that says what to do", func(t *testing.T) {
		_, err := ask(t, plain, "x")
		has(t, wantReason(t, err, agent.ReasonTeamError).Message, `"plain"`, "give it a model")
	})
}

// TestR_004_06_Nested has a leader above a leader above a leader.
func TestR_004_06_Nested(t *testing.T) {
	var d diary
	bottom := leads(t, calls(give("writer", "words")), says("bottom says"))
	middle := leads(t, calls(give("bottom", "go down")), says("middle says"))
	top := leads(t, calls(give("middle", "go")), says("top says"))
	named := func(id string) func(*leader.CoordinatorConfig, *team.Config) {
		return func(_ *leader.CoordinatorConfig, c *team.Config) { c.ID = id }
	}
	b := ledBy(t, bottom, d.crew("writer"), named("bottom"))
	m := ledBy(t, middle, registry{"bottom": b}, named("middle"))
	r := watch(t.Context(), ledBy(t, top, registry{"middle": m}), "x")
	if r.err != nil || r.text() != "top says" {
		t.Fatal(r.text(), r.err)
	}
	paths := map[string]bool{}
	for _, ev := range r.events {
		paths[ev.GetAgent()] = true
	}
	if diff := cmp.Diff([]string{"t1", "t1/middle", "t1/middle/bottom", "t1/middle/bottom/writer"}, sortedKeys(paths)); diff != "" {
		t.Error(diff)
	}
	t.Run("S-36 a leader sees its direct members only", func(t *testing.T) {
		for _, lead := range []*scriptedLead{top, middle, bottom} {
			if got := offered(lead.all()[0]); len(got) != 1 {
				t.Error(got)
			}
		}
		has(t, answers(middle.all()[1])[0], "bottom: succeeded\n\nbottom says")
	})
	t.Run("R-003-05 a member of another team cannot be called", func(t *testing.T) {
		m := leads(t, calls(give("writer", "x")), says("done"))
		d.calls = nil
		if _, err := ask(t, ledBy(t, m, registry{"middle": ledBy(t, leads(t), registry{}, named("middle"))}), "x"); err != nil || len(d.all()) != 0 {
			t.Error(err, d.all())
		}
		has(t, answers(m.all()[1])[0], `no member "writer"`, "middle")
	})
	r.complete(t)
}

// TestR_002_28_Snapshot changes the registry while a run is under way: what the
// leader is told of the members stays as it was when the run began.
func TestR_002_28_Snapshot(t *testing.T) {
	var d diary
	reg := d.crew("a", "b")
	reg["b"] = &agent.Func{ID: "b", Description: "before", Call: reg["b"].(*agent.Func).Call}
	var mu sync.Mutex
	reg["a"] = d.says("a", func(string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		reg["b"] = &agent.Func{ID: "b", Description: "after", Call: reg["b"].(*agent.Func).Call}
		return "changed", nil
	})
	m := leads(t, calls(give("a", "x")), says("one"), says("two"))
	tm := ledBy(t, m, reg)
	for range 2 {
		if _, err := ask(t, tm, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"before", "before", "after"} {
		has(t, m.all()[i].Instructions, "- b: "+want)
	}
}

// TestR_002_14_TeamsAreMadeWithoutACall makes a thousand teams, which ask no model
// and no member anything; the first message does.
func TestR_002_14_TeamsAreMadeWithoutACall(t *testing.T) {
	m := leads(t, says("Hi"))
	var d diary
	reg := d.crew("a")
	var last *team.Team
	for range 1000 {
		last = ledBy(t, m, reg)
	}
	if n := len(m.all()); n != 0 || len(d.all()) != 0 {
		t.Fatalf("%d calls of the model, %v of members", n, d.all())
	}
	if r := watch(t.Context(), last, "Hello"); r.err != nil || r.text() != "Hi" || len(m.all()) != 1 {
		t.Error(r.text(), r.err, len(m.all()))
	}
}
