package team_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// verdict is a judge's turn.
func verdict(score float64, feedback string) *teamv1.Turn {
	return calls(tool(team.JudgeTool, fmt.Sprintf(`{"score":%v,"feedback":%q}`, score, feedback)))
}

// at is a threshold.
func at(v float64) *float64 { return &v }

// reviewed has a judge look at the results of a team.
func reviewed(r team.Review) func(*leader.CoordinatorConfig, *team.Config) {
	return func(_ *leader.CoordinatorConfig, c *team.Config) { c.Review = &r }
}

// verdicts are those of a run, in order: "round: score feedback fault".
func (r *recorded) verdicts() []string {
	var list []string
	round := 1
	for _, ev := range r.events {
		if n := ev.GetDecided().GetRound(); n > 0 && ev.GetScope() == "" {
			round = int(n)
		}
		if v := ev.GetEnded().GetVerdict(); v != nil {
			score := "none"
			if v.Score != nil {
				score = fmt.Sprint(v.GetScore())
			}
			list = append(list, strings.TrimSpace(fmt.Sprintf("%d: %s %s", round, score, v.GetFeedback())))
		}
	}
	return list
}

// kept is the result that a failed run shows.
func (r *recorded) kept() string {
	var texts []string
	for _, ev := range r.events {
		if a := ev.GetArtifact().GetArtifact(); a != nil {
			texts = append(texts, agent.Text(&a2av1.Message{Parts: a.GetParts()}))
		}
	}
	return strings.Join(texts, "|")
}

// ids are those of the steps of the run itself, as they were decided.
func (r *recorded) ids() []string {
	var ids []string
	for _, ev := range r.events {
		for _, st := range ev.GetDecided().GetSteps() {
			if ev.GetScope() == "" {
				ids = append(ids, st.GetId())
			}
		}
	}
	return ids
}

