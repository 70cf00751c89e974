package team_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/allowance"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// fine accepts the result "fine".
func fine(t *testing.T) *team.Review {
	t.Helper()
	check, err := expr.CompileCheck(`result.text == "fine"`)
	if err != nil {
		t.Fatal(err)
	}
	return &team.Review{Check: check, MaxRounds: 2}
}

// accepting are members with these ids; the results of the critic have to be accepted.
func accepting(r *team.Review, ids ...string) []team.Member {
	ms := members(ids...)
	for i := range ms {
		if ms[i].Agent == "critic" {
			ms[i].Accept = r
		}
	}
	return ms
}

// of returns what a member was given.
func (d *diary) of(member string) []string {
	return slices.DeleteFunc(d.all(), func(line string) bool { return !strings.HasPrefix(line, member+" < ") })
}

// TestC_21_AcceptModes has the first result of a member refused in a team of each mode: the member is given
// the reason, and the team is given the second result.
func TestC_21_AcceptModes(t *testing.T) {
	for name, build := range map[string]func(t *testing.T, reg registry, ms []team.Member) *team.Team{
		"coordinator": func(t *testing.T, reg registry, ms []team.Member) *team.Team {
			return ledBy(t, leads(t, calls(give("critic", "look")), toldOf("critic")), reg, func(c *leader.CoordinatorConfig, _ *team.Config) { c.Members = ms })
		},
		"route": func(t *testing.T, reg registry, ms []team.Member) *team.Team {
			return ledBy(t, leads(t, calls(give("critic", "look")), toldOf("critic")), reg, func(c *leader.CoordinatorConfig, _ *team.Config) { c.Members = ms },
				member("critic", func(m *team.Member) { m.SkipSummarization = true }))
		},
		"supervisor": func(t *testing.T, reg registry, ms []team.Member) *team.Team {
			s, err := supervisor.New(supervisor.Config{Members: ms, Rules: []supervisor.Rule{{When: "turn == 1", Next: []string{"critic"}}, {Finish: "last"}}})
			if err != nil {
				t.Fatal(err)
			}
			return newTeamWith(t, team.Config{ID: "t1", Scheduler: s, Members: ms, Registry: reg})
		},
		"workflow": func(t *testing.T, reg registry, ms []team.Member) *team.Team {
			return newTeamWith(t, team.Config{ID: "t1", Scheduler: flow(t, workflow.Step{ID: "check", Member: "critic"}), Members: ms, Registry: reg})
		},
		"broadcast": func(t *testing.T, reg registry, ms []team.Member) *team.Team {
			return newTeamWith(t, team.Config{ID: "t1", Scheduler: broadcast.New(broadcast.Config{}), Members: ms, Registry: reg, ReportErrors: true, Model: leads(t, toldOf("critic"))})
		},
		"swarm": func(t *testing.T, reg registry, ms []team.Member) *team.Team {
			return swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) { c.Members, c.Entry = ms, "critic" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d diary
			r := watch(t.Context(), build(t, d.critics("bad", "fine"), accepting(fine(t), "a", "critic")), "tides")
			r.complete(t)
			if r.err != nil || r.text() != "fine" {
				t.Fatalf("it answered %q (%v)", r.text(), r.err)
			}
			all := d.of("critic")
			if len(all) != 2 {
				t.Fatalf("the member was given %q", all)
			}
			has(t, all[1], "The last result", "bad", `This is to be met: result.text == "fine"`)

			d = diary{}
			r = watch(t.Context(), build(t, d.critics("bad", "worse", "fine"), accepting(fine(t), "a", "critic")), "tides")
			r.complete(t)
			if n := len(d.of("critic")); n != 2 {
				t.Errorf("the member was called %d times, want 2", n)
			}
			if r.err == nil { // the model of the team is told
				has(t, r.text(), `critic: failed (QUALITY_THRESHOLD_NOT_MET)`, `member "critic" has no accepted result after round 2 of 2`)
			} else {
				wantReason(t, r.err, agent.ReasonQuality)
			}
		})
	}
}

// toldOf is a turn that answers with what the model was told last: the result of the member alone if it
// succeeded, else everything.
func toldOf(member string) func(*agent.ModelRequest) *teamv1.Turn {
	return func(req *agent.ModelRequest) *teamv1.Turn {
		all := heard(req)
		told := all[len(all)-1]
		if _, result, ok := strings.Cut(told, member+": succeeded\n\n"); ok {
			told, _, _ = strings.Cut(result, "\n")
		}
		return says(told)
	}
}

