package team_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// outOfInk is an error that is not retried.
func outOfInk() error {
	return &agent.Error{Reason: agent.ReasonUnavailable, Message: "out of ink"}
}

// critics is a registry of a, which answers, and critic, which answers with the texts one call after
// the other, then with an error; the text "fail" is an error too.
func (d *diary) critics(texts ...string) registry {
	reg, n := d.crew("a"), 0
	reg["critic"] = d.says("critic", func(string) (string, error) {
		if n++; n > len(texts) || texts[n-1] == "fail" {
			return "", outOfInk()
		}
		return texts[n-1], nil
	})
	return reg
}

// requiring are the members with these ids; the critic is required.
func requiring(ids ...string) []team.Member {
	ms := members(ids...)
	for i := range ms {
		ms[i].Required = ms[i].Agent == "critic"
	}
	return ms
}

// needsCritic makes the critic required.
func needsCritic(c *leader.CoordinatorConfig, _ *team.Config) { c.Members = requiring("a", "critic") }

// wantRequired checks that a run has failed for want of required work, that its error has the
// pieces, and that it keeps an answer.
func wantRequired(t *testing.T, r *recorded, kept string, pieces ...string) *agent.Error {
	t.Helper()
	if r.reply != nil {
		t.Fatalf("it answered %q", r.text())
	}
	e := wantReason(t, r.err, agent.ReasonRequiredWork)
	has(t, e.Message, pieces...)
	if r.kept() != kept {
		t.Errorf("it keeps %q, want %q", r.kept(), kept)
	}
	r.complete(t)
	return e
}