// wantVerdicts compares the verdicts of a run.
func wantVerdicts(t *testing.T, r *recorded, want ...string) {
	t.Helper()
	if got := r.verdicts(); !slices.Equal(got, want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
}

// modesReviewed are teams of all modes, and an agent, whose members a and b say
// "b(a(INPUT))", and whose judge is m.
var modesReviewed = []struct {
	name  string
	build func(t *testing.T, d *diary, review *team.Review, l *teamv1.Limits) agent.Agent
}{
	{"supervisor", func(t *testing.T, d *diary, review *team.Review, l *teamv1.Limits) agent.Agent {
		reg := d.crew("a", "b")
		s, err := supervisor.New(supervisor.Config{Members: members("a", "b"), Rules: []supervisor.Rule{
			{When: "turn == 1", Next: []string{"a"}}, {When: "last.member == 'a'", Next: []string{"b"}}, {Finish: supervisor.FinishLast},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return newTeamWith(t, team.Config{ID: "t1", Scheduler: s, Members: members("a", "b"), Registry: reg, Review: review, Limits: l})
	}},
	{"workflow", func(t *testing.T, d *diary, review *team.Review, l *teamv1.Limits) agent.Agent {
		w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "one", Member: "a"}, {ID: "two", Member: "b", After: []string{"one"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Members: members("a", "b"), Registry: d.crew("a", "b"), Review: review, Limits: l})
	}},
	{"coordinator", func(t *testing.T, d *diary, review *team.Review, l *teamv1.Limits) agent.Agent {
		turn := func(req *agent.ModelRequest) *teamv1.Turn {
			if len(req.Messages) == 1 {
				return calls(give("a", req.Messages[0].Text))
			}
			_, text, _ := strings.Cut(lastSaid(req), "\n\n")
			if strings.HasPrefix(text, "b(") {
				return says(text)
			}
			return calls(give("b", text))
		}
		lead := leads(t, turn, turn, turn, turn, turn, turn)
		return ledBy(t, lead, d.crew("a", "b"), func(_ *leader.CoordinatorConfig, c *team.Config) { c.Review, c.Limits = review, l })
	}},
	{"swarm", func(t *testing.T, d *diary, review *team.Review, l *teamv1.Limits) agent.Agent {
		return swarmOf(t, d.crew("a", "b"), func(c *swarm.Config, cfg *team.Config) {
			c.Entry, cfg.Review, cfg.Limits = "a", review, l
			c.Members[0].HandoffAfter = "b"
		})
	}},
	{"planned workflow", func(t *testing.T, d *diary, review *team.Review, l *teamv1.Limits) agent.Agent {
		turn := func(req *agent.ModelRequest) *teamv1.Turn {
			if req.Force != "" {
				return plans(do("one", "a", req.Messages[0].Text), do("two", "b", "{{steps.one.text}}", "one"))
			}
			_, text, _ := strings.Cut(lastSaid(req), "\n\n")
			text, _, _ = strings.Cut(text, "\n\n## Result of one (a)")
			return says(text + ")")
		}
		return plannedBy(t, leads(t, turn, turn, turn, turn), d.crew("a", "b"), func(_ *workflow.PlannedConfig, c *team.Config) { c.Review, c.Limits = review, l })
	}},
}

func TestReview_Modes(t *testing.T) {
	for _, m := range modesReviewed {
		t.Run("R-001-11 C-21 "+m.name+": a result below the threshold is worked over, the next one is the answer", func(t *testing.T) {
			var d diary
			judge := leads(t, verdict(0.4, "add sources"), verdict(0.8, ""))
			tm := m.build(t, &d, &team.Review{Model: judge, Threshold: at(0.8), Expected: "three facts"}, nil)
			r := watch(t.Context(), tm, "tides")
			r.complete(t)
			wantVerdicts(t, r, "1: 0.4 add sources", "2: 0.8")
			given := d.all()
			if len(given) != 4 || given[0] != "a < tides" || !strings.HasPrefix(given[1], "b < a(tides)") {
				t.Fatalf("given %q", given)
			}
			for _, text := range []string{"tides\n\n## The last result\n\nb(a(tides", "It was given 0.4, and 0.8 is asked for.", "add sources"} {
				if !strings.Contains(given[2], text) {
					t.Errorf("the second round begins with %q, which lacks %q", given[2], text)
				}
			}
			if !strings.HasPrefix(r.text(), "b(a(tides\n\n## The last result") {
				t.Errorf("the answer is %q (%v)", r.text(), r.err)
			}
			for i, id := range r.ids() {
				if id != fmt.Sprint(i+1) {
					t.Errorf("ids %q do not count on", r.ids())
				}
			}
		})
		t.Run("R-001-11 R-001-55 "+m.name+" of 2 rounds stops after round 2, and its last result stays readable", func(t *testing.T) {
			var d diary
			judge := leads(t, verdict(0.4, "add sources"), verdict(0.5, "add more"))
			r := watch(t.Context(), m.build(t, &d, &team.Review{Model: judge, Threshold: at(0.8), MaxRounds: 2}, nil), "tides")
			r.complete(t)
			wantVerdicts(t, r, "1: 0.4 add sources", "2: 0.5 add more")
			e := wantReason(t, r.err, agent.ReasonQuality)
			if e.Code != agent.CodeInternal || e.Details["score"] != "0.5" || e.Details["threshold"] != "0.8" || e.Details["rounds"] != "2" {
				t.Errorf("error %+v", e)
			}
			if len(d.all()) != 4 || !strings.HasPrefix(r.kept(), "b(a(tides\n\n## The last result") {
				t.Errorf("given %q, kept %q", d.all(), r.kept())
			}
		})
	}
}

func TestReview_Agent(t *testing.T) {
	t.Run("R-001-11 C-21 an agent with a model works its answer over, bounded by a brief; its model judges", func(t *testing.T) {
		m := leads(t, says("first"), verdict(0.2, "longer"), says("second, which is longer"), verdict(1, ""))
		a, err := leader.NewAgent(leader.AgentConfig{ID: "t1", Model: m})
		if err != nil {
			t.Fatal(err)
		}
		r := watchRequest(t.Context(), a, briefed(&teamv1.Brief{QualityThreshold: at(0.9), ExpectedOutput: "a long text"}))
		r.complete(t)
		wantVerdicts(t, r, "1: 0.2 longer", "2: 1")
		if r.text() != "second, which is longer" {
			t.Errorf("answer %q, %v", r.text(), r.err)
		}
		if p := fmt.Sprint(m.all()[1].Messages); !strings.Contains(p, "a long text") || !strings.Contains(p, "first") || !strings.Contains(p, "tides") {
			t.Errorf("R-001-21 the judge reads %q", p)
		}
		if said := heard(m.all()[2]); !strings.Contains(said[len(said)-1], "first") || !strings.Contains(said[len(said)-1], "longer") || slices.Contains(said, string(agent.RoleAssistant)+": first") {
			t.Errorf("the second round begins with %q", said)
		}
	})
	t.Run("R-001-55 and fails after its rounds", func(t *testing.T) {
		m := leads(t, says("first"), verdict(0.2, "longer"))
		a, err := leader.NewAgent(leader.AgentConfig{ID: "t1", Model: m})
		if err != nil {
			t.Fatal(err)
		}
		r := watchRequest(t.Context(), a, briefed(&teamv1.Brief{QualityThreshold: at(0.9), MaxRounds: proto.Int32(1)}))
		wantReason(t, r.err, agent.ReasonQuality)
		if r.kept() != "first" {
			t.Errorf("kept %q", r.kept())
		}
	})
}

func briefed(b *teamv1.Brief) *teamv1.ProcessRequest {
	return &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m-1", "tides"), Brief: b}
}

// TestReview_Rubbish has judges say what is no verdict.
func TestReview_Rubbish(t *testing.T) {
	rubbish := map[string]*teamv1.Turn{
		"no words":             says(""),
		"words":                says("Well done!"),
		"NaN":                  says("NaN"),
		"an infinity":          says("Inf"),
		"out of range":         verdict(1.1, "x"),
		"below the range":      verdict(-0.1, "x"),
		"a fraction":           says("8/10"),
		"no object":            calls(tool(team.JudgeTool, "[1]")),
		"broken JSON":          calls(tool(team.JudgeTool, `{"score":`)),
		"an object without it": says(`{"note": "fine"}`),
		"another tool":         calls(tool("publish", `{"score":1}`)),
		"a word as the score":  says(`{"score": "good"}`),
	}
	for _, name := range sortedKeys(rubbish) {
		turn := rubbish[name]
		run := func(judge *scriptedLead, threshold *float64) *recorded {
			var d diary
			return watch(t.Context(), modesReviewed[1].build(t, &d, &team.Review{Model: judge, Threshold: threshold}, nil), "tides")
		}
		t.Run("R-001-46 "+name+": asked once more, and then the score counts", func(t *testing.T) {
			judge := leads(t, turn, says("0.8"))
			r := run(judge, at(0.8))
			if v := r.verdicts(); len(v) != 2 || !strings.HasPrefix(v[0], "1: none") || v[1] != "1: 0.8" || r.text() != "b(a(tides))" {
				t.Errorf("verdicts %q, answer %q, %v", v, r.text(), r.err)
			}
			if last := lastSaid(judge.all()[1]); !strings.Contains(last, "was no verdict") {
				t.Errorf("it is asked once more with %q", last)
			}
		})
		t.Run("R-001-46 C-21 "+name+" twice, with a threshold: never completed", func(t *testing.T) {
			judge := leads(t, turn, turn)
			r := run(judge, at(0))
			wantReason(t, r.err, agent.ReasonQuality)
			if len(judge.all()) != 2 || r.kept() != "b(a(tides))" {
				t.Errorf("asked %d times, kept %q", len(judge.all()), r.kept())
			}
		})
		t.Run("C-33 "+name+" twice, without one: no score, and a flag", func(t *testing.T) {
			r := run(leads(t, turn, turn), nil)
			if r.text() != "b(a(tides))" || len(r.reply.GetWarnings()) != 1 || !strings.Contains(r.reply.GetWarnings()[0], "has no score") {
				t.Errorf("answer %q, warnings %q, %v", r.text(), r.reply.GetWarnings(), r.err)
			}
		})
	}
}

// TestReview_WithoutThreshold goes on as long as the judge says what to improve.
func TestReview_WithoutThreshold(t *testing.T) {
	for _, tt := range []struct {
		name  string
		turns []any
		want  []string
	}{
		{"C-21 a judge that is content ends it", []any{verdict(0.7, "")}, []string{"1: 0.7"}},
		{"C-21 so does a full score", []any{verdict(1, "nice")}, []string{"1: 1 nice"}},
		{"C-21 one that is not has it worked over, 3 rounds at most", []any{verdict(0.7, "x"), verdict(0.6, "y"), verdict(0.8, "z")}, []string{"1: 0.7 x", "2: 0.6 y", "3: 0.8 z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var d diary
			r := watch(t.Context(), modesReviewed[1].build(t, &d, &team.Review{Model: leads(t, tt.turns...)}, nil), "tides")
			wantVerdicts(t, r, tt.want...)
			if r.err != nil || !strings.HasPrefix(r.text(), "b(a(tides") || len(r.reply.GetWarnings()) > 0 {
				t.Errorf("answer %q, %v", r.text(), r.err)
			}
		})
	}
}

func TestReview_Words(t *testing.T) {
	for words, want := range map[string]string{
		"0.8": "0.8", " 1 ": "1", "0": "0", `{"score": 0.25}`: "0.25", "```json\n{\"score\": 0.5, \"feedback\": \"more\"}\n```": "0.5 more",
		`{"score": "0.5", "feedback": ["a"]}`: `0.5 ["a"]`, `Here: {"score": 1e-1}`: "0.1",
	} {
		t.Run("R-001-46 "+words, func(t *testing.T) {
			v := team.VerdictOf(&teamv1.Reply{Result: &teamv1.Reply_Turn{Turn: says(words)}})
			if got := strings.TrimSpace(fmt.Sprint(v.GetScore(), " ", v.GetFeedback())); v.Score == nil || got != want {
				t.Errorf("%v, want %s", v, want)
			}
		})
	}
}

func TestReview_Bounds(t *testing.T) {
	rounds := func(t *testing.T, review *team.Review, l *teamv1.Limits, brief *teamv1.Brief) int {
		t.Helper()
		var d diary
		low := func(*agent.ModelRequest) *teamv1.Turn { return verdict(0.1, "x") }
		if review != nil {
			review.Model = leads(t, low, low, low, low, low)
		}
		r := watchRequest(t.Context(), modesReviewed[1].build(t, &d, review, l), briefed(brief))
		return len(r.verdicts())
	}
	for _, tt := range []struct {
		name   string
		review *team.Review
		limit  *int32
		brief  *teamv1.Brief
		want   int
	}{
		{"2.2 max_rounds is 3 where nothing says it", &team.Review{Threshold: at(0.5)}, nil, nil, 3},
		{"limits.max_rounds", &team.Review{Threshold: at(0.5)}, proto.Int32(2), nil, 2},
		{"review.max_rounds below it", &team.Review{Threshold: at(0.5), MaxRounds: 1}, proto.Int32(2), nil, 1},
		{"review.max_rounds above it", &team.Review{Threshold: at(0.5), MaxRounds: 4}, proto.Int32(2), nil, 2},
		{"review.max_rounds alone", &team.Review{Threshold: at(0.5), MaxRounds: 4}, nil, nil, 4},
		{"R-001-11 a brief's below them", &team.Review{Threshold: at(0.5), MaxRounds: 4}, nil, &teamv1.Brief{MaxRounds: proto.Int32(2)}, 2},
		{"R-001-24 a brief's threshold of 0.0 passes", &team.Review{Threshold: at(0.5)}, nil, &teamv1.Brief{QualityThreshold: at(0)}, 1},
		{"R-001-24 and of 1.0", &team.Review{Threshold: at(0)}, nil, &teamv1.Brief{QualityThreshold: at(1)}, 3},
		{"C-21 a brief alone is judged by the check where there is no model", nil, nil, &teamv1.Brief{QualityThreshold: at(1)}, 1},
		{"a brief without bounds asks for no judge", nil, proto.Int32(2), &teamv1.Brief{ExpectedOutput: "x"}, 0},
		{"limits.max_rounds alone asks for none", nil, proto.Int32(2), nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if n := rounds(t, tt.review, &teamv1.Limits{MaxRounds: tt.limit}, tt.brief); n != tt.want {
				t.Errorf("%d rounds, want %d", n, tt.want)
			}
		})
	}
	for name, b := range map[string]*teamv1.Brief{
		"-0.1": {QualityThreshold: at(-0.1)}, "1.1": {QualityThreshold: at(1.1)}, "NaN": {QualityThreshold: at(math.NaN())}, "0 rounds": {MaxRounds: proto.Int32(0)},
	} {
		t.Run("R-001-24 a brief that says "+name+" is refused", func(t *testing.T) {
			var d diary
			r := watchRequest(t.Context(), modesReviewed[1].build(t, &d, nil, nil), briefed(b))
			if e := wantReason(t, r.err, agent.ReasonInvalidRequest); e.Code != agent.CodeInvalidArgument || len(r.events) > 0 {
				t.Errorf("%+v, %d events", e, len(r.events))
			}
		})
	}
	for name, review := range map[string]*team.Review{
		"a threshold of NaN": {Threshold: at(math.NaN())}, "a threshold of 1.1": {Threshold: at(1.1)}, "negative rounds": {MaxRounds: -1},
		"two judges": {Model: leads(t), Agent: "a"},
	} {
		t.Run("a review with "+name+" is refused", func(t *testing.T) {
			_, err := team.New(team.Config{ID: "t1", Scheduler: inOrder("a"), Registry: registry{}, Review: review})
			if err == nil || !strings.Contains(err.Error(), "review.") {
				t.Error(err)
			}
		})
	}
}

// TestReview_Nested has a team judged that is a member, by its own review alone.
func TestReview_Nested(t *testing.T) {
	var d diary
	reg := d.crew("a")
	inner := leads(t, verdict(0.1, "x"), verdict(0.9, ""))
	reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Review: &team.Review{Model: inner, Threshold: at(0.5)}})
	reg["plain"] = newTeamWith(t, team.Config{ID: "plain", Scheduler: inOrder("a"), Members: members("a"), Registry: reg})
	outer := leads(t, verdict(0.7, ""))
	top := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("inner", "plain"), Members: members("inner", "plain"), Registry: reg, Model: outer})
	r := watchRequest(t.Context(), top, briefed(&teamv1.Brief{QualityThreshold: at(0.6)}))
	r.complete(t)
	wantVerdicts(t, r, "1: 0.1 x", "1: 0.9", "1: 0.7")
	if r.err != nil || len(d.all()) != 3 {
		t.Errorf("given %q, %v", d.all(), r.err)
	}
	t.Run("R-000-24 what it has judged is its answer, also where it is joined of several", func(t *testing.T) {
		var d diary
		reg := d.crew("a", "b", "c")
		both, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "one", Member: "a"}, {ID: "two", Member: "b"}}})
		if err != nil {
			t.Fatal(err)
		}
		reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: both, Members: members("a", "b"), Registry: reg, Review: &team.Review{Threshold: at(0.5)}})
		reg["middle"] = newTeamWith(t, team.Config{ID: "middle", Scheduler: inOrder("inner"), Members: members("inner"), Registry: reg})
		r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("middle", "c"), Members: members("middle", "c"), Registry: reg}), "tides")
		if r.err != nil || !strings.Contains(r.text(), "a(tides)") || !strings.Contains(r.text(), "b(tides)") {
			t.Errorf("c was given %q, %v", r.text(), r.err)
		}
	})
	t.Run("C-07 limits.max_rounds of a team binds those below it", func(t *testing.T) {
		inner := leads(t, verdict(0.1, "x"), verdict(0.1, "x"))
		reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Review: &team.Review{Model: inner, Threshold: at(0.5)}})
		reg["middle"] = newTeamWith(t, team.Config{ID: "middle", Scheduler: inOrder("inner"), Members: members("inner"), Registry: reg, Limits: &teamv1.Limits{MaxRounds: proto.Int32(5)}})
		r := watch(t.Context(), newTeamWith(t, team.Config{
			ID: "t1", Scheduler: inOrder("middle"), Members: members("middle"), Registry: reg, Limits: &teamv1.Limits{MaxRounds: proto.Int32(2)},
		}), "tides")
		wantReason(t, r.err, agent.ReasonQuality)
		wantVerdicts(t, r, "1: 0.1 x", "1: 0.1 x")
	})
	t.Run("R-001-55 R-000-27 its failure is its member's", func(t *testing.T) {
		inner := leads(t, verdict(0.1, "x"))
		reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Review: &team.Review{Model: inner, Threshold: at(0.5), MaxRounds: 1}})
		r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("inner"), Members: members("inner"), Registry: reg}), "tides")
		wantReason(t, r.err, agent.ReasonQuality)
		r.complete(t)
		if r.kept() != "a(tides)" {
			t.Errorf("kept %q", r.kept())
		}
	})
}

