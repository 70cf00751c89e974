package team_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// critic is a judge that has a result worked over once, after it has said rubbish.
func (w *world) critic(name string) *mind {
	return w.mind(name, says("hm"), func(req *agent.ModelRequest) *teamv1.Turn {
		if strings.Contains(req.Messages[0].Text, "longer") {
			return says(`{"score": 0.9}`)
		}
		return says(`{"score": 0.1, "feedback": "longer"}`)
	})
}

// crashReviewed is a leader whose results are judged by a model, above a workflow
// whose results are judged by a peer that is a task elsewhere, and a member that asks.
func crashReviewed(t *testing.T, w *world) *team.Team {
	t.Helper()
	w.most = 4 // for each answer of inner it is asked twice
	reg := cast(w)
	flow, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "one", Member: "c"}, {ID: "two", Member: "d"}}})
	if err != nil {
		t.Fatal(err)
	}
	reg["inner"] = newTeamWith(t, team.Config{
		ID: "inner", Registry: reg, Members: members("c", "d"), Scheduler: flow, Limits: crashLimits(nil), Review: &team.Review{Agent: "peer"},
	})
	lead := w.mind("lead", calls(give("a", "1"), give("inner", "2"), give("asker", "3")), found("tides", "## c\n\nc(2)", "told: yes", "longer"))
	return ledBy(t, lead, reg, inParallel, reviewed(team.Review{Model: w.critic("critic"), Threshold: at(0.5)}), func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "root", crashLimits(nil), members("a", "inner", "asker")
	})
}

// crashPassed is a swarm with a review.
func crashPassed(t *testing.T, w *world) *team.Team {
	t.Helper()
	return swarmOf(t, cast(w), func(c *swarm.Config, cfg *team.Config) {
		c.Entry, c.Members, cfg.ID, cfg.Limits = "a", members("a", "d"), "root", crashLimits(nil)
		c.Members[0].HandoffAfter = "d"
		cfg.Review = &team.Review{Model: w.critic("critic"), Threshold: at(0.5)}
	})
}

// crashAlone is an agent with a model, with a review.
func crashAlone(t *testing.T, w *world) *team.Team {
	t.Helper()
	a := minded(t, "root", w.mind("alone", calls(tool("clock", "{}")), found("tides", "longer")), &clockTool{w})
	a.Config().Review = &team.Review{Model: w.critic("critic"), Threshold: at(0.5)}
	return team.AsTeam(a.Loop)
}

// TestCrash_Reviewed kills the process at every event of runs that are worked over:
// rounds, results and verdicts are what they were (S-50).
func TestCrash_Reviewed(t *testing.T) {
	for _, m := range []struct {
		name  string
		build func(*testing.T, *world) *team.Team
		want  string
	}{
		{"coordinator", crashReviewed, "OUTCOME_SUCCEEDED: tides, ## c\n\nc(2), told: yes, longer"},
		{"swarm", crashPassed, "OUTCOME_SUCCEEDED: d(a(tides"},
		{"agent", crashAlone, "OUTCOME_SUCCEEDED: tides, longer"},
	} {
		t.Run("S-50 R-001-11 "+m.name, func(t *testing.T) { crashEverywhere(t, m.build, m.want) })
		t.Run("S-24 "+m.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			for at := 1; cancelAt(t, m.build, at); at++ {
			}
		})
	}
}

// TestCrash_Unmet kills it at every event of a run that is never good enough: it
// fails each time, and its result is shown once.
func TestCrash_Unmet(t *testing.T) {
	defer goleak.VerifyNone(t)
	build := func(t *testing.T, w *world) *team.Team {
		t.Helper()
		reg := cast(w)
		return newTeamWith(t, team.Config{
			ID: "root", Registry: reg, Members: members("a"), Scheduler: inOrder("a"), Limits: crashLimits(&teamv1.Limits{MaxRounds: proto.Int32(2)}),
			Review: &team.Review{Model: w.mind("critic", says("0.1")), Threshold: at(0.5)},
		})
	}
	for _, lose := range []bool{false, true} {
		for at := range 40 {
			w := newWorld(t)
			w.build, w.budget = build, at
			for !w.live(true) {
				w.crash(lose)
			}
			w.verify("OUTCOME_FAILED: ")
			last, shown := w.events[len(w.events)-1].GetEnded(), 0
			for _, ev := range w.events {
				if a := ev.GetArtifact(); a != nil && strings.HasPrefix(agent.Text(agent.NewMessage(a.GetArtifact().GetParts()[0].GetText())), "a(tides\n\n## The last result") {
					shown++
				}
			}
			if last.GetError().GetReason() != agent.ReasonQuality || shown != 1 {
				t.Errorf("crash at %d: %v, shown %d times", at, last.GetError(), shown)
			}
		}
	}
}