// TestRequired_ClaimsOfSuccess has a team of each mode claim success although its required member
// failed, said nothing or was never called.
func TestRequired_ClaimsOfSuccess(t *testing.T) {
	claim := "All done."
	for _, c := range []struct {
		name  string
		texts []string // what the critic says
		build func(t *testing.T, reg registry) *team.Team
		kept  string
		want  []string
	}{
		{"coordinator, the member failed", nil, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(give("critic", "look")), says(claim)), reg, needsCritic)
		}, claim, []string{`team "t1" ended without its required work: member "critic" failed (UNAVAILABLE): out of ink; the answer`}},
		{"coordinator, the member was never called", nil, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, says(claim)), reg, needsCritic)
		}, claim, []string{`member "critic" was never called`}},
		{"coordinator, the member said nothing", []string{""}, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(give("critic", "look")), says(claim)), reg, needsCritic)
		}, claim, []string{`member "critic" returned no content`}},
		{"coordinator, the call was rejected", nil, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(tool("delegate_to_critic", "{}")), says(claim)), reg, needsCritic)
		}, claim, []string{`member "critic" was rejected (INVALID_REQUEST)`, "task is missing"}},
		{"coordinator, a later task failed", []string{"fine"}, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(give("critic", "look")), calls(give("critic", "look again")), says(claim)), reg, needsCritic)
		}, claim, []string{`member "critic" failed`}},
		{"coordinator, one of two tasks of a turn failed", []string{"fail", "fine"}, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(give("critic", "one"), give("critic", "two")), says(claim)), reg, needsCritic)
		}, "", nil}, // without allow_parallel the second is decided after the first: it makes up for it
		{"coordinator, on_limit FINALIZE", nil, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(give("a", "x")), calls(give("critic", "look")), says(claim)), reg, needsCritic, func(c *leader.CoordinatorConfig, cfg *team.Config) {
				c.OnLimit, cfg.Limits.MaxDelegations = leader.Finalize, proto.Int32(1)
			})
		}, claim, []string{`member "critic" was rejected (MAX_DELEGATIONS_EXCEEDED)`}},
		{"route, another member was chosen", nil, func(t *testing.T, reg registry) *team.Team {
			return ledBy(t, leads(t, calls(give("a", "x"))), reg, needsCritic, member("a", func(m *team.Member) { m.SkipSummarization = true }))
		}, "a(x)", []string{`member "critic" was never called`}},
		{"supervisor by rules, the member was never called", nil, func(t *testing.T, reg registry) *team.Team {
			return supervised(t, reg, nil, supervisor.Rule{When: "turn == 1", Next: []string{"a"}}, supervisor.Rule{When: "turn == 7", Next: []string{"critic"}}, supervisor.Rule{Finish: "last"})
		}, "a(tides)", []string{`member "critic" was never called`}},
		{"supervisor with a router that finishes, the member said nothing", []string{""}, func(t *testing.T, reg registry) *team.Team {
			return supervised(t, reg, &turnsOf{turns: []*teamv1.Turn{says("a"), says("critic"), says("finish")}})
		}, "", []string{`member "critic" returned no content`}},
		{"supervisor, another scheduler reports errors", nil, func(t *testing.T, reg registry) *team.Team {
			s := next(func(s *team.State) (team.Decision, error) {
				if len(s.Steps) == 0 {
					return delegateTo("a", "critic"), nil
				}
				return team.Decision{Reply: agent.NewMessage(claim)}, nil
			})
			return newTeamWith(t, team.Config{ID: "t1", Scheduler: s, Members: requiring("a", "critic"), Registry: reg, ReportErrors: true})
		}, claim, []string{`member "critic" failed (UNAVAILABLE)`}},
		{"broadcast", nil, func(t *testing.T, reg registry) *team.Team {
			return newTeamWith(t, team.Config{
				ID: "t1", Scheduler: broadcast.New(broadcast.Config{}), Members: requiring("a", "critic"), Registry: reg, ReportErrors: true, Model: leads(t, says(claim)),
			})
		}, claim, []string{`member "critic" failed (UNAVAILABLE): out of ink`}},
		{"swarm, the member was never called", nil, func(t *testing.T, reg registry) *team.Team {
			return swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) { c.Members = requiring("a", "critic") })
		}, "a(tides)", []string{`member "critic" was never called`}},
		{"swarm, the member said nothing and the next one answers", []string{""}, func(t *testing.T, reg registry) *team.Team {
			return swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) {
				c.Members = requiring("a", "critic")
				c.Entry, c.Members[1].HandoffAfter = "critic", "a"
			})
		}, "a(tides)", []string{`member "critic" returned no content`}},
		{"workflow, a required member failed", nil, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, requiring("a", "critic"), workflow.Step{ID: "text", Member: "a"}, workflow.Step{ID: "check", Member: "critic"})
		}, "a(tides)", []string{`step "check" of member "critic" failed (UNAVAILABLE): out of ink`}},
		{"workflow, a required step failed", nil, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, members("a", "critic"), workflow.Step{ID: "text", Member: "a"}, workflow.Step{ID: "check", Member: "critic", Required: true})
		}, "a(tides)", []string{`step "check" of member "critic" failed`}},
		{"workflow, a step before a required one failed", nil, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, members("a", "critic"), workflow.Step{ID: "text", Member: "a"}, workflow.Step{ID: "check", Member: "critic"},
				workflow.Step{ID: "print", Member: "a", After: []string{"check"}, Required: true})
		}, "a(tides)", []string{`step "print" of member "a" was skipped (DELEGATION_FAILED)`}},
		{"workflow, a repetition has not reached its end", []string{"no", "no", "no"}, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, members("a", "critic"), workflow.Step{ID: "text", Member: "a"},
				workflow.Step{ID: "check", Member: "critic", Required: true, Repeat: &workflow.Repeat{Until: "steps.check.text == 'yes'", Max: 2}})
		}, "a(tides)", []string{`step "check" of member "critic" failed (MAX_ROUNDS_EXCEEDED)`}},
		{"workflow, the condition of all steps of a required member is not true", nil, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, requiring("a", "critic"), workflow.Step{ID: "text", Member: "a"}, workflow.Step{ID: "check", Member: "critic", When: "input == 'ebb'"})
		}, "a(tides)", []string{`member "critic" was never called`}},
		{"workflow, the condition of a required step is not true", nil, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, members("a", "critic"), workflow.Step{ID: "text", Member: "a"}, workflow.Step{ID: "check", Member: "critic", Required: true, When: "input == 'ebb'"})
		}, "", nil},
		{"workflow, a join waits for a required step", nil, func(t *testing.T, reg registry) *team.Team {
			return partial(t, reg, members("a", "critic"), workflow.Step{ID: "text", Member: "a"}, workflow.Step{ID: "check", Member: "critic", Required: true},
				workflow.Step{ID: "print", Member: "a", Task: "print", After: []string{"text", "check"}, Join: workflow.JoinAny})
		}, "a(print)", []string{`step "check" of member "critic" failed`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d diary
			r := watch(t.Context(), c.build(t, d.critics(c.texts...)), "tides")
			if c.want == nil {
				if r.err != nil || r.reply == nil {
					t.Fatalf("it ended with %v", r.err)
				}
				return
			}
			wantRequired(t, r, c.kept, c.want...)
		})
	}
}

// supervised is a supervisor team that has these rules, or a router. Its critic is required.
func supervised(t *testing.T, reg registry, router agent.Model, rules ...supervisor.Rule) *team.Team {
	t.Helper()
	c := supervisor.Config{Members: members("a", "critic"), Rules: rules}
	if router != nil {
		c.Router = &supervisor.Router{}
	}
	s, err := supervisor.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return newTeamWith(t, team.Config{ID: "t1", Scheduler: s, Members: requiring("a", "critic"), Registry: reg, Model: router})
}

