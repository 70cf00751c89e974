package team_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/supervisor"
)

// routeTool is the tool that a router calls.
const routeTool = "route"

func membersOf(ids ...string) []team.Member {
	members := make([]team.Member, len(ids))
	for i, id := range ids {
		members[i] = team.Member{Agent: id}
	}
	return members
}

// editors is the supervisor of the example: research, write, check, rewrite.
func editors(t *testing.T, router *supervisor.Router) *supervisor.Supervisor {
	t.Helper()
	v, err := supervisor.New(supervisor.Config{
		Members: membersOf(newsroom()...), Router: router,
		Rules: []supervisor.Rule{
			{ID: "first-turn", When: "turn == 1", Next: []string{"researcher"}},
			{ID: "write", When: "turn == 2", Next: []string{"writer"}},
			{ID: "check", When: "last.member == 'writer'", Next: []string{"critic"}},
			{ID: "rewrite", When: "critic.data.score < 7 && turn < 8", Next: []string{"writer", "fact-checker"}, Message: "Once more."},
			{ID: "accept", When: "critic.data.score >= 7", Finish: "writer"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// decide asks twice: a scheduler is a pure function.
func decide(t *testing.T, s team.Scheduler, state *team.State) (team.Decision, error) {
	t.Helper()
	d, err := s.Next(state)
	again, err2 := s.Next(state)
	if diff := cmp.Diff(d, again, protocmp.Transform()); diff != "" || (err == nil) != (err2 == nil) {
		t.Fatalf("the same state gives two decisions: %v, %v\n%s", err, err2, diff)
	}
	return d, err
}

func reasonOf(err error) string {
	var e *agent.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func modelTurn(turn *teamv1.Turn) *team.StepState {
	return &team.StepState{
		Step: &teamv1.Step{Kind: teamv1.Step_KIND_MODEL, Name: routeTool}, Done: true, Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Turn: turn,
	}
}

func routeCall(arguments string) *teamv1.Turn {
	return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: routeTool, Arguments: arguments}}}
}

func TestSupervisor_Rules(t *testing.T) {
	facts, text := ended("researcher", "", "Facts."), ended("writer", "", "A text.")
	bad, good := ended("critic", "", `{"score": 5}`), ended("critic", "", `{"score": 8}`)

	t.Run("C-01 the first rule that is true decides, with its values on record", func(t *testing.T) {
		for _, c := range []struct {
			steps  []*team.StepState
			rule   string
			next   []string
			values map[string]any
		}{
			{nil, "first-turn", []string{"researcher"}, map[string]any{"turn": 1.0}},
			{[]*team.StepState{facts}, "write", []string{"writer"}, map[string]any{"turn": 2.0}},
			{[]*team.StepState{facts, text}, "check", []string{"critic"}, map[string]any{"last.member": "writer"}},
			{[]*team.StepState{facts, text, bad}, "rewrite", []string{"writer", "fact-checker"}, map[string]any{"turn": 4.0, "critic.data.score": 5.0}},
		} {
			d, err := decide(t, editors(t, nil), stateOf(newsroom(), c.steps...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, st := range d.Steps {
				got = append(got, st.GetMember())
				if st.GetKind() != teamv1.Step_KIND_DELEGATE || st.GetAsync() {
					t.Errorf("%s: %v", c.rule, st)
				}
				if gave := st.GetInput() != nil; gave != (c.rule == "rewrite") {
					t.Errorf("%s: input %v", c.rule, st.GetInput())
				}
			}
			if d.Rule != c.rule || d.Reason == "" || cmp.Diff(c.next, got) != "" || cmp.Diff(c.values, d.Values.AsMap()) != "" {
				t.Errorf("%s: %+v", c.rule, d)
			}
		}
	})

	t.Run("R-000-18 finish returns the reply of the first step, too", func(t *testing.T) {
		first := ended("writer", "", "A text.")
		v, err := supervisor.New(supervisor.Config{Members: membersOf(newsroom()...), Rules: []supervisor.Rule{{Finish: "writer"}}})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := decide(t, v, stateOf(newsroom(), first, ended("critic", "", "good"))); err != nil || d.Reply != first.Message {
			t.Error(d, err)
		}
	})
	t.Run("R-000-18 finish returns the reply as it is", func(t *testing.T) {
		d, err := decide(t, editors(t, &supervisor.Router{}), stateOf(newsroom(), facts, text, good))
		if err != nil || d.Reply != text.Message || len(d.Steps) != 0 || d.Rule != "accept" {
			t.Errorf("%+v, %v", d, err)
		}
	})

	t.Run("R-000-18 finish with the last response", func(t *testing.T) {
		v, err := supervisor.New(supervisor.Config{Members: membersOf(newsroom()...), Rules: []supervisor.Rule{{When: "turn > 1", Finish: supervisor.FinishLast}, {Next: []string{"writer"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := decide(t, v, stateOf(newsroom())); err != nil || d.Rule != "2" || d.Steps[0].GetMember() != "writer" {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := decide(t, v, stateOf(newsroom(), text)); err != nil || d.Reply != text.Message {
			t.Errorf("%+v, %v", d, err)
		}
	})

	t.Run("R-000-19 finish without a response", func(t *testing.T) {
		v, err := supervisor.New(supervisor.Config{Members: membersOf(newsroom()...), Rules: []supervisor.Rule{{Finish: "writer"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decide(t, v, stateOf(newsroom(), facts)); reasonOf(err) != agent.ReasonNoResponse {
			t.Error(err)
		}
	})

	t.Run("R-000-25 no rule is true and there is no router", func(t *testing.T) {
		odd := ended("fact-checker", "", "no idea")
		_, err := decide(t, editors(t, nil), stateOf(newsroom(), facts, text, odd))
		if reasonOf(err) != agent.ReasonSchedulerError || !strings.Contains(err.Error(), "no rule is true in turn 4") {
			t.Error(err)
		}
	})

	t.Run("an answer without the data that a rule reads", func(t *testing.T) {
		long := strings.Repeat("no idea ", 40)
		_, err := decide(t, editors(t, nil), stateOf(newsroom(), facts, text, ended("critic", "", long)))
		if reasonOf(err) != agent.ReasonConditionDataMissing || !strings.Contains(err.Error(), `team "newsroom": rule "rewrite": it reads critic.data.score, but the answer of "critic"`) ||
			!strings.Contains(err.Error(), long[:200]+"…") || strings.Contains(err.Error(), long[:202]) {
			t.Error(err)
		}
	})

	t.Run("C-11 no enabled member", func(t *testing.T) {
		s := stateOf([]string{"writer"})
		s.Team.Members[0].Disabled = true
		var e *agent.Error
		if _, err := decide(t, editors(t, nil), s); !errors.As(err, &e) || e.Code != agent.CodeFailedPrecondition {
			t.Error(err)
		}
	})
}

func TestSupervisor_Router(t *testing.T) {
	router := &supervisor.Router{Instructions: "Prefer short ways."}
	odd := ended("fact-checker", "", "no idea")
	before := []*team.StepState{ended("researcher", "", "Facts."), ended("writer", "", "A text."), odd}
	after := func(turns ...*team.StepState) *team.State {
		return stateOf(newsroom(), append(append([]*team.StepState{}, before...), turns...)...)
	}

	t.Run("C-01 asked when no rule is true", func(t *testing.T) {
		d, err := decide(t, editors(t, router), after())
		if err != nil || len(d.Steps) != 1 || d.Steps[0].GetKind() != teamv1.Step_KIND_MODEL || d.Reason == "" {
			t.Errorf("%+v, %v", d, err)
		}
	})

	t.Run("C-01 R-000-25 a model that failed stands behind the error", func(t *testing.T) {
		failed, cause := modelTurn(nil), &agent.Error{Reason: agent.ReasonUnavailable, Message: "busy"}
		failed.Outcome, failed.Err = teamv1.Outcome_OUTCOME_FAILED, cause
		if _, err := decide(t, editors(t, router), after(failed)); reasonOf(err) != agent.ReasonSchedulerError || !errors.Is(err, cause) {
			t.Error(err)
		}
		failed.Err = nil
		if _, err := decide(t, editors(t, router), after(failed)); reasonOf(err) != agent.ReasonSchedulerError || errors.Unwrap(err) != nil {
			t.Error(err)
		}
	})

	t.Run("C-01 its choice", func(t *testing.T) {
		for _, c := range []struct {
			turn    *teamv1.Turn
			next    []string
			reason  string
			message string
		}{
			{routeCall(`{"next": ["writer"], "reason": "facts are complete"}`), []string{"writer"}, "facts are complete", ""},
			{routeCall(`{"next": ["writer", "critic", "writer"], "message": "Hurry."}`), []string{"writer", "critic"}, "the router chose writer, critic", "Hurry."},
			{routeCall(`{"next": "writer", "reason": "r"}`), []string{"writer"}, "r", ""},
			{routeCall(`"{\"next\": [\"writer\"], \"reason\": \"r\"}"`), []string{"writer"}, "r", ""},
			{&teamv1.Turn{Text: " `writer`.\n"}, []string{"writer"}, "the router chose writer", ""},
			{routeCall(`{"next": "finish", "reason": "answered"}`), nil, "answered", ""},
			{routeCall(`{"next": ["finish"], "reason": "answered"}`), nil, "answered", ""},
			{&teamv1.Turn{Text: "finish"}, nil, "the router returns the last response", ""},
		} {
			d, err := decide(t, editors(t, router), after(modelTurn(c.turn)))
			if err != nil {
				t.Errorf("%v: %v", c.turn, err)
				continue
			}
			var got []string
			for _, st := range d.Steps {
				got = append(got, st.GetMember())
				if agent.Text(st.GetInput().GetMessage()) != c.message {
					t.Errorf("%v: input %v", c.turn, st.GetInput())
				}
			}
			if cmp.Diff(c.next, got) != "" || d.Reason != c.reason || (c.next == nil) != (d.Reply == odd.Message) {
				t.Errorf("%v: %+v", c.turn, d)
			}
		}
	})

	t.Run("C-01 anything else is asked once more, then SCHEDULER_ERROR", func(t *testing.T) {
		for _, turn := range []*teamv1.Turn{
			{}, {Text: "I think the writer should go on."}, {Text: "nobody"},
			routeCall(`{"next": ["nobody"]}`), routeCall(`{"next": []}`), routeCall(`{"next": 7}`), routeCall(`{}`), routeCall(`next`), routeCall(``),
			routeCall(`{"next": ["writer", "finish"]}`),
			{ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: "delegate", Arguments: `{"next":["writer"]}`}}},
		} {
			d, err := decide(t, editors(t, router), after(modelTurn(turn)))
			if err != nil || len(d.Steps) != 1 || d.Steps[0].GetKind() != teamv1.Step_KIND_MODEL {
				t.Errorf("%v: %+v, %v", turn, d, err)
			}
			if _, err := decide(t, editors(t, router), after(modelTurn(turn), modelTurn(turn))); reasonOf(err) != agent.ReasonSchedulerError {
				t.Errorf("%v twice: %v", turn, err)
			}
		}
	})

	t.Run("C-01 a second answer counts, and the next choice has its own two attempts", func(t *testing.T) {
		d, err := decide(t, editors(t, router), after(modelTurn(&teamv1.Turn{}), modelTurn(&teamv1.Turn{Text: "critic"})))
		if err != nil || d.Steps[0].GetMember() != "critic" {
			t.Errorf("%+v, %v", d, err)
		}
		s := after(modelTurn(&teamv1.Turn{}), modelTurn(&teamv1.Turn{Text: "critic"}), ended("critic", "", "?"), modelTurn(&teamv1.Turn{}))
		if d, err := decide(t, editors(t, router), s); err != nil || d.Steps[0].GetKind() != teamv1.Step_KIND_MODEL {
			t.Errorf("%+v, %v", d, err)
		}
	})

	t.Run("C-01 a disabled member is no choice", func(t *testing.T) {
		s := after(modelTurn(&teamv1.Turn{Text: "writer"}))
		s.Team.Members[1].Disabled = true
		if d, err := decide(t, editors(t, router), s); err != nil || d.Steps[0].GetKind() != teamv1.Step_KIND_MODEL {
			t.Errorf("%+v, %v", d, err)
		}
		if p := editors(t, router).Prompt(s, &teamv1.Step{}); strings.Contains(p.Instructions, "- writer") {
			t.Errorf("the prompt offers it: %s", p.Instructions)
		}
	})

	t.Run("R-000-19 finish before any response", func(t *testing.T) {
		v, err := supervisor.New(supervisor.Config{Members: membersOf(newsroom()...), Router: router})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decide(t, v, stateOf(newsroom(), modelTurn(&teamv1.Turn{Text: "finish"}))); reasonOf(err) != agent.ReasonNoResponse {
			t.Error(err)
		}
	})

	t.Run("R-000-25 the model's error is named", func(t *testing.T) {
		broken := modelTurn(nil)
		broken.Outcome = teamv1.Outcome_OUTCOME_FAILED
		broken.Err = agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "model gpt-5-mini answered 500")
		_, err := decide(t, editors(t, router), after(broken))
		var e *agent.Error
		if !errors.As(err, &e) || e.Reason != agent.ReasonSchedulerError || !strings.Contains(e.Message, "model gpt-5-mini answered 500") {
			t.Error(err)
		}
	})
}

func TestSupervisor_Prompt(t *testing.T) {
	v := editors(t, &supervisor.Router{Instructions: "Prefer short ways."})
	s := stateOf(newsroom())
	s.Team.Name = "Newsroom"
	s.Team.Members[1].Role, s.Team.Members[1].Description = "author", "Writes it up."
	s.Roster = []*teamv1.Observed_Member{
		{Id: "researcher", Info: &teamv1.AgentInfo{Description: "Finds facts.", Skills: []*teamv1.Skill{{Id: "search", Name: "Search", Description: "Looks around"}}}},
		{Id: "writer", Info: &teamv1.AgentInfo{Description: "Writes."}},
	}

	t.Run("R-000-16 the first one holds exactly the input", func(t *testing.T) {
		req := v.Prompt(s, &teamv1.Step{})
		want := []agent.ModelMessage{{Role: agent.RoleUser, Text: "Write about tides"}}
		if diff := cmp.Diff(want, req.Messages); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("C-01 members with description and skills, one forced tool", func(t *testing.T) {
		req := v.Prompt(s, &teamv1.Step{})
		for _, want := range []string{
			"Prefer short ways.", `"Newsroom"`, "- researcher: Finds facts.\n  - skill Search: Looks around\n", "- writer (author): Writes it up.\n", "- critic\n",
		} {
			if !strings.Contains(req.Instructions, want) {
				t.Errorf("no %q in %s", want, req.Instructions)
			}
		}
		if len(req.Tools) != 1 || req.Tools[0].Name != "route" || req.Force != "route" || !json.Valid(req.Tools[0].Parameters) {
			t.Errorf("%+v", req)
		}
	})
	t.Run("C-01 the last response", func(t *testing.T) {
		req := v.Prompt(stateOf(newsroom(), ended("writer", "", "A text."), ended("critic", "", "Poor.")), &teamv1.Step{})
		if len(req.Messages) != 2 || req.Messages[1].Text != "Last response, by critic (succeeded):\n\nPoor." {
			t.Errorf("%+v", req.Messages)
		}
	})
	t.Run("C-01 asked once more it learns what was wrong, with every call answered", func(t *testing.T) {
		asks := &team.StepState{Step: &teamv1.Step{Id: "3", Kind: teamv1.Step_KIND_MODEL}}
		req := v.Prompt(stateOf(newsroom(), modelTurn(routeCall(`{"next": ["nobody"]}`)), asks), asks.Step)
		if len(req.Messages) != 3 || len(req.Messages[1].ToolCalls) != 1 || req.Messages[2].Role != agent.RoleTool ||
			req.Messages[2].CallID != "c1" || !strings.Contains(req.Messages[2].Text, `no member "nobody"`) {
			t.Errorf("%+v", req.Messages)
		}
		req = v.Prompt(stateOf(newsroom(), modelTurn(&teamv1.Turn{Text: "Let us see"}), asks), asks.Step)
		if len(req.Messages) != 3 || req.Messages[1].Role != agent.RoleAssistant || req.Messages[2].Role != agent.RoleUser {
			t.Errorf("%+v", req.Messages)
		}
	})
	t.Run("it changes nothing", func(t *testing.T) {
		before := proto.Clone(s.Input)
		v.Prompt(s, &teamv1.Step{})
		if !proto.Equal(before, s.Input) {
			t.Error("the input changed")
		}
	})
}

func TestNewSupervisor_Faults(t *testing.T) {
	_, err := supervisor.New(supervisor.Config{
		Members: membersOf("writer", "finish"), Router: &supervisor.Router{},
		Rules: []supervisor.Rule{
			{ID: "a", When: "critc.text == ''", Next: []string{"writer"}},
			{ID: "a", Next: []string{"writr", "writer", "writer"}},
			{ID: "b"},
			{ID: "c", Next: []string{"writer"}, Finish: "lst"},
			{ID: "d", Finish: supervisor.FinishLast, Message: "x"},
		},
	})
	want := []string{
		`router supervisor: member id "finish" is reserved: the router uses it to end the run; give that member another id`,
		`rules[0].when rule "a": no such variable "critc"; known here: context, finish, input, inputs, last, outputs, results, turn, writer`,
		`rules[1].id rule "a": this id is used twice; ids of rules must be unique`,
		`rules[1].next[0] rule "a": no such member "writr"; known here: finish, writer`,
		`rules[1].next[2] rule "a": names member "writer" twice`,
		`rules[2] rule "b": needs either next or finish`,
		`rules[3] rule "c": needs either next or finish`,
		`rules[3].finish rule "c": no such member "lst"; known here: finish, last, writer`,
		`rules[4].message rule "d": has a message but no next members: finish returns the answer unchanged; remove message`,
	}
	if diff := cmp.Diff(want, faultTexts(err)); diff != "" {
		t.Error(diff)
	}
	if reasonOf(err) != agent.ReasonInvalidTeamConfig {
		t.Errorf("as an agent.Error: %q", reasonOf(err))
	}
	if _, err := supervisor.New(supervisor.Config{Members: membersOf("writer")}); err == nil {
		t.Error("neither rules nor router")
	}
}

// faultTexts lists joined faults, each with its path.
func faultTexts(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var texts []string
	for _, e := range joined.Unwrap() {
		var f *team.Fault
		if errors.As(e, &f) {
			texts = append(texts, strings.TrimSpace(f.Path+" "+f.Error()))
		}
	}
	return texts
}

func BenchmarkSupervisor_Next(b *testing.B) {
	v, err := supervisor.New(supervisor.Config{Members: membersOf(newsroom()...), Rules: []supervisor.Rule{
		{When: "turn == 1", Next: []string{"writer"}}, {When: "critic.data.score < 7 && turn < 8", Next: []string{"writer"}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	s := stateOf(newsroom(), ended("writer", "", "A text."), ended("critic", "", `{"score": 5}`))
	b.ReportAllocs()
	for b.Loop() {
		if d, err := v.Next(s); err != nil || len(d.Steps) != 1 {
			b.Fatal(d, err)
		}
	}
}
