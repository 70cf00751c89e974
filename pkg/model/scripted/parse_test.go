package scripted_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"empty":          {"", []string{`f:1:1  the file is empty (a script starts with: agents:)`}},
		"comment only":   {"# nothing\n", []string{`f:1:1  the file is empty (a script starts with: agents:)`}},
		"not yaml":       {"agents:\n  a: [\n", []string{`f:2:3  not YAML: did not find expected node content (check the indentation, brackets and quotes here and in the line above)`}},
		"list":           {"- a\n", []string{`f:1:1  a script must be keys and values, not a list`}},
		"two documents":  {"agents: {a: [{text: x}]}\n---\nx: 1\n", []string{`f:2:1  a second document begins here; a script must contain only one`}},
		"no agents":      {"{}", []string{`f:1:1  agents are missing (a script starts with: agents:)`}},
		"misspelt root":  {"agnets: {a: [{text: x}]}", []string{`f:1:1  a script has no key "agnets" (did you mean "agents"?)`}},
		"agents empty":   {"agents: {}", []string{`f:1:9  agents are empty (for example: writer: [{text: Hello}])`}},
		"agents nothing": {"agents:\n", []string{`f:1:8  agents must be ids, each with a list of entries, not nothing`}},
		"no list":        {"agents: {a: {text: x}}", []string{`f:1:13  agent "a" must be a list of entries, not keys and values`}},
		"no entries":     {"agents: {a: []}", []string{`f:1:13  agent "a" has no entries (for example: [{text: Hello}])`}},
		"twice":          {"agents:\n  a: [{text: x}]\n  a: [{text: y}]\n", []string{`f:3:3  key "a" is set twice, first in line 2 (remove one of them)`}},
		"alias":          {"agents:\n  a: &x [{text: x}]\n  b: *x\n", []string{`f:3:6  aliases are not supported (write the value out)`}},
		"all at once": {
			"agents:\n  a:\n    - whenn: turn == 1\n      text: x\n    - when: trun == 1\n      text: \"{{inptu}}\"\n    - chunks: many\n      text: x\n      delay_ms: -1\n",
			[]string{
				`f:3:7  an entry has no key "whenn" (did you mean "when"?)`,
				`f:5:13  no such variable or function "trun" (did you mean "turn"?)`,
				`f:6:13  text has no placeholder {{inptu}} (did you mean "input"?)`,
				`f:7:15  chunks must be a whole number from 1 to 10000, not "many"`,
				`f:9:17  delay_ms must be a whole number from 0 to 600000, not "-1"`,
			},
		},
		"never played": {"agents:\n  a:\n    - text: x\n    - text: y\n", []string{
			`f:4:7  this entry is never played: the one in line 3 always matches (give that one a when, or put it last)`,
		}},
		"entry with nothing":   {"agents: {a: [{delay_ms: 5}]}", []string{`f:1:14  an entry needs a text, tool_calls or an error`}},
		"text is null":         {"agents: {a: [{text: }]}", []string{`f:1:21  text has no value (an empty text is "")`}},
		"error and text":       {"agents: {a: [{error: {status: 500}, text: x}]}", []string{`f:1:43  an entry with an error cannot have text (make it an entry of its own)`}},
		"error without status": {"agents: {a: [{error: {reason: BAD}}]}", []string{`f:1:22  an error needs a status, 400 to 599 (for example: {status: 429})`}},
		"error values": {"agents: {a: [{error: {status: 200, reason: bad, retry_after_ms: x}}]}", []string{
			`f:1:31  status must be a whole number from 400 to 599, not "200"`,
			`f:1:44  a reason consists of upper-case letters, digits and _ (for example: UNAVAILABLE)`,
			`f:1:65  retry_after_ms must be a whole number from 0 to 600000, not "x"`,
		}},
		"chunks alone": {"agents: {a: [{chunks: 2, tool_calls: [{name: t}]}]}", []string{`f:1:23  chunks needs a text`}},
		"calls": {"agents: {a: [{tool_calls: [{}, {name: ''}, x, {name: t, arguments: [1]}]}]}", []string{
			`f:1:28  a tool call needs a name (for example: {name: search})`,
			`f:1:39  the name is empty`,
			`f:1:44  a tool call must be keys and values, not "x"`,
			`f:1:68  arguments must be keys and values, or a text, not a list`,
		}},
		"arguments": {"agents: {a: [{tool_calls: [{name: t, arguments: {a: .inf, b: '{{x}}', b: 1}}]}]}", []string{
			`f:1:53  JSON has no .inf (put it in quotes)`,
			`f:1:62  a text in arguments has no placeholder {{x}} (known here: input, inputs, result.TOOL, results)`,
			`f:1:71  key "b" is set twice, first in line 1 (remove one of them)`,
		}},
		"no end":        {`agents: {a: [{when: "input +", text: x}]}`, []string{`f:1:29  it ends where a value was expected (check names, types, brackets and quotes; equal is ==)`}},
		"no bool":       {"agents: {a: [{when: turn + 1, text: x}]}", []string{`f:1:21  when must be true or false, not int (for example: turn == 1)`}},
		"quoted":        {`agents: {a: [{when: "turn == 1 && foo == 2", text: x}]}`, []string{`f:1:35  no such variable or function "foo" (known here: input, inputs, result, results, tools, turn)`}},
		"quotes within": {`agents: {a: [{when: 'input == "x" && foo', text: x}]}`, []string{`f:1:38  no such variable or function "foo" (known here: input, inputs, result, results, tools, turn)`}},
		"escapes":       {`agents: {a: [{when: "input == \"x\" && foo", text: x}]}`, []string{`f:1:21  no such variable or function "foo" (known here: input, inputs, result, results, tools, turn)`}},
		"block":         {"agents:\n  a:\n    - text: x\n      when: |\n        turn == 1 &&\n        foo\n", []string{`f:6:9  no such variable or function "foo" (known here: input, inputs, result, results, tools, turn)`}},
		"not UTF-8":     {"agents: {a: [{text: \"\xff\"}]}", []string{`f:1:1  the file is not UTF-8 text (save it as UTF-8)`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scripted.Parse("f", []byte(c.in))
			var faults scripted.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error = %v, want faults", err)
			}
			if diff := cmp.Diff(strings.Join(c.want, "\n"), faults.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTypesAreChecked(t *testing.T) {
	_, err := scripted.Parse("f", []byte(`agents: {a: [{when: turn == "1", text: x}]}`))
	if err == nil || !strings.HasPrefix(err.Error(), "f:1:26  found no matching overload") {
		t.Errorf("error = %v", err)
	}
}

func TestFileIsBounded(t *testing.T) {
	_, err := scripted.Parse("f", []byte("agents: {a: [{text: "+strings.Repeat("x", 1<<20)+"}]}"))
	if err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("error = %v", err)
	}
}

// FuzzP17_Parse: whatever a file holds, there is a script that answers or fails in
// words, or there are faults with places in the file.
func FuzzP17_Parse(f *testing.F) {
	for _, s := range []string{
		`agents: {a: [{when: turn == 1, text: "{{input}}", chunks: 3}]}`,
		"agents:\n  a:\n    - when: |\n        size(results) > 0\n      tool_calls: [{name: t, arguments: {x: [1, 2.5, null]}}]\n    - error: {status: 429}\n",
		`agents: {a: &x [*x]}`, "a: 1\n---\nb: 2", "agents: {a: [{text: !!binary x}]}", `agents: {"": [{}], ? [x] : y}`,
		`agents: {a: [{tool_calls: [{name: t, arguments: {a: !!int x, b: 0x1F, c: 1_000, d: !!float 7}}]}]}`, "%YAML 1.1\n---\n", "#\n", "\ufeffagents:",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := scripted.Parse("f", data)
		if err != nil {
			checkFaults(t, err, data)
			return
		}
		for _, id := range s.Agents() {
			req := request("user: x", "assistant: y", "tool: r")
			req.Agent = id
			a, err := s.Answer(req)
			if err != nil {
				if e := agent.AsError(err); e.Reason != agent.ReasonUnavailable || e.Message == "" {
					t.Fatalf("error = %v", err)
				}
				continue
			}
			if a.Failure == nil && strings.Join(a.Pieces(), "") != a.Text {
				t.Fatalf("the pieces of %q are %q", a.Text, a.Pieces())
			}
		}
	})
}

func checkFaults(t *testing.T, err error, data []byte) {
	var faults scripted.Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("error = %v, want faults", err)
	}
	lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2
	if i := slices.IndexFunc(faults, func(f scripted.Fault) bool {
		return f.Line < 1 || f.Col < 1 || f.Line > lines || f.Message == ""
	}); i >= 0 {
		t.Fatalf("fault without a place: %v", faults[i])
	}
}