// partial is a workflow that goes on when a step fails.
func partial(t *testing.T, reg registry, ms []team.Member, steps ...workflow.Step) *team.Team {
	t.Helper()
	return newTeamWith(t, team.Config{ID: "t1", Scheduler: flow(t, steps...), Members: ms, Registry: reg, ReportErrors: true})
}

func TestRequired_LaterSuccessHeals(t *testing.T) {
	var d diary
	m := leads(t, calls(give("critic", "look")), calls(give("critic", "look again")), calls(give("critic", "look again")), says("All done."))
	r := watch(t.Context(), ledBy(t, m, d.critics("fail", "fine"), needsCritic), "tides")
	if r.err != nil || r.text() != "All done." {
		t.Fatalf("a success after a failure, and a refused repetition of it: %v", r.err)
	}
	if text := m.all()[0].Instructions; !strings.Contains(text, "Required: without its result every answer counts as failed.") {
		t.Errorf("the leader is not told that the critic is required: %s", text)
	}
}

// TestRequired_AtTheSameTime has one of two delegations fail that were decided together: the other
// one does not make up for it.
func TestRequired_AtTheSameTime(t *testing.T) {
	reg := registry{"a": failing("a", nil), "critic": (&diary{}).says("critic", func(text string) (string, error) {
		if text == "one" {
			return "", outOfInk()
		}
		return "fine", nil
	})}
	r := watch(t.Context(), ledBy(t, leads(t, calls(give("critic", "one"), give("critic", "two")), says("All done.")), reg, needsCritic, inParallel), "tides")
	e := wantRequired(t, r, "All done.", `member "critic" failed`)
	if e.Details["members"] != "critic" || e.Details["delegations"] != agent.ChildTask(crashRoot, "2") || e.Code != agent.CodeInternal {
		t.Errorf("code %v, details %v", e.Code, e.Details)
	}
}

// TestRequired_Rounds counts the delegations of all rounds of revision.
func TestRequired_Rounds(t *testing.T) {
	team2 := func(critic ...string) (*recorded, *scriptedLead) {
		var d diary
		judge := leads(t, verdict(0.1, "more"), verdict(0.9, ""))
		lead := leads(t, calls(give("critic", "look")), says("first"), calls(give("critic", "look again")), says("second"))
		return watch(t.Context(), ledBy(t, lead, d.critics(critic...), needsCritic, reviewed(team.Review{Model: judge, Threshold: at(0.5)})), "tides"), judge
	}
	if r, _ := team2("fine", "fine"); r.err != nil || r.text() != "second" {
		t.Errorf("both succeeded: %v", r.err)
	}
	r, judge := team2("fine", "fail")
	wantRequired(t, r, "second", `member "critic" failed`)
	if n := len(judge.all()); n != 1 {
		t.Errorf("an answer without its required work was judged: %d judgements", n)
	}
	r, judge = team2("fail")
	wantRequired(t, r, "first", `member "critic" failed`)
	if n := len(judge.all()); n != 0 {
		t.Errorf("an answer without its required work was judged: %d judgements", n)
	}
}

// TestRequired_Nested has a nested team fail for its own required member, which its own lead denies;
// it is a required member of the team above.
func TestRequired_Nested(t *testing.T) {
	for required, want := range map[bool]string{true: "", false: "All done above."} {
		var d diary
		reg := d.critics()
		reg["critic"] = ledBy(t, leads(t, calls(give("critic", "look")), says("All done below.")), d.critics(), needsCritic, func(_ *leader.CoordinatorConfig, cfg *team.Config) { cfg.ID = "critic" })
		r := watch(t.Context(), ledBy(t, leads(t, calls(give("critic", "check")), says("All done above.")), reg, func(c *leader.CoordinatorConfig, _ *team.Config) {
			if c.Members = members("a", "critic"); required {
				c.Members = requiring("a", "critic")
			}
		}), "tides")
		if required {
			wantRequired(t, r, "All done below.|All done above.", `team "t1" ended without`, `member "critic" failed (REQUIRED_WORK_FAILED)`, `team "critic" ended without its required work`)
		} else if r.text() != want {
			t.Errorf("the team above answered %q (%v)", r.text(), r.err)
		}
	}
}