func TestReview_Check(t *testing.T) {
	judged := func(t *testing.T, source string, brief *teamv1.Brief) *teamv1.Verdict {
		t.Helper()
		check, err := expr.CompileCheck(source)
		if err != nil {
			t.Fatal(err)
		}
		var d diary
		r := watchRequest(t.Context(), modesReviewed[1].build(t, &d, &team.Review{Check: check, MaxRounds: 1, Expected: "tides"}, nil), briefed(brief))
		for _, ev := range r.events {
			if v := ev.GetEnded().GetVerdict(); v != nil {
				return v
			}
		}
		t.Fatal("nothing was judged")
		return nil
	}
	words := &structpb.Struct{Fields: map[string]*structpb.Value{"audience": structpb.NewStringValue("pilots")}}
	for expr, want := range map[string]float64{
		`brief.context["place"] == "sea" || true`:     1,
		`brief.context["place"] == "sea"`:             0,
		`result.text.contains(input)`:                 1,
		`result.text.contains("moon")`:                0,
		`has(result.data)`:                            0,
		`result.data.x > 1`:                           0,
		`result.text.contains(expected) ? 1.0 : 0.25`: 0.25,
		`round`: 1,
		`size(brief.task_description) > 3 && round == 1`:            1,
		`brief.expected_output == "facts" && expected == "facts"`:   1,
		`brief.context["audience"] == "sailors" ? 0.5 : 0.1`:        0.1,
		`double(size(result.text)) / double(size(result.text) * 2)`: 0.5,
	} {
		t.Run("C-21 "+expr, func(t *testing.T) {
			v := judged(t, expr, &teamv1.Brief{TaskDescription: "tides", ExpectedOutput: "facts", Context: words})
			if v.Score == nil || v.GetScore() != want || (want < 1) != strings.Contains(v.GetFeedback(), expr) {
				t.Errorf("%v, want %v", v, want)
			}
		})
	}
	for _, expr := range []string{"2.0", "-1", `brief["task_description"]`, "0.0/0.0", "1.0/0.0", "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e+round > 0)))))"} {
		t.Run("R-001-46 no score from "+expr[:min(len(expr), 20)], func(t *testing.T) {
			if v := judged(t, expr, nil); v.Score != nil || v.GetFault() == "" {
				t.Errorf("%v", v)
			}
		})
	}
	for source, want := range map[string]string{
		`result.text`: "must be true or false, or a number", `steps.a.text == ""`: "no such variable", `result.member == "a"`: "no field", `round >`: "",
	} {
		if _, err := expr.CompileCheck(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
	t.Run("C-21 the check of a team without a model is that there is something", func(t *testing.T) {
		reg := registry{"a": &agent.Func{ID: "a", Call: (&diary{}).says("a", func(string) (string, error) { return "", nil }).Call}}
		r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Review: &team.Review{MaxRounds: 1, Threshold: at(0.1)}}), "tides")
		wantReason(t, r.err, agent.ReasonQuality)
		wantVerdicts(t, r, "1: 0 There is nothing in the result.")
		if n := slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetArtifact() != nil }); n >= 0 {
			t.Errorf("nothing is kept as %v", r.events[n])
		}
	})
}

