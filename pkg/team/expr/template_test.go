package expr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// given is what templates are filled with in a run that has just begun.
func given() *expr.Given {
	return &expr.Given{Input: agent.UserMessage("m1", "Write about tides"), Step: func(string) string { return "" }}
}

func TestTemplate(t *testing.T) {
	g := given()
	g.Context = map[string]*structpb.Value{
		"tone": structpb.NewStringValue("dry"), "n": structpb.NewNumberValue(3), "conversation.topic": structpb.NewStringValue("sea"),
		"map": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"b": structpb.NewBoolValue(true), "a": structpb.NewStringValue("<x>")}}),
	}
	g.Brief = &teamv1.Brief{TaskDescription: "Tell of {{input}}", ExpectedOutput: "a poem"}
	g.Step = func(step string) string {
		return map[string]string{"draft": "see {{input}} and {{context.tone}}"}[step]
	}
	for source, want := range map[string]string{
		"plain":                       "plain",
		"Draft: {{input}}":            "Draft: Write about tides",
		"{{ input }}{{input}}":        "Write about tidesWrite about tides",
		"Check {{steps.draft.text}}!": "Check see {{input}} and {{context.tone}}!", // not expanded again
		"{{steps.later.text}}":        "",
		"{{context.tone}} {{context.n}} {{context.none}}":       "dry 3 ",
		"{{context.map}} {{context.conversation.topic}}":        `{"a":"<x>","b":true} sea`,
		"{{brief.task_description}}: {{brief.expected_output}}": "Tell of {{input}}: a poem",
		"a } b }} c { d": "a } b }} c { d",
	} {
		tpl, err := expr.CompileTemplate(source, []string{"draft", "later"}, expr.Names{})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := tpl.Text("it", g); got != want || err != nil {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// TestTemplate_TooLong: a text that would be too long is refused before it is built.
func TestTemplate_TooLong(t *testing.T) {
	g := given()
	g.Input = agent.UserMessage("", strings.Repeat("x", 1<<20))
	for n, want := range map[int]string{3: "", 5: "the task would have 5242880 bytes with what is inserted, and at most 4194304 are allowed; use fewer placeholders"} {
		tpl, err := expr.CompileTemplate(strings.Repeat("{{input}}", n), nil, expr.Names{})
		if err != nil {
			t.Fatal(err)
		}
		built := testing.AllocsPerRun(1, func() { _, err = tpl.Text("the task", g) })
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || built > 50) {
			t.Errorf("%d times: %v", n, err)
		}
	}
}

func TestTemplate_Faults(t *testing.T) {
	known := []string{"brief.expected_output", "brief.task_description", "context.KEY", "input", "steps.draft.text"}
	for source, want := range map[string]expr.Error{
		"a {{inputs}}":            {Message: "no such placeholder {{inputs}}", Offset: 2, Unknown: "inputs", Known: known},
		"{{steps.daft.text}}":     {Message: "no such placeholder {{steps.daft.text}}", Unknown: "steps.daft.text", Known: known},
		"{{steps.draft.data.x}}":  {Message: "no such placeholder {{steps.draft.data.x}}", Unknown: "steps.draft.data.x", Known: known},
		"{{}}":                    {Message: "no such placeholder {{}}"},
		"{{context.}}":            {Message: "no such placeholder {{context.}}", Unknown: "context.", Known: known},
		"{{input}} and {{context": {Message: "the placeholder is not closed with }}", Offset: 14},
	} {
		_, err := expr.CompileTemplate(source, []string{"draft"}, expr.Names{})
		var e *expr.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if want.Unknown == "" {
			e = &expr.Error{Message: e.Message, Offset: e.Offset}
		}
		if diff := cmp.Diff(want, *e); diff != "" {
			t.Errorf("%s: %s", source, diff)
		}
	}
}

func TestTemplate_FilesFollowTheInput(t *testing.T) {
	g := given()
	file := &a2av1.Part{Content: &a2av1.Part_Url{Url: "https://example.com/a.png"}, Filename: "a.png"}
	g.Input.Parts = append(g.Input.Parts, file)
	for source, want := range map[string]int{"Describe: {{input}}": 2, "Say hello": 1} {
		tpl, err := expr.CompileTemplate(source, nil, expr.Names{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := tpl.Message("it", g)
		if err != nil || len(m.GetParts()) != want || m.GetRole() != a2av1.Role_ROLE_USER {
			t.Errorf("%s: %v", source, m)
		}
	}
}

func FuzzP17_Template(f *testing.F) {
	for _, seed := range []string{"{{input}}", "a {{steps.draft.text}} b", "{{{{input}}}}", "{{context.a.b}}", "}}{{", "{{ input", "{{\n}}"} {
		f.Add(seed)
	}
	g := given()
	g.Step = func(string) string { return "{{input}}" }
	f.Fuzz(func(t *testing.T, source string) {
		tpl, err := expr.CompileTemplate(source, []string{"draft"}, expr.Names{})
		if err != nil {
			var e *expr.Error
			if !errors.As(err, &e) || !strings.HasPrefix(source[e.Offset:], "{{") {
				t.Fatalf("%q: %#v", source, err)
			}
			return
		}
		got, err := tpl.Text("it", g)
		if err != nil {
			return
		}
		if !strings.Contains(source, "{{") && got != source {
			t.Fatalf("%q became %q", source, got)
		}
		if want := strings.Count(source, "{{"); tpl.Pieces() < want {
			t.Fatalf("%q has %d pieces", source, tpl.Pieces())
		}
		m, _ := tpl.Message("it", g)
		_ = agent.Text(m)
	})
}