// TestC_21_AcceptJudges has each kind of judge refuse a result and accept the next.
func TestC_21_AcceptJudges(t *testing.T) {
	var formats int
	format := func(m *a2av1.Message) (*structpb.Value, error) {
		if formats++; agent.Text(m) != "fine" {
			return nil, errors.New("it has no source")
		}
		return nil, nil //nolint:nilnil // the data is not used
	}
	for name, c := range map[string]struct {
		accept *team.Review
		model  agent.Model
		texts  []string
		reason string
	}{
		"a format":                {&team.Review{Format: format}, nil, []string{"bad", "fine"}, "does not have the format that is required: it has no source"},
		"a model":                 {&team.Review{Model: leads(t, verdict(0.2, "shorter"), verdict(0.8, "")), Threshold: at(0.7)}, nil, []string{"bad", "fine"}, "shorter"},
		"the team's model":        {&team.Review{Threshold: at(0.7)}, leads(t, verdict(0.2, "shorter"), verdict(0.8, "")), []string{"bad", "fine"}, "shorter"},
		"a member of the team":    {&team.Review{Agent: "judge", Threshold: at(0.7)}, nil, []string{"bad", "fine"}, "is too long"},
		"no judge and no content": {&team.Review{}, nil, []string{"", "fine"}, "There is nothing in the result."},
	} {
		t.Run(name, func(t *testing.T) {
			var d diary
			reg := d.critics(c.texts...)
			said := 0
			reg["judge"] = (&diary{}).says("judge", func(string) (string, error) {
				if said++; said == 1 {
					return `{"score": 0.1, "feedback": "is too long"}`, nil
				}
				return "1", nil
			})
			tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("critic"), Members: accepting(c.accept, "critic", "judge"), Registry: reg, Model: c.model})
			r := watch(t.Context(), tm, "tides")
			r.complete(t)
			if r.err != nil || r.text() != "fine" || len(d.all()) != 2 {
				t.Fatalf("it answered %q (%v) after %q", r.text(), r.err, d.all())
			}
			has(t, d.all()[1], c.reason)
		})
	}
	if formats == 0 {
		t.Error("the format was not asked")
	}
}

// TestC_21_AcceptExpected shows the judge what is expected of the member, not what the brief expects of the
// whole run.
func TestC_21_AcceptExpected(t *testing.T) {
	judge := leads(t, verdict(1, ""))
	var d diary
	tm := newTeamWith(t, team.Config{
		ID: "t1", Scheduler: inOrder("critic"), Registry: d.critics("fine"), Members: accepting(&team.Review{Model: judge, Threshold: at(1), Expected: "three facts"}, "critic"),
	})
	if r := watchRequest(t.Context(), tm, briefed(&teamv1.Brief{ExpectedOutput: "a book", TaskDescription: "write a book"})); r.err != nil {
		t.Fatal(r.err)
	}
	if text := strings.Join(heard(judge.all()[0]), "\n"); !strings.Contains(text, "three facts") || strings.Contains(text, "a book") {
		t.Errorf("the judge was told %q", text)
	}
}

// TestC_21_AcceptRequired has a leader claim success although no result of its required member was
// accepted.
func TestC_21_AcceptRequired(t *testing.T) {
	var d diary
	ms := accepting(fine(t), "a", "critic")
	ms[1].Required = true
	tm := ledBy(t, leads(t, calls(give("critic", "look")), says("All done.")), d.critics("bad", "worse"), func(c *leader.CoordinatorConfig, _ *team.Config) { c.Members = ms })
	wantRequired(t, watch(t.Context(), tm, "tides"), "All done.", `member "critic" failed (QUALITY_THRESHOLD_NOT_MET)`)
}

// TestC_21_AcceptLimits counts a delegation with several rounds once, live and when it is recorded.
func TestC_21_AcceptLimits(t *testing.T) {
	var d diary
	tm := newTeamWith(t, team.Config{
		ID: "t1", Scheduler: inOrder("critic"), Members: accepting(fine(t), "critic"), Registry: d.critics("bad", "fine"), Limits: &teamv1.Limits{MaxSteps: proto.Int32(1)},
	})
	r := watch(t.Context(), tm, "tides")
	if r.err != nil || r.text() != "fine" {
		t.Fatalf("it answered %q (%v)", r.text(), r.err)
	}
	if got := allowance.CountsOn(r.events)[allowance.Steps]; got != 1 {
		t.Errorf("%d steps are on record", got)
	}
	for _, ev := range r.events {
		if ev.GetStarted() != nil && ev.GetScope() == "1.1" && ev.GetAgent() != "t1/critic" {
			t.Errorf("the path of a round is %s", ev.GetAgent())
		}
	}
}

