package team_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/facts"
)

// ended is a step of a member that has answered.
func ended(member, name, text string) *team.StepState {
	kind := teamv1.Step_KIND_DELEGATE
	if name != "" {
		kind = teamv1.Step_KIND_STEP
	}
	return &team.StepState{
		Step: &teamv1.Step{Kind: kind, Member: member, Name: name}, Done: true,
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Message: agent.NewMessage(text),
	}
}

// brokenStep is a step that has failed with e.
func brokenStep(member, name string, e *agent.Error) *team.StepState {
	st := ended(member, name, "")
	st.Outcome, st.Message, st.Err = teamv1.Outcome_OUTCOME_FAILED, nil, e
	return st
}

// stateOf is a state in which those steps have been decided, one a round, the
// last of them being the last response.
func stateOf(members []string, steps ...*team.StepState) *team.State {
	s := &team.State{Team: &team.Config{ID: "newsroom"}, Input: agent.UserMessage("m1", "Write about tides"), Steps: steps}
	for _, id := range members {
		s.Team.Members = append(s.Team.Members, team.Member{ID: id, Agent: id})
	}
	s.Messages = []*a2av1.Message{s.Input}
	for _, st := range steps {
		if !st.ByMember() {
			continue
		}
		s.Rounds++
		if st.Done {
			s.Last = &team.Result{Member: st.Step.GetMember(), Message: st.Message, Outcome: st.Outcome}
			s.Messages = []*a2av1.Message{st.Message}
		}
	}
	return s
}

// compileRule compiles a supervisor's condition.
func compileRule(source string, members []string) (*expr.Expr, error) {
	lang, err := expr.ForRules(members, expr.Names{})
	if err != nil {
		return nil, err
	}
	return lang.Compile(source)
}

func newsroom() []string { return []string{"researcher", "writer", "critic", "fact-checker"} }

// newsroomState is a state in which researcher and critic have answered and the fact-checker has failed.
func newsroomState() *team.State {
	s := stateOf(newsroom(), ended("researcher", "", "The Moon pulls"), ended("critic", "", `{"score": 6, "by": {"b": 1, "a": 2}, "tags": [{"n": "x"}]}`))
	s.Steps = append(s.Steps, brokenStep("fact-checker", "", agent.Errorf(0, agent.ReasonTimeout, "too slow")))
	s.Context = map[string]*structpb.Value{"tone": structpb.NewStringValue("dry"), "limit": structpb.NewNumberValue(8)}
	return s
}

func TestExpr_Rules(t *testing.T) {
	s := newsroomState()
	for source, want := range map[string]bool{
		"turn == 3":              true,
		"turn == 1":              false,
		"input.contains('tide')": true,
		"last.member == 'critic' && last.outcome == 'succeeded'": true,
		"last.data.score == 6":                                                true,
		"critic.data.score < 7":                                               true,
		"critic.data.score < context.limit":                                   true,
		"context.tone == 'dry'":                                               true,
		"researcher.text.startsWith('The')":                                   true,
		"results['fact-checker'].outcome == 'failed'":                         true,
		"results[last.member].data.score == 6":                                true,
		"critic.data.tags.exists(t, t.n == 'x')":                              true,
		"critic.data.by.map(k, k) == ['a', 'b']":                              true, // maps are walked in order
		"results.filter(m, true) == ['critic', 'fact-checker', 'researcher']": true,
		"'writer' in results":                                                 false,
		"has(critic.data) && !has(writer.data)":                               true,
		"turn == 3 || writer.data.score > 1":                                  true,

		// What is not there is not true, and no error.
		"writer.text == ''":                  false,
		"writer.outcome != 'succeeded'":      false,
		"!(writer.data.ok)":                  false,
		"results['writer'].text == ''":       false,
		"context.nope == 'x'":                false,
		"results['fact-checker'].text == ''": false, // it failed
		// Nor are values of another kind.
		"turn / (turn - 3) == 1": false,
	} {
		e, err := compileRule(source, newsroom())
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, _, err := e.Eval(facts.Of(s).Value); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", source, got, err, want)
		}
	}
}

