package tests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
)

// realTeam has a model with a price, and tools that must not be called.
const realTeam = `version: v1
models:
  main: {provider: openai, name: main, base_url: "${LLM}", price: {input: 1000, output: 1000}}
  free: {provider: openai, name: free, base_url: "${LLM}"}
tools: {shop: {mcp: {command: [/no/such/program]}}}
agents:
  clerk: {description: Sells., model: main, tools: [shop]}
  guest: {description: Has no price., model: free}
`

// TestRealModels: scenarios call the models of the file, with tools from their scripts, and say what they cost and what
// was not checked.
func TestRealModels(t *testing.T) {
	const script = "version: v1\nteam: clerk\nmodels: {main: {agents: {clerk: [{text: scripted}]}}, free: {agents: {guest: [{text: scripted}]}}}\n"
	const tools = "tools: {shop: {calls: [{name: price, text: 3 EUR}]}}\n"
	for name, tt := range map[string]struct {
		test  string
		flags cli.TestFlags
		says  []string
		err   string // of the command
		calls int    // of the model; -1 means any number
	}{
		"passes": {
			script + tools + "scenarios: [{name: sells, send: tea, want: {reply: {contains: [3 EUR], equals: scripted}, tool_calls: 7, at_most: {model_calls: 2}}}]",
			cli.TestFlags{Model: "real", MaxCost: "1"}, []string{"ok    clerk  sells", "12 tokens  0.012", " USD\n      not checked with a real model: tool_calls, reply.equals", "1 passed, 0 failed, 0.012 USD"}, "", 2,
		},
		"fails":               {script + tools + "scenarios: [{name: sells, send: tea, want: {reply: {contains: [gold]}}}]", cli.TestFlags{Model: "real"}, []string{"FAIL", `to contain "gold", got "it costs 3 EUR"`}, "tests failed", 2},
		"a failure is wanted": {script + tools + "scenarios: [{name: fails, send: tea, want: {state: FAILED}}, {name: sells, send: tea}]", cli.TestFlags{Model: "real"}, []string{"-     clerk  fails", "not played: it expects a failure", "1 passed, 0 failed, 1 not played"}, "", 2},
		"the money is spent":  {script + tools + "scenarios: [{name: one, send: dear tea}, {name: two, send: tea}]", cli.TestFlags{Model: "real", MaxCost: "30"}, []string{"0 passed, 1 failed, 1 not played", "the money of --max-cost is spent"}, "tests failed", -1},
		"it times out": {
			script + tools + "scenarios: [{name: one, send: slow tea, timeout: 1s}, {name: two, send: slow tea, timeout: 1s}]", cli.TestFlags{Model: "real", MaxCost: "1"},
			[]string{"has not ended after 1s (timeout)", "0 passed, 1 failed, 1 not played", "the money of --max-cost is spent"}, "tests failed", 1,
		},
		"no price":             {script + "scenarios: [{name: n, send: tea, team: guest}]", cli.TestFlags{Model: "real", MaxCost: "1"}, nil, `model "free" has no price, so what tests with real models cost is not known`, 0},
		"no price and no most": {script + "scenarios: [{name: n, send: tea, team: guest}]", cli.TestFlags{Model: "real"}, nil, `model "free" has no price`, 0},
		"a tool has no script": {script + "scenarios: [{name: n, send: tea}]", cli.TestFlags{Model: "real"}, nil, `tool "shop", which has no script; a real model could call it`, 0},
		"another model":        {script, cli.TestFlags{Model: "gpt"}, nil, "--model gpt: expected real", 0},
		"an amount":            {script, cli.TestFlags{Model: "real", MaxCost: "much"}, nil, "--max-cost much: expected an amount", 0},
		"scripts and money":    {script, cli.TestFlags{MaxCost: "1"}, nil, "it belongs to --model real", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm := fakellm.New(t)
			llm.Answer("main", func(r *fakellm.Request) fakellm.Turn {
				switch last := r.Last(); {
				case strings.Contains(last, "EUR"):
					return fakellm.Turn{Text: "it costs " + last}
				case strings.Contains(last, "slow"):
					return fakellm.Turn{Text: "late", Delay: time.Minute}
				case strings.Contains(last, "dear"):
					return fakellm.Turn{Text: "x", Usage: &fakellm.Usage{PromptTokens: 40_000, CompletionTokens: 1, TotalTokens: 40_001}}
				}
				return fakellm.Turn{Calls: []fakellm.Call{{Name: "price", Arguments: "{}"}}}
			})
			out, err := playReal(t, strings.ReplaceAll(realTeam, "${LLM}", llm.URL), tt.test, tt.flags)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, want %q\n%s", err, tt.err, out)
			}
			for _, want := range tt.says {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if n := len(llm.Requests()); tt.calls >= 0 && n != tt.calls {
				t.Errorf("%d calls, want %d\n%s", n, tt.calls, out)
			}
		})
	}
}