// TestC_21_AcceptGuarded passes the result of each round through the result middlewares of the team
// before the judge sees it, and quotes no judge in errors.
func TestC_21_AcceptGuarded(t *testing.T) {
	var d diary
	var w wares
	judge := leads(t, verdict(0.1, "it says bad"))
	tm := newTeamWith(t, team.Config{
		ID: "t1", Scheduler: inOrder("critic"), Members: accepting(&team.Review{Model: judge, Threshold: at(0.5), MaxRounds: 1}, "critic"), Registry: d.critics("bad"),
		Guards: agent.Guards{Result: []agent.Guard{w.tags("x")}},
	})
	r := watch(t.Context(), tm, "tides")
	e := wantReason(t, r.err, agent.ReasonQuality)
	if text := strings.Join(heard(judge.all()[0]), "\n"); !strings.Contains(text, "bad") || len(w.all()) != 1 {
		t.Errorf("the judge was told %q, the middleware %q", text, w.all())
	}
	if strings.Contains(e.Message, "it says bad") {
		t.Errorf("the error quotes the judge: %s", e.Message)
	}
	var blocks wares
	var d2 diary
	tm = newTeamWith(t, team.Config{
		ID: "t1", Scheduler: inOrder("critic"), Members: accepting(fine(t), "critic"), Registry: d2.critics("bad", "fine"),
		Guards: agent.Guards{Result: []agent.Guard{blocks.blocks("polite", "say please")}},
	})
	wantReason(t, watch(t.Context(), tm, "tides").err, agent.ReasonGuardrailBlocked)
	if n := len(d2.of("critic")); n != 1 {
		t.Errorf("the member was called %d times after its result was blocked", n)
	}
}

// openBreaker is a circuit breaker that is open for the critic.
type openBreaker struct{ allowed int }

func (b *openBreaker) Allow(string, string) (func(agent.Judgement), error) {
	b.allowed++
	return func(agent.Judgement) {}, nil
}

func (*openBreaker) Open(_, id string) string {
	if id == "critic" {
		return "circuit breaker open"
	}
	return ""
}
func (*openBreaker) Called(string, string)                       {}
func (*openBreaker) Retry(string, string) (time.Duration, error) { return 0, nil }

// TestC_21_AcceptBreaker rejects a delegation while the circuit breaker of the member is open.
func TestC_21_AcceptBreaker(t *testing.T) {
	var d diary
	b := &openBreaker{}
	tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("critic"), Members: accepting(fine(t), "critic"), Registry: d.critics("fine"), Upstreams: b})
	r := watch(t.Context(), tm, "tides")
	wantReason(t, r.err, agent.ReasonBreakerOpen)
	for _, ev := range r.events {
		if e := ev.GetEnded(); e != nil && ev.GetScope() == "1" && e.GetOutcome() != teamv1.Outcome_OUTCOME_REJECTED {
			t.Errorf("the delegation ended %s", e.GetOutcome())
		}
	}
	if b.allowed != 0 || len(d.all()) != 0 {
		t.Errorf("%d calls were allowed, %d made", b.allowed, len(d.all()))
	}
}

// TestC_21_AcceptFollowUp gives a member what the user says to its task while its result is judged.
func TestC_21_AcceptFollowUp(t *testing.T) {
	run := &agent.Run{Root: crashRoot, Seed: 1}
	judge := leads(t, func(*agent.ModelRequest) *teamv1.Turn {
		run.Deliver(&teamv1.Inbound{N: 1, Scope: "1", Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m-2", "and the moon")}}})
		return verdict(0.9, "")
	}, verdict(0.8, ""))
	var d diary
	tm := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("critic"), Members: accepting(&team.Review{Model: judge, Threshold: at(0.5)}, "critic"), Registry: d.critics("first", "second")})
	var reply *teamv1.Reply
	for ev, err := range tm.Process(agent.With(t.Context(), run), &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m-1", "tides")}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetReply() != nil {
			reply = ev.GetReply()
		}
	}
	if all := d.of("critic"); agent.Text(reply.GetMessage()) != "second" || len(all) != 2 || !strings.Contains(all[1], "and the moon") {
		t.Errorf("the member was given %q; the answer is %v", all, reply)
	}
}

// TestC_21_AcceptTransfer has a member of a swarm, whose results have to be accepted, hand over.
func TestC_21_AcceptTransfer(t *testing.T) {
	var d diary
	reg := d.crew("a")
	reg["critic"] = ledBy(t, leads(t, handsTo("a", "take it")), d.crew("a"), func(_ *leader.CoordinatorConfig, cfg *team.Config) { cfg.ID = "critic" })
	r := watch(t.Context(), swarmOf(t, reg, func(c *swarm.Config, _ *team.Config) {
		c.Members, c.Entry = accepting(fine(t), "a", "critic"), "critic"
	}), "tides")
	r.complete(t)
	if r.err != nil || !strings.HasPrefix(r.text(), "a(") {
		t.Errorf("it answered %q (%v)", r.text(), r.err)
	}
}