// A condition that an answer leaves without a value names what it has read, and quotes the answer.
func TestExpr_MissingData(t *testing.T) {
	s := newsroomState()
	const said = `"{\"score\": 6, \"by\": {\"b\": 1, \"a\": 2}, \"tags\": [{\"n\": \"x\"}]}"`
	for source, want := range map[string][]string{
		"researcher.data.score > 1":                               {"researcher.data.score", `"researcher" has no such data: "The Moon pulls"`, "has(researcher.data.score)"},
		"results['researcher'].data.score > 1":                    {`"researcher" has no such data`},
		"critic.data.nope == null":                                {"critic.data.nope", `"critic" has no such data: ` + said},
		"critic.data.tags[1].n == 'x'":                            {"critic.data.tags[1].n"},
		"critic.data.score":                                       {`"critic" has 6 there, of a type that the condition cannot use`},
		"critic.data.score > 'a'":                                 {`"critic" has 6 there`},
		"critic.data.tags > 1":                                    {"critic.data.tags"},
		"critic.data.nope.exists(x, x == 1)":                      {"critic.data.nope"},
		"turn == 1 || critic.data.nope > 1":                       {"critic.data.nope"},
		"turn == 3 || critic.data.nope > 1":                       nil, // true without it
		"turn == 1 && critic.data.nope > 1":                       nil, // false without it
		"writer.data.score > 1":                                   nil, // it has not answered
		"writer.data.score > 1 || critic.data.nope > 1":           nil,
		"results['fact-checker'].data.score > 1":                  nil, // it failed
		"has(critic.data.nope) && critic.data.nope > 1":           nil,
		"has(researcher.data.score) && researcher.data.score > 1": nil,
		"!has(researcher.data) || researcher.data.score > 1":      nil,
		"last.data.nope > 1":                                      nil, // any member may be the last one
		"context.nope > 1":                                        nil,
		"results.exists(m, results[m].data.nope > 1)":             nil,
	} {
		e, err := compileRule(source, newsroom())
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		_, _, err = e.Eval(facts.Of(s).Value)
		var missing *expr.MissingData
		if errors.As(err, &missing) != (want != nil) {
			t.Errorf("%s: %v, want %q", source, err, want)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want it to contain %s", source, err, part)
			}
		}
	}
}

func TestExpr_NothingHasRun(t *testing.T) {
	s := stateOf(newsroom())
	for source, want := range map[string]bool{
		"turn == 1": true, "last.member == 'writer'": false, "last.member != 'writer'": false,
		"has(last.member)": false, "size(results) == 0": true, "critic.data.score < 7": false,
	} {
		e, err := compileRule(source, newsroom())
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if got, _, err := e.Eval(facts.Of(s).Value); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", source, got, err, want)
		}
	}
}

func TestExpr_Steps(t *testing.T) {
	s := stateOf(nil, ended("critic", "score", `{"score": 6}`), ended("writer", "fact-fix", "done"))
	s.Steps = append(s.Steps, &team.StepState{
		Step: &teamv1.Step{Kind: teamv1.Step_KIND_HUMAN, Name: "approve"}, Done: true,
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Message: agent.UserMessage("", "yes"),
	}, &team.StepState{
		Step: &teamv1.Step{Kind: teamv1.Step_KIND_STEP, Name: "law"}, Done: true, Outcome: teamv1.Outcome_OUTCOME_SKIPPED,
	})
	lang, err := expr.ForSteps([]string{"score", "fact-fix", "approve", "law", "later"}, expr.Names{})
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{
		"steps.score.data.score < 7":          true,
		"steps['fact-fix'].text == 'done'":    true,
		"steps.approve.text == 'yes'":         true,
		"steps.law.outcome == 'skipped'":      true,
		"steps.later.outcome != 'failed'":     false,
		"has(steps.later)":                    false,
		"input.size() > 0 && !has(context.k)": true,
	} {
		e, err := lang.Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, _, err := e.Eval(facts.Of(s).Value); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", source, got, err, want)
		}
	}
}