// TestRequired_Transfer has a leader hand over although its required member failed.
func TestRequired_Transfer(t *testing.T) {
	var d diary
	reg := registry{"bob": d.says("bob", func(text string) (string, error) { return "bob(" + text + ")", nil })}
	reg["desk"] = ledBy(t, leads(t, calls(give("critic", "look")), handsTo("bob", "take it")), d.critics(), needsCritic, func(_ *leader.CoordinatorConfig, cfg *team.Config) { cfg.ID = "desk" })
	r := watch(t.Context(), swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) { c.Entry = "desk" }), "tides")
	e := wantReason(t, r.err, agent.ReasonRequiredWork)
	has(t, e.Message, `member "critic" failed`, "would have handed over to bob")
	if all := d.all(); len(all) != 1 || r.kept() != "" {
		t.Errorf("after %q it keeps %q", all, r.kept())
	}
}

// TestRequired_OpenWork has a leader with on_open_delegations CANCEL answer while its required member
// works.
func TestRequired_OpenWork(t *testing.T) {
	reg := registry{"a": failing("a", nil), "critic": stuck("critic")}
	r := watch(t.Context(), ledBy(t, leads(t, calls(give("critic", "look")), says("All done.")), reg, async, needsCritic, func(c *leader.CoordinatorConfig, _ *team.Config) {
		c.OpenDelegations = leader.CancelOpen
	}), "tides")
	wantRequired(t, r, "All done.", `member "critic" was still working`)
}

func TestRequired_Faults(t *testing.T) {
	_, err := team.New(team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: registry{}, Members: []team.Member{{Agent: "a", Required: true, Disabled: true}}})
	has(t, wantReason(t, err, agent.ReasonInvalidTeamConfig).Error(), `member "a" is required, but disabled`)
	_, err = leader.NewCoordinator(leader.CoordinatorConfig{Members: requiring("a", "critic"), Async: true, OpenDelegations: leader.DetachOpen})
	has(t, wantReason(t, err, agent.ReasonInvalidTeamConfig).Error(), `member "critic" is required, but its work becomes a task of its own`)
	both := members("a", "b")
	both[0].Required, both[1].Required = true, true
	_, err = leader.NewCoordinator(leader.CoordinatorConfig{Members: both, Limits: &teamv1.Limits{MaxDelegations: proto.Int32(1)}})
	has(t, wantReason(t, err, agent.ReasonInvalidTeamConfig).Error(), "more members are required than the 1 that a run may call")
	_, err = workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "g", Required: true, Parallel: []workflow.Step{{ID: "one", Member: "a"}}}}})
	has(t, wantReason(t, err, agent.ReasonInvalidTeamConfig).Error(), "is a group")
}

// crashRequired is a leader that claims success three levels above what failed: its required member is
// a workflow whose required step fails for the first task, and whose second task succeeds; another
// required member fails.
func crashRequired(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := cast(w)
	reg["inner"] = newTeamWith(t, team.Config{
		ID: "inner", Registry: reg, Members: members("c", "broken", "asker"), Limits: crashLimits(nil), ReportErrors: true,
		Scheduler: flow(t, workflow.Step{ID: "one", Member: "c"},
			workflow.Step{ID: "two", Member: "broken", When: "input.contains('first')", Required: true}, workflow.Step{ID: "three", Member: "asker"}),
	})
	lead := w.mind("lead", calls(give("inner", "first"), give("a", "1"), give("broken", "2")), calls(give("inner", "second")), says("All done."))
	return ledBy(t, lead, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "root", crashLimits(nil), members("a", "inner", "broken")
		c.Members[1].Required, c.Members[2].Required = true, true
	})
}

// TestCrash_Required kills the process at every event of a run whose required work fails: it fails
// each time, with the same error, and its answer is kept once.
func TestCrash_Required(t *testing.T) {
	var want string
	for _, lose := range []bool{false, true} {
		for at, crashed := 0, true; crashed; at++ {
			w := newWorld(t)
			w.build, w.budget, crashed = crashRequired, at, false
			for !w.live(true) {
				crashed = true
				w.crash(lose)
			}
			w.verify("OUTCOME_FAILED: ")
			end, kept := w.events[len(w.events)-1].GetEnded(), 0
			for _, ev := range w.events {
				if ev.GetScope() == "" && ev.GetArtifact() != nil {
					kept++
				}
			}
			if want == "" {
				want = end.GetError().GetMessage()
				has(t, want, `member "broken" failed (UNAVAILABLE)`)
				if strings.Contains(want, "inner") {
					t.Errorf("a later success did not make up for a failure: %s", want)
				}
			}
			if end.GetError().GetReason() != agent.ReasonRequiredWork || end.GetError().GetMessage() != want || kept != 1 {
				t.Errorf("crash at %d: %v, kept %d times", at, end.GetError(), kept)
			}
		}
	}
}