// branched keeps its last request, and whether that says that the history is of one run alone.
type branched struct {
	agent.Agent
	branch bool
	last   *teamv1.ProcessRequest
}

func (b *branched) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	b.branch, b.last = req.GetBranch(), req
	return b.Agent.Process(ctx, req)
}

// TestReview_ByAgent has an agent of the registry judge, which may be a team.
func TestReview_ByAgent(t *testing.T) {
	build := func(t *testing.T, critic agent.Agent) *recorded {
		t.Helper()
		reg := (&diary{}).crew("a")
		reg["critic"] = critic
		return watch(t.Context(), newTeamWith(t, team.Config{
			ID: "t1", Scheduler: inOrder("a"), Members: members("a"), Registry: reg,
			Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(1)}, MemberTimeout: durationpb.New(time.Minute)},
			Review: &team.Review{Agent: "critic", Threshold: at(0.5), Expected: "three facts"},
		}), "tides")
	}
	t.Run("C-21 an agent with a model, whose spend stands at its own path", func(t *testing.T) {
		m := leads(t, says(`{"score": 0.2, "feedback": "cite"}`), says("0.9"))
		critic, err := leader.NewAgent(leader.AgentConfig{ID: "critic", Model: m})
		if err != nil {
			t.Fatal(err)
		}
		r := build(t, critic)
		r.complete(t)
		wantVerdicts(t, r, "1: 0.2 cite", "2: 0.9")
		if p := m.all()[0].Messages[0].Text; !strings.Contains(p, "three facts") || !strings.Contains(p, "a(tides)") {
			t.Errorf("R-001-21 it is asked %q", p)
		}
		if got := r.reply.GetSpent(); got.GetInputTokens() != 20 || got.GetModelCalls() != 2 {
			t.Errorf("S-60 spent %v", got)
		}
		paths := map[string]bool{}
		for _, ev := range r.events {
			if ev.GetEnded().GetSpent().GetModelCalls() > 0 {
				paths[ev.GetAgent()] = true
			}
		}
		if len(paths) != 1 || !paths["t1/critic"] {
			t.Errorf("S-60 spent by %v", paths)
		}
	})
	t.Run("R-001-46 one that says rubbish is asked once more, with what was wrong", func(t *testing.T) {
		var d diary
		said := []string{"Fine.", "0.7"}
		r := build(t, d.says("critic", func(string) (string, error) { defer func() { said = said[1:] }(); return said[0], nil }))
		wantVerdicts(t, r, "1: none", "1: 0.7")
		if c := d.all(); len(c) != 2 || !strings.Contains(c[1], `"Fine." is no score`) || strings.Contains(c[0], "no verdict") {
			t.Errorf("asked %q", c)
		}
	})
	t.Run("S-39 it is told that what it is given is of this run alone", func(t *testing.T) {
		c := &branched{Agent: (&diary{}).says("critic", func(string) (string, error) { return "0.9", nil })}
		build(t, c).complete(t)
		if !c.branch {
			t.Error("branch is not set in its request")
		}
	})
	t.Run("C-21 one that fails gave no score, after its retries", func(t *testing.T) {
		r := build(t, failing("critic", &agent.Error{Reason: agent.ReasonUnavailable, Message: "out of ink", Retry: true, Fresh: true}))
		if e := wantReason(t, r.err, agent.ReasonQuality); !strings.Contains(e.Message, "out of ink") || r.starts("2") != 3 {
			t.Errorf("%v, %d attempts", e, r.starts("2"))
		}
	})
	t.Run("R-000-26 one that is not registered", func(t *testing.T) {
		reg := (&diary{}).crew("a")
		r := watch(t.Context(), newTeamWith(t, team.Config{
			ID: "t1", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Review: &team.Review{Agent: "nobody", Threshold: at(0.5)},
		}), "tides")
		if e := wantReason(t, r.err, agent.ReasonQuality); !strings.Contains(e.Message, `"nobody"`) {
			t.Error(e)
		}
	})
}