// playReal plays the scenarios of a test with the models of a team, and returns what the command prints.
func playReal(t *testing.T, team, test string, flags cli.TestFlags) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"team.yaml": team, "team_test.yaml": test} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, talk bytes.Buffer
	s := &cli.Shell{Console: console.Console{Out: &out, Talk: &talk}}
	err := s.Test(t.Context(), []string{dir}, flags)
	return out.String(), err
}

// TestRealModels_Detached: tasks that a run begins on their own count before the next message, which waits for them, and at
// the end, when those that still work are canceled.
func TestRealModels_Detached(t *testing.T) {
	const team = `version: v1
models: {main: {provider: openai, name: main, base_url: "${LLM}", price: {input: 1000, output: 1000}}}
agents: {digger: {description: Digs., model: main, instructions: Dig.}}
teams:
  desk:
    members: [digger]
    coordinator: {leader: {model: main, instructions: Lead.}, async: true, on_open_delegations: detach}
`
	const test = "version: v1\nteam: desk\nmodels: {main: {agents: {digger: [{text: scripted}], desk: [{text: scripted}]}}}\n"
	for name, tt := range map[string]struct {
		scenarios, most string
		says            []string
		fails           bool
		calls           int
	}{
		"each counts":              {"[{name: one, turns: [{send: a hole}, {send: hello}]}, {name: two, send: hello}]", "100", []string{"ok    desk  one", " 10.2", "2 passed"}, false, 5},
		"before the next":          {"[{name: one, turns: [{send: a hole}, {send: hello}]}]", "10.2", []string{"message 2: ", "BUDGET_EXCEEDED", " 10.1"}, true, 3},
		"those that still work":    {"[{name: one, send: a well}, {name: two, send: hello}]", "100", []string{"2 passed"}, false, 4},
		"that is all that is left": {"[{name: one, turns: [{send: a hole}, {send: all}]}, {name: two, send: hello}]", "13", []string{"0 passed, 1 failed, 1 not played", "not played: the money of --max-cost is spent"}, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm := fakellm.New(t)
			llm.Answer("main", func(r *fakellm.Request) fakellm.Turn {
				switch last := r.Last(); {
				case last == "a hole" || last == "a well":
					return fakellm.Turn{Calls: []fakellm.Call{{ID: "dig", Name: "delegate_to_digger", Arguments: `{"task": "dig ` + last + `"}`}}}
				case strings.Contains(last, "dig a hole"):
					return fakellm.Turn{Text: "Dug.", Usage: &fakellm.Usage{PromptTokens: 9_999, CompletionTokens: 1, TotalTokens: 10_000}}
				case strings.Contains(last, "dig a well"):
					return fakellm.Turn{Text: "late", Delay: time.Minute}
				case last == "all":
					return fakellm.Turn{Text: "Spent.", Usage: &fakellm.Usage{PromptTokens: 3_999, CompletionTokens: 1, TotalTokens: 4_000}}
				}
				return fakellm.Turn{Text: "It is under way."}
			})
			out, err := playReal(t, strings.ReplaceAll(team, "${LLM}", llm.URL), test+"scenarios: "+tt.scenarios+"\n", cli.TestFlags{Model: "real", MaxCost: tt.most})
			if (err != nil) != tt.fails {
				t.Errorf("%v\n%s", err, out)
			}
			for _, want := range tt.says {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if n := len(llm.Requests()); n != tt.calls {
				t.Errorf("%d calls, want %d\n%s", n, tt.calls, out)
			}
		})
	}
}
