package scripted_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

func parse(t *testing.T, text string) *scripted.Script {
	t.Helper()
	s, err := scripted.Parse("news.script.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request is one of agent "a": each message is "role: text".
func request(messages ...string) *agent.ModelRequest {
	req := &agent.ModelRequest{Agent: "a", Tools: []agent.ToolSpec{{Name: "search"}}}
	for _, m := range messages {
		role, text, _ := strings.Cut(m, ": ")
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.ModelRole(role), Text: text})
	}
	return req
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		when string
		req  *agent.ModelRequest
		want bool
	}{
		{`input == "new"`, request("user: old", "assistant: ok", "user: new"), true},
		{`inputs == ["old", "new"]`, request("user: old", "assistant: ok", "user: new"), true},
		{`turn == 1`, request("user: x"), true},
		{`turn == 2`, request("user: x", "assistant: y", "tool: z"), true},
		{`turn == 2`, request("user: x"), false},
		{`"search" in tools && !("fetch" in tools)`, request("user: x"), true},
		{`results == ["r1", "r2"]`, request("user: x", "assistant: y", "tool: r1", "tool: r2"), true},
		{`results[0] == "r"`, request("user: x"), false},
		{`!(results[0] == "r")`, request("user: x"), false},
		{`results.exists(r, r.startsWith("err"))`, request("user: x", "assistant: y", "tool: error"), true},
		{`input.matches("^[a-z]+$")`, request("user: abc"), true},
		{`size(tools) == 0`, &agent.ModelRequest{Agent: "a"}, true},
		{`true`, &agent.ModelRequest{Agent: "a"}, true},
	} {
		s := parse(t, "agents:\n  a:\n    - when: |-\n        "+c.when+"\n      text: yes\n    - text: no\n")
		a, err := s.Answer(c.req)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Text == "yes"; got != c.want {
			t.Errorf("%s is %v, want %v", c.when, got, c.want)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	s := parse(t, `agents: {a: [{text: "{{ input }}|{{results}}|{{inputs}}|{x}", tool_calls: [{name: t, arguments: {"{{k}}": ["{{input}}", {x: "{{results}}"}]}}]}]}`)
	a, err := s.Answer(request("user: before", `user: say "{{results}}"`, "assistant: y", "tool: r1", "tool: r2"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "say \"{{results}}\"|r1\nr2|before\nsay \"{{results}}\"|{x}"; a.Text != want {
		t.Errorf("text = %q, want %q", a.Text, want)
	}
	if got, want := a.ToolCalls[0].GetArguments(), `{"{{k}}":["say \"{{results}}\"",{"x":"r1\nr2"}]}`; got != want {
		t.Errorf("arguments = %s, want %s", got, want)
	}
}

// TestResultsByTool reads what each tool answered last, whether the message names
// the tool or its call.
func TestResultsByTool(t *testing.T) {
	s := parse(t, `agents: {a: [{when: 'result["search"].contains("new") && !("fetch" in result)', text: "{{result.search}}|{{ result.to-do }}|{{result.fetch}}"}, {text: no}]}`)
	req := request("user: x")
	req.Messages = append(req.Messages,
		agent.ModelMessage{Role: agent.RoleAssistant, ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "search"}, {Id: "2", Name: "to-do"}}},
		agent.ModelMessage{Role: agent.RoleTool, CallID: "1", Text: "old"},
		agent.ModelMessage{Role: agent.RoleTool, CallID: "2", Text: "done"},
		agent.ModelMessage{Role: agent.RoleTool, CallID: "3", Tool: "search", Text: "new {{input}}"},
	)
	a, err := s.Answer(req)
	if err != nil {
		t.Fatal(err)
	}
	if want := "new {{input}}|done|"; a.Text != want {
		t.Errorf("text = %q, want %q", a.Text, want)
	}
}

func TestArguments(t *testing.T) {
	for in, want := range map[string]string{
		`{b: 1, a: 2.5}`:                       `{"a":2.5,"b":1}`,
		`{id: 9007199254740993, f: 1e3}`:       `{"f":1000,"id":9007199254740993}`,
		`{yes: true, no: null, d: 2024-01-02}`: `{"d":"2024-01-02","no":null,"yes":true}`,
		`{list: [1, [x], {}]}`:                 `{"list":[1,["x"],{}]}`,
		`{html: "<b>&"}`:                       `{"html":"\u003cb\u003e\u0026"}`,
		`"{raw"`:                               `{raw`,
		`""`:                                   ``,
		`{}`:                                   `{}`,
	} {
		s := parse(t, `agents: {a: [{tool_calls: [{name: t, arguments: `+in+`}]}]}`)
		a, err := s.Answer(request("user: x"))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.ToolCalls[0].GetArguments(); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

func TestNoAnswerSaysWhatToAdd(t *testing.T) {
	s := parse(t, `agents: {writer: [{when: turn == 1, text: x}], critic: [{text: y}]}`)
	for _, c := range []struct {
		req  *agent.ModelRequest
		want []string
	}{
		{&agent.ModelRequest{Agent: "writr"}, []string{`"writr"`, `did you mean "writer"?`, "agents.writr", "news.script.yaml"}},
		{&agent.ModelRequest{Agent: "newsroom"}, []string{"critic, writer"}},
		{&agent.ModelRequest{Agent: "writer", Messages: []agent.ModelMessage{{Role: agent.RoleAssistant}}}, []string{`"writer"`, "turn 2", "agents.writer"}},
	} {
		_, err := s.Answer(c.req)
		var e *agent.Error
		if !errors.As(err, &e) || e.Retry {
			t.Fatalf("error = %v", err)
		}
		for _, w := range c.want {
			if !strings.Contains(e.Message, w) {
				t.Errorf("%q does not say %q", e.Message, w)
			}
		}
	}
	if diff := cmp.Diff([]string{"critic", "writer"}, s.Agents()); diff != "" {
		t.Error(diff)
	}
}

func TestCostIsLimited(t *testing.T) {
	s := parse(t, `agents: {a: [{when: 'results.all(x, results.all(y, results.all(z, x + y != z)))', text: x}]}`)
	req := request("user: x")
	for range 200 {
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleTool, Text: "a"})
	}
	_, err := s.Answer(req)
	if err == nil || !strings.Contains(err.Error(), "costs too much") {
		t.Errorf("error = %v, want one about the cost", err)
	}
}

func TestPieces(t *testing.T) {
	for _, c := range []struct {
		text   string
		chunks int
		want   []string
	}{
		{"abcdef", 3, []string{"ab", "cd", "ef"}},
		{"abcde", 2, []string{"ab", "cde"}},
		{"äö", 9, []string{"ä", "ö"}},
		{"abc", 0, []string{"abc"}},
		{"", 3, nil},
	} {
		a := scripted.Answer{Text: c.text, Chunks: c.chunks}
		if got := a.Pieces(); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d: %q, want %q", c.text, c.chunks, got, c.want)
		}
	}
}

func TestUsageCountsWords(t *testing.T) {
	req := &agent.ModelRequest{Instructions: "Write clearly.", Messages: []agent.ModelMessage{
		{Role: agent.RoleUser, Text: "About the tides"},
		{Role: agent.RoleAssistant, ToolCalls: []*teamv1.ToolCall{{Name: "search", Arguments: `{"q": "tides"}`}}},
	}}
	s := scripted.UsageOf(req, &teamv1.Turn{Text: "The Moon pulls."})
	if s.Input != 2+3+3 || s.Output != 3 {
		t.Errorf("usage = %v", s)
	}
}