func TestExpr_DataOfAReply(t *testing.T) {
	data, err := structpb.NewValue(map[string]any{"score": 3})
	if err != nil {
		t.Fatal(err)
	}
	withPart := agent.NewMessage("see the data")
	withPart.Parts = append(withPart.Parts, &a2av1.Part{Content: &a2av1.Part_Data{Data: data}})
	for name, m := range map[string]*a2av1.Message{"data part": withPart, "JSON text": agent.NewMessage(" {\"score\": 3}\n")} {
		st := ended("critic", "", "")
		st.Message = m
		e, err := compileRule("critic.data.score == 3", newsroom())
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := e.Eval(facts.Of(stateOf(newsroom(), st)).Value); !got {
			t.Errorf("%s: its data is not read", name)
		}
	}
}

func TestExpr_ValuesThatWereRead(t *testing.T) {
	s := stateOf(newsroom(), ended("writer", "", strings.Repeat("é", 400)), ended("critic", "", `{"score": 6}`))
	s.Rounds = 3
	e, err := compileRule("critic.data.score < 7 && turn < 8 && writer.text != '' && (last.member == 'critic' || researcher.text == '')", newsroom())
	if err != nil {
		t.Fatal(err)
	}
	got, values, err := e.Eval(facts.Of(s).Value)
	if !got || err != nil {
		t.Fatal(got, err)
	}
	want := map[string]any{
		"critic.data.score": 6.0, "turn": 4.0, "last.member": "critic",
		"writer.text": strings.Repeat("é", 128) + "…",
	}
	if diff := cmp.Diff(want, values.AsMap()); diff != "" {
		t.Error(diff)
	}
}

func TestExpr_ComputedKeysThatWereRead(t *testing.T) {
	e, err := compileRule("results[last.member].text == 'ok'", newsroom())
	if err != nil {
		t.Fatal(err)
	}
	got, values, err := e.Eval(facts.Of(stateOf(newsroom(), ended("critic", "", "ok"))).Value)
	if diff := cmp.Diff(map[string]any{"results[last.member].text": "ok", "last.member": "critic"}, values.AsMap()); !got || err != nil || diff != "" {
		t.Error(got, err, diff)
	}
}

func TestExpr_LargeValuesAreCountedOnTheRecord(t *testing.T) {
	list, entry := strings.Repeat(`"aaaaaaaaaa",`, 40)+`""`, strings.Repeat("x", 400)
	s := stateOf(newsroom(), ended("critic", "", `{"tags": [`+list+`], "by": {"a": "`+entry+`"}}`))
	e, err := compileRule("size(critic.data.tags) == 41 && critic.data.by.all(k, critic.data.by[k] != '')", newsroom())
	if err != nil {
		t.Fatal(err)
	}
	got, values, err := e.Eval(facts.Of(s).Value)
	want := map[string]any{"critic.data.tags": "(41 elements)", "critic.data.by": "(1 entries)"}
	if diff := cmp.Diff(want, values.AsMap()); !got || err != nil || diff != "" {
		t.Error(got, err, diff)
	}
}