// TestReview_Counts has the counts of limits go on from round to round, and circles
// looked for in each by itself (C-07).
func TestReview_Counts(t *testing.T) {
	low := func(*agent.ModelRequest) *teamv1.Turn { return verdict(0.1, "x") }
	t.Run("C-07 max_steps", func(t *testing.T) {
		var d diary
		r := watch(t.Context(), modesReviewed[1].build(t, &d, &team.Review{Model: leads(t, low, low), Threshold: at(1)}, &teamv1.Limits{MaxSteps: proto.Int32(3)}), "tides")
		wantReason(t, r.err, agent.ReasonMaxIterations)
		wantVerdicts(t, r, "1: 0.1 x")
	})
	for _, l := range []*teamv1.Limits{{MaxHandoffs: proto.Int32(1)}, {}} {
		t.Run(fmt.Sprintf("C-07 max_handoffs %v", l), func(t *testing.T) {
			var d diary
			r := watch(t.Context(), modesReviewed[3].build(t, &d, &team.Review{Model: leads(t, low, verdict(1, "")), Threshold: at(1)}, l), "tides")
			if l.MaxHandoffs != nil { //nolint:protogetter // set or not matters
				wantReason(t, r.err, agent.ReasonMaxHandoffs)
			} else if r.err != nil {
				t.Error(r.err)
			}
		})
	}
	t.Run("C-07 max_delegations", func(t *testing.T) {
		lead := leads(t, calls(give("a", "1")), says("first"), calls(give("a", "2")), says("second"))
		tm := ledBy(t, lead, (&diary{}).crew("a"), reviewed(team.Review{Model: leads(t, low), Threshold: at(1)}), func(_ *leader.CoordinatorConfig, c *team.Config) {
			c.Limits = &teamv1.Limits{MaxDelegations: proto.Int32(1)}
		})
		r := watch(t.Context(), tm, "tides")
		wantReason(t, r.err, agent.ReasonMaxDelegations)
	})
	t.Run("C-07 max_turns", func(t *testing.T) {
		lead := leads(t, says("first"), says("second"))
		tm := ledBy(t, lead, (&diary{}).crew("a"), reviewed(team.Review{Model: leads(t, low), Threshold: at(1)}), func(_ *leader.CoordinatorConfig, c *team.Config) {
			c.Limits = &teamv1.Limits{MaxTurns: proto.Int32(1)}
		})
		r := watch(t.Context(), tm, "tides")
		wantReason(t, r.err, agent.ReasonMaxIterations)
	})
	t.Run("R-000-29 C-23 the same words in another round are no circle", func(t *testing.T) {
		var d diary
		w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "one", Member: "a", Task: "always the same"}}})
		if err != nil {
			t.Fatal(err)
		}
		r := watch(t.Context(), newTeamWith(t, team.Config{ID: "t1", Scheduler: w, Members: members("a"), Registry: d.crew("a"), Review: &team.Review{Model: leads(t, low, verdict(1, "")), Threshold: at(1)}}), "tides")
		if r.err != nil || len(d.all()) != 2 {
			t.Errorf("%v, given %q", r.err, d.all())
		}
	})
}