// TestC_21_AcceptDepth does not count an acceptance as a level of nesting.
func TestC_21_AcceptDepth(t *testing.T) {
	var d diary
	reg := d.critics("fine")
	reg["t5"] = newTeamWith(t, team.Config{ID: "t5", Scheduler: inOrder("critic"), Members: accepting(fine(t), "critic"), Registry: reg})
	for _, pair := range [][2]string{{"t4", "t5"}, {"t3", "t4"}, {"t2", "t3"}, {"t1", "t2"}} {
		reg[pair[0]] = newTeamWith(t, team.Config{ID: pair[0], Scheduler: inOrder(pair[1]), Members: members(pair[1]), Registry: reg})
	}
	if text, err := ask(t, reg["t1"], "tides"); text != "fine" || err != nil {
		t.Errorf("%d levels of teams: %q, %v", agent.MaxDepth, text, err)
	}
}

// TestC_21_AcceptHistory shows a member, in each round, what its history scope shows without an acceptance.
func TestC_21_AcceptHistory(t *testing.T) {
	for _, accept := range []*team.Review{nil, fine(t)} {
		b := &branched{Agent: (&diary{}).critics("fine")["critic"]}
		reg := registry{"a": skilled("a"), "critic": b}
		ms := accepting(accept, "a", "critic")
		ms[1].History = team.HistoryParent
		req := &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m1", "tides"), History: []*a2av1.Message{agent.UserMessage("m0", "before")}}
		watchRequest(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a", "critic"), Members: ms, Registry: reg}), req)
		var shown []string
		for _, m := range b.last.GetHistory() {
			shown = append(shown, agent.Text(m))
		}
		if got := strings.Join(shown, "|"); got != "tides" || !b.branch {
			t.Errorf("accept %v: it was shown %q, branch %v", accept != nil, got, b.branch)
		}
	}
}

// crashAccepted is a leader of members whose first results are refused: a worker, one that asks, and a
// team; no result of another one is accepted.
func crashAccepted(t *testing.T, w *world) *team.Team {
	t.Helper()
	second, err := expr.CompileCheck("round == 2")
	if err != nil {
		t.Fatal(err)
	}
	never, err := expr.CompileCheck("false")
	if err != nil {
		t.Fatal(err)
	}
	reg := cast(w)
	reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Registry: reg, Members: members("c"), Limits: crashLimits(nil), Scheduler: inOrder("c")})
	lead := w.mind("lead", calls(give("a", "1"), give("asker", "2"), give("inner", "3"), give("b", "4"), give("broken", "5")),
		found("tides", "The last result", "told: yes to asker?", "c(3", "no accepted result after round 2 of 2", "out of ink"))
	return ledBy(t, lead, reg, inParallel, func(c *leader.CoordinatorConfig, cfg *team.Config) {
		cfg.ID, cfg.Limits, c.Members = "root", crashLimits(nil), members("a", "asker", "inner", "b", "broken")
		for i := range c.Members {
			c.Members[i].Accept = &team.Review{Check: second, MaxRounds: 3}
		}
		c.Members[3].Accept = &team.Review{Check: never, MaxRounds: 2}
	})
}

// TestC_21_AcceptReservedID judges the results of a member whose id no team may have.
func TestC_21_AcceptReservedID(t *testing.T) {
	var d diary
	ms := accepting(fine(t), "critic")
	ms[0].ID = "docs"
	text, err := ask(t, newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("docs"), Members: ms, Registry: d.critics("fine")}), "tides")
	if text != "fine" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestC_21_AcceptFaults(t *testing.T) {
	check := fine(t).Check
	for want, c := range map[string]team.Config{
		`members[1].accept.threshold is required when a model or an agent judges`: {Members: accepting(&team.Review{Agent: "a"}, "a", "critic")},
		`members[0].accept.threshold is 2; it must be 0 to 1`:                     {Members: accepting(&team.Review{Check: check, Threshold: at(2)}, "critic")},
		`members[0].accept.judge is 2 of model, check, schema and agent`:          {Members: accepting(&team.Review{Check: check, Agent: "a", Threshold: at(1)}, "critic")},
		`members[0].accept.max_rounds is -1`:                                      {Members: accepting(&team.Review{Check: check, MaxRounds: -1}, "critic")},
	} {
		c.ID, c.Scheduler, c.Registry = "t1", inOrder("critic"), registry{}
		_, err := team.New(c)
		has(t, wantReason(t, err, agent.ReasonInvalidTeamConfig).Error(), want)
	}
}