func TestExpr_Faults(t *testing.T) {
	rule := func(s string) error { _, err := compileRule(s, newsroom()); return err }
	step := func(s string) error {
		lang, err := expr.ForSteps([]string{"draft", "score"}, expr.Names{})
		if err == nil {
			_, err = lang.Compile(s)
		}
		return err
	}
	ruleNames := []string{"context", "critic", "input", "inputs", "last", "outputs", "researcher", "results", "turn", "writer"}
	for _, c := range []struct {
		compile func(string) error
		expr    string
		want    expr.Error
	}{
		{rule, "critc.data.score < 7 && turn < 8", expr.Error{Message: `no such variable "critc"`, Unknown: "critc", Known: ruleNames}},
		{rule, "critc.data.score < 7 &&\n  turn < 8", expr.Error{Message: `no such variable "critc"`, Unknown: "critc", Known: ruleNames}},
		{rule, "turn < 8 &&\n  critc.data.score < 7", expr.Error{Message: `no such variable "critc"`, Offset: 14, Unknown: "critc", Known: ruleNames}},
		{rule, "'é' == input && critc", expr.Error{Message: `no such variable "critc"`, Offset: 17, Unknown: "critc", Known: ruleNames}},
		{rule, "results.exists(m, m == critc)", expr.Error{Message: `no such variable "critc"`, Offset: 23, Unknown: "critc", Known: ruleNames}},
		{rule, "steps.draft.text == ''", expr.Error{Message: `no such variable "steps"`, Unknown: "steps", Known: ruleNames}},
		{rule, "results['critc'].text == ''", expr.Error{
			Message: `no such member "critc"`, Offset: 8, Unknown: "critc", Known: []string{"critic", "fact-checker", "researcher", "writer"},
		}},
		{rule, "last.mamber == 'critic'", expr.Error{
			Message: `a result has no field "mamber"`, Offset: 5, Unknown: "mamber", Known: []string{"data", "member", "outcome", "text"},
		}},
		{rule, "has(critic.dat)", expr.Error{
			Message: `a result has no field "dat"`, Offset: 11, Unknown: "dat", Known: []string{"data", "outcome", "text"},
		}},
		{rule, "lower(input) == 'a'", expr.Error{Message: `no such function "lower"`}},
		{rule, "turn == '1'", expr.Error{Message: `found no matching overload for '==' applied to '(int, string)'`, Offset: 5}},
		{rule, "turn + 1", expr.Error{Message: `must be true or false, but is of type int`}},
		{rule, "input.matches('(')", expr.Error{Message: "error parsing regexp: missing closing ): `(`"}},
		{rule, "{'a': 1}.size() == turn", expr.Error{Message: "a condition cannot build a map or a message"}},
		{step, "steps.scroe.data.score < 7", expr.Error{
			Message: `no such step "scroe"`, Offset: 6, Unknown: "scroe", Known: []string{"draft", "score"},
		}},
		{step, "turn == 1", expr.Error{Message: `no such variable "turn"`, Unknown: "turn", Known: []string{"context", "input", "inputs", "outputs", "steps"}}},
	} {
		var e *expr.Error
		if err := c.compile(c.expr); !errors.As(err, &e) {
			t.Errorf("%s: %v", c.expr, err)
		} else if diff := cmp.Diff(c.want, *e); diff != "" {
			t.Errorf("%s: %s", c.expr, diff)
		}
	}
}

func TestExpr_MemberIDsThatAreWordsOfCEL(t *testing.T) {
	words := []string{"in", "int", "list", "type", "true", "package", "input", "last", "size", "has", "dyn", "duration", "timestamp", "a-b"}
	for _, word := range words {
		e, err := compileRule("results['"+word+"'].text == 'hi' && turn > 0", words)
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if got, _, err := e.Eval(facts.Of(stateOf(words, ended(word, "", "hi"))).Value); !got || err != nil {
			t.Errorf("%s: %v %v", word, got, err)
		}
	}
}

func TestExpr_HostileRuleIsStopped(t *testing.T) {
	digits := "[1,2,3,4,5,6,7,8,9,10]"
	source := "true"
	for _, v := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		source = digits + ".all(" + v + ", " + source + ")"
	}
	e, err := compileRule(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	if matched, _, err := e.Eval(facts.Of(stateOf(newsroom())).Value); matched || err == nil || !strings.Contains(err.Error(), "too much work") {
		t.Errorf("matched %v, error %v", matched, err)
	}
}

func FuzzP17_CompileRule(f *testing.F) {
	for _, seed := range []string{
		"turn == 1", "critic.data.score < 7 && turn < 8", "results[last.member].text.matches('a+')", "has(critic.data)", "critc",
		"results.exists(m, results[m].outcome == 'failed')", "{'a': 1}", "\n\n é.x", "last", "context['k'][0]", "\"\\u", "a.b(c.d)[e]",
	} {
		f.Add(seed)
	}
	s := stateOf(newsroom(), ended("critic", "", `{"score": 6, "a": [1, {"b": null}]}`))
	f.Fuzz(func(t *testing.T, source string) {
		e, err := compileRule(source, newsroom())
		if err != nil {
			var fault *expr.Error
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > len(source) || fault.Message == "" {
				t.Fatalf("%q: %#v", source, err)
			}
			return
		}
		matched, values, evalErr := e.Eval(facts.Of(s).Value)
		again, sameValues, _ := e.Eval(facts.Of(s).Value)
		if matched != again || matched && evalErr != nil || !proto.Equal(values, sameValues) {
			t.Fatalf("%q: %v, %v: %s", source, matched, again, cmp.Diff(values, sameValues, protocmp.Transform()))
		}
	})
}