// TestReview_FollowUp has the user say more while the judge looks at the result: the
// leader is asked again, and what it says then is judged.
func TestReview_FollowUp(t *testing.T) {
	lead := leads(t, says("first"), func(req *agent.ModelRequest) *teamv1.Turn { return says("second, knowing " + lastSaid(req)) })
	r, run := &recorded{}, &agent.Run{Root: crashRoot, Seed: 1}
	judge := leads(t, func(*agent.ModelRequest) *teamv1.Turn {
		run.Deliver(&teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage("m-2", "and the moon")}}})
		return verdict(0.9, "")
	}, verdict(0.8, ""))
	tm := ledBy(t, lead, (&diary{}).crew("a"), reviewed(team.Review{Model: judge, Threshold: at(0.5)}))
	for ev, err := range tm.Process(agent.With(t.Context(), run), briefed(nil)) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetReply() != nil {
			r.reply = ev.GetReply()
			continue
		}
		ev.Seq = int64(len(r.events) + 1)
		r.events = append(r.events, ev)
	}
	wantVerdicts(t, r, "1: 0.9", "1: 0.8")
	if r.text() != "second, knowing and the moon" {
		t.Errorf("answer %q", r.text())
	}
	if p := fmt.Sprint(judge.all()[1].Messages); !strings.Contains(p, "and the moon") {
		t.Errorf("the judge reads %q", p)
	}
}

// TestReview_Spent has the judge's turns count to the run, at the judge's own path,
// and be bound by the budget.
func TestReview_Spent(t *testing.T) {
	build := func(judge agent.Model, tokens int64) agent.Agent {
		var d diary
		return modesReviewed[1].build(t, &d, &team.Review{Model: judge, Threshold: at(0.8)}, &teamv1.Limits{MaxTokens: &tokens})
	}
	r := watch(t.Context(), build(leads(t, verdict(0.4, "x"), verdict(0.8, "")), 100_000), "tides")
	own := map[string]int64{}
	for _, ev := range r.events {
		own[ev.GetAgent()] += ev.GetEnded().GetSpent().GetInputTokens()
	}
	if r.err != nil || r.reply.GetSpent().GetInputTokens() != 20 || own["t1/judge"] != 20 || r.reply.GetSpent().GetModelCalls() != 2 {
		t.Errorf("S-60 spent %v, by %v, %v", r.reply.GetSpent(), own, r.err)
	}
	started := r.events[slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetStarted().GetModel() != "" })]
	if started.GetStarted().GetModel() != "lead" || started.GetStarted().GetReserved().GetModelCalls() != 1 {
		t.Errorf("the judge's start is %v", started)
	}
	t.Run("S-60 R-001-25 max_tokens ends a run that has none left for its judge", func(t *testing.T) {
		r := watch(t.Context(), build(leads(t), 10), "tides")
		wantReason(t, r.err, agent.ReasonBudgetExceeded)
		r.complete(t)
	})
	t.Run("R-001-46 C-33 and where no score is asked for the result has none, and a flag", func(t *testing.T) {
		var d diary
		r := watch(t.Context(), modesReviewed[1].build(t, &d, &team.Review{Model: leads(t)}, &teamv1.Limits{MaxTokens: proto.Int64(10)}), "tides")
		if r.err != nil || r.text() != "b(a(tides))" || len(r.reply.GetWarnings()) != 1 {
			t.Errorf("%q, warned of %q, %v", r.text(), r.reply.GetWarnings(), r.err)
		}
		r.complete(t)
	})
}

// TestReview_Finalized has an agent answer at the limit of its budget, so that at
// times nothing is left for its judge.
func TestReview_Finalized(t *testing.T) {
	for _, threshold := range []*float64{nil, at(0.5)} {
		poor := 0
		for limit := int64(7250); limit < 10_000; limit += 250 {
			m := &priced{spent: []*teamv1.Spent{{InputTokens: 200, OutputTokens: 700}}}
			for range 50 {
				m.turns = append(m.turns, echoCall())
			}
			a := finalizing(t, &finalModel{m}, team.Config{
				ID: "t1", Limits: &teamv1.Limits{MaxTokens: proto.Int64(limit)}, Review: &team.Review{Model: leads(t, verdict(1, "")), Threshold: threshold},
			})
			r := watch(t.Context(), a, strings.Repeat("tides ", 1000)) // more than its tokens, as far as is known
			switch {
			case threshold != nil && r.err != nil:
				wantReason(t, r.err, agent.ReasonBudgetExceeded)
				poor++
			case r.err != nil || r.text() != "summed up":
				t.Errorf("limit %d: %q, %v", limit, r.text(), r.err)
			case len(r.reply.GetWarnings()) > 0:
				poor++
			}
		}
		if poor != 5 {
			t.Errorf("%d runs had nothing left for their judge", poor)
		}
	}
}

// TestReview_Guarded has guardrails look at the answer before anybody is shown it,
// also where it is not good enough.
func TestReview_Guarded(t *testing.T) {
	reg := (&diary{}).crew("a")
	r := watch(t.Context(), newTeamWith(t, team.Config{
		ID: "t1", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Guards: agent.Guards{Output: []agent.Guard{(&wares{}).blocks("no-tides", "tides")}},
		Review: &team.Review{Model: leads(t, verdict(0.1, "x")), Threshold: at(1), MaxRounds: 1},
	}), "tides")
	wantReason(t, r.err, agent.ReasonGuardrailBlocked)
	if r.kept() != "" {
		t.Errorf("kept %q", r.kept())
	}
}

// TestReview_Unneeded has a team without a review put on record what it always did.
func TestReview_Unneeded(t *testing.T) {
	for _, m := range modesReviewed {
		var d diary
		r := watch(t.Context(), m.build(t, &d, nil, nil), "tides")
		for _, ev := range r.events {
			if ev.GetDecided().GetRound() > 0 || slices.ContainsFunc(ev.GetDecided().GetSteps(), func(s *teamv1.Step) bool { return s.GetKind() == teamv1.Step_KIND_JUDGE }) {
				t.Errorf("%s: %v", m.name, ev)
			}
		}
		if r.text() != "b(a(tides))" {
			t.Errorf("%s: %q, %v", m.name, r.text(), r.err)
		}
	}
}

// TestReview_Open has a leader answer while work is open that is not needed then: it
// is ended before the next round begins.
func TestReview_Open(t *testing.T) {
	reg := (&diary{}).crew("a")
	reg["slow"] = &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	lead := leads(t, calls(give("slow", "1")), says("first"), says("second"))
	tm := ledBy(t, lead, reg, async, reviewed(team.Review{Model: leads(t, verdict(0.1, "x"), verdict(1, "")), Threshold: at(1)}), func(c *leader.CoordinatorConfig, _ *team.Config) {
		c.OpenDelegations = leader.CancelOpen
	})
	r := watch(t.Context(), tm, "tides")
	r.complete(t)
	if got := r.delegations(); r.text() != "second" || len(got) != 1 || !strings.Contains(got[0], "canceled") {
		t.Errorf("%q: %v, %v", r.text(), got, r.err)
	}
}
