package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files are a configuration with a team of each mode, and what it names.
var files = map[string]string{
	"team.yaml": `version: v1
models:
  fast: {provider: openai, name: small, price: {input: 1, output: 2}}
  slow: {provider: openai, name: large, api_key: "${NOT_SET_ANYWHERE}"}
  deep: {provider: anthropic, name: large, fallback: [fast]}
tools:
  web: {mcp: {url: "https://tools.example/mcp", bearer: "${NOT_SET_ANYWHERE}"}}
agents:
  thinker: {description: Thinks., model: deep, instructions: Think.}
  searcher: {description: Searches., model: fast, instructions: Search., tools: [web]}
  writer: {description: Writes., model: fast, instructions: Write.}
  critic: {description: Scores., model: fast, instructions: Score.}
  far: {grpc: {address: "127.0.0.1:1", auth: {bearer: "${NOT_SET_ANYWHERE}"}}}
  asker: {scripted: {steps: [{ask: "Which colour?"}, {text: "{{answer}} it is"}]}}
  unused: {scripted: {steps: [{echo: true}]}}
teams:
  desk:
    members: [{agent: writer}, {agent: critic}]
    supervisor:
      rules:
        - {id: write, when: "turn == 1", next: [writer]}
        - {id: check, when: "last.member == 'writer'", next: [critic]}
        - {id: rewrite, when: "critic.data.score < 7 && turn < 6", next: [writer]}
        - {id: done, when: "true", finish: writer}
  line:
    workflow:
      steps:
        - {id: draft, agent: writer}
        - {id: fix, agent: critic, after: [draft], when: "steps.draft.text == 'bad'"}
        - {id: ask, agent: asker, after: [draft, fix]}
  panel:
    members: [{agent: writer}, {agent: critic}]
    coordinator: {leader: {model: fast}, allow_parallel: true}
  relay:
    members: [{agent: writer}, {agent: critic}]
    swarm: {entry_member: writer}
    limits: {max_handoffs: 1}
  thrift:
    members: [{agent: writer, history_scope: LAST_RESULT}]
    supervisor: {rules: [{id: w, when: "turn < 50", next: [writer]}, {id: d, when: "true", finish: writer}]}
    limits: {max_cost: 0.001}
  talk: {members: [{agent: writer}, {agent: critic}], swarm: {entry_member: writer, cross_request_transfer: true}}
  house: {members: [{agent: desk}], coordinator: {leader: {model: fast}}}
  abroad: {workflow: {steps: [{id: go, agent: far}]}}
  online: {workflow: {steps: [{id: go, agent: searcher}]}}
  thinkers: {workflow: {steps: [{id: go, agent: thinker}]}}
  luxury: {members: [{agent: writer}], coordinator: {leader: {model: slow}}}
  office: {board: true, members: [{agent: writer}], coordinator: {leader: {model: fast}}}
server:
  default_agent: desk
  auth: {api_keys: [{name: ann, sha256: "${NOT_SET_ANYWHERE}"}]}
`,
	"fast.yaml": `agents:
  writer:
    - {when: 'input.contains("down")', error: {status: 503}}
    - {when: '"transfer_to_agent" in tools && turn == 1', tool_calls: [{name: transfer_to_agent, arguments: {agent_name: critic, message: "take over: {{input}}"}}]}
    - {when: 'input.contains("score")', text: "better {{input}}"}
    - {text: "text {{input}}"}
  critic:
    - {when: 'input.contains("better") || input.contains("good")', text: '{"score": 9}'}
    - {when: 'input.contains("take over")', text: "taken: {{input}}"}
    - {text: '{"score": 6}'}
  panel:
    - {when: turn == 1, tool_calls: [{name: delegate_to_writer, arguments: {task: "a {{input}}"}}, {name: delegate_to_critic, arguments: {task: "b {{input}}"}}]}
    - {text: "all: {{results}}"}
  house:
    - {when: turn == 1, tool_calls: [{name: delegate_to_desk, arguments: {task: "{{input}}"}}]}
    - {text: "from the house: {{results}}"}
  office:
    - {when: turn == 1, tool_calls: [{name: add_task, arguments: {title: "{{input}}"}}]}
    - {text: "noted: {{results}}"}
`,
}

// load loads a test file whose scenarios are given, beside the files.
func load(t *testing.T, text string) (*scenario.File, error) {
	t.Helper()
	fs := fstest.MapFS{}
	all := maps.Clone(files)
	all["team_test.yaml"] = text
	for name, content := range all {
		fs[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return scenario.Load(scenario.Loader{Files: fs, Env: func(string) (string, bool) { return "", false }}, "team_test.yaml")
}

const head = "version: v1\nmodels: {fast: {file: fast.yaml}}\nscenarios:\n"

// play plays all scenarios and returns what failed, a line each.
func play(t *testing.T, text string) []string {
	t.Helper()
	f, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	err = scenario.Play(t.Context(), scenario.Select([]*scenario.File{f}, nil), nil, func(r *scenario.Result) error {
		for _, f := range r.Failures {
			lines = append(lines, fmt.Sprintf("%d %s | %s", f.Line, f.Message, f.Why))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestExpectations tests each key of an expectation with one that is met and one that is
// not, and the failure for it.
func TestExpectations(t *testing.T) {
	tests := []struct {
		key, send, met, unmet string
		told                  []string
	}{
		{"members", "good", "[writer, critic]", "[writer]", []string{
			`4 want members [writer], got [writer critic] | turn 2: rule "check" matched because last.member was "writer" (team.yaml:22)`,
		}},
		{"members", "bad", "[writer, critic, writer, critic]", "[writer, critic]", []string{
			`4 want members [writer critic], got [writer critic writer critic] | turn 3: rule "rewrite" matched because critic.data.score was 6 and turn was 3 (team.yaml:23)`,
		}},
		{"members", "good", "[writer, critic]", "[writer, critic, writer]", []string{
			`4 want members [writer critic writer], got [writer critic] | turn 3: rule "done" matched: true (team.yaml:24)`,
		}},
		{"rules", "good", "[write, check, done]", "[write, done]", []string{
			`4 want rules [write done], got [write check done] | turn 2: rule "check" matched because last.member was "writer" (team.yaml:22)`,
		}},
		{"agents", "house: good", "[desk, desk/writer, desk/critic]", "[desk, desk/critic]", []string{
			`4 want agents [desk desk/critic], got [desk desk/writer desk/critic] | desk gave it to writer`,
		}},
		{"steps", "line: good", "[draft, ask]", "[draft, fix]", []string{
			`4 want steps [draft fix], got [draft ask] | turn 2: ask after draft, fix (team.yaml:30)`,
		}},
		{"skipped", "line: good", "[fix]", "[]", []string{
			`4 want skipped [], got [fix] | turn 2: fix skipped, not true: steps.draft.text == 'bad' (team.yaml:29)`,
		}},
		{"questions", "line: good", `["Which colour?"]`, "[]", []string{`4 want questions that contain [], got ["Which colour?"] | `}},
		{"questions", "line: good", `["Which"]`, "[Which size]", []string{`4 want questions that contain ["Which size"], got ["Which colour?"] | `}},
		{"state", "line: good", "INPUT_REQUIRED", "COMPLETED", []string{
			`4 want the run COMPLETED, got INPUT_REQUIRED | it asks "Which colour?"; give it answers: [TEXT]`,
		}},
		{"reason", "relay: good", "", "NO_RESPONSE", []string{`4 want the run FAILED, got COMPLETED | turn 3: critic answered (team.yaml:36)`}},
		{"reason", "down", "UNAVAILABLE", "TIMEOUT", []string{`4 want reason TIMEOUT, got UNAVAILABLE | UNAVAILABLE: the endpoint of model "small" failed (HTTP 503); try again later`}},
		{"error", "down", "{contains: [HTTP 503]}", "{equals: no}", []string{`4 want error "no", got "…" | `}},
		{"reply", "good", "{equals: text good, contains: [text], excludes: [bad], matches: '^t'}", "{equals: a, contains: [b, c], excludes: [good], matches: '^g'}", []string{
			`4 want reply "a", got "text good" | turn 3: rule "done" matched: true (team.yaml:24)`,
			`4 want reply to contain "b", got "text good" | …`,
			`4 want reply to contain "c", got "text good" | …`,
			`4 want reply without "good", got "text good" | …`,
			`4 want reply to match ^g, got "text good" | …`,
		}},
		{"parallel", "panel: good", "2", "1", []string{`4 want 1 parallel, got 2 | `}},
		{"failed", "panel: down", "[writer]", "[]", []string{`4 want failed [], got [writer] | writer: UNAVAILABLE: …`}},
		{"model_calls", "down", "3", "1", []string{`4 want 1 model calls, got 3 | `}},
		{"tool_calls", "panel: good", "0", "1", []string{`4 want 1 tool calls, got 0 | `}},
		{"delegations", "panel: good", "2", "0", []string{`4 want 0 delegations, got 2 | `}},
		{"handoffs", "relay: good", "1", "0", []string{`4 want 0 handoffs, got 1 | `}},
		{"given", "relay: x", `{critic: {equals: "take over: x"}}`, "{critic: {equals: x}}", []string{
			`4 want critic given "x", got "take over: x" | turn 2: writer hands over to critic (team.yaml:36)`,
		}},
		{"given", "house: good", `{desk/critic: {equals: "text good"}}`, "{desk/writer: {contains: [bad]}}", []string{
			`4 want desk/writer given to contain "bad", got "good" | desk gave it to writer`,
		}},
		{"said", "relay: x", `{critic: {equals: "taken: take over: x"}}`, "{writer: {equals: x}}", []string{
			`4 want writer to say "x", got "take over: x" | `,
		}},
		{"said", "panel: down", `{critic: {contains: [score]}}`, "{writer: {equals: x}}", []string{
			`4 want writer to say "x", got "" | writer: UNAVAILABLE: …`,
		}},
		{"at_most", "good", "{tokens: 100, cost: 0.001, model_calls: 2, tool_calls: 0}", "{tokens: 1, cost: 0.00001, model_calls: 1}", []string{
			`4 want at most 1 tokens, got … | `, `4 want at most 0.00001 cost, got 0.000014 | `, `4 want at most 1 model calls, got 2 | `,
		}},
	}
	told := map[string]bool{}
	for _, tt := range tests {
		told[tt.key] = true
		t.Run(tt.key+" "+tt.send, func(t *testing.T) {
			team, send, named := strings.Cut(tt.send, ": ")
			if !named {
				team, send = "desk", tt.send
			}
			state := ""
			if team == "line" && tt.key != "state" && tt.key != "reason" {
				state = ", state: INPUT_REQUIRED"
			}
			scenarios := func(value string) string {
				return head + fmt.Sprintf("  - {name: n, team: %s, send: %s, want: {%s: %s%s}}\n", team, send, tt.key, value, state)
			}
			if tt.met != "" {
				met := scenarios(tt.met)
				if send == "down" && team == "desk" && tt.key != "reason" && tt.key != "error" {
					met = strings.Replace(met, "want: {", "want: {reason: UNAVAILABLE, ", 1)
				}
				if got := play(t, met); len(got) > 0 {
					t.Errorf("%s is not met: %s", tt.met, got)
				}
			}
			unmet := scenarios(tt.unmet)
			if send == "down" && team == "desk" && tt.key != "reason" && tt.key != "error" {
				unmet = strings.Replace(unmet, "want: {", "want: {reason: UNAVAILABLE, ", 1)
			}
			same(t, play(t, unmet), tt.told)
		})
	}
	fields := (&teamv1.Expectation{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if key := string(fields.Get(i).Name()); !told[key] {
			t.Errorf("%s is not tested", key)
		}
	}
}

// same compares lines; … in want matches any text.
func same(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range want {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(want[i]), "…", ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(got[i]) {
			t.Errorf("got\n%s\nwant\n%s", got[i], want[i])
		}
	}
}

// TestR_003_18_Boards: teams with a board have one in tests too, an empty one each.
func TestR_003_18_Boards(t *testing.T) {
	const one = `  - {name: %s, team: office, send: tides, want: {reply: {contains: ['noted: ', '"id":"t1"', '"title":"tides"']}}}` + "\n"
	same(t, play(t, head+fmt.Sprintf(one, "first")+fmt.Sprintf(one, "second")), []string{})
}

// TestUnexpectedEnds fails scenarios that say nothing of how the run ends, or
// what it did not do.
func TestUnexpectedEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		told []string
	}{
		"a failure": {head + "  - {name: n, send: down}\n", []string{"4 want the run COMPLETED, got FAILED | UNAVAILABLE: …"}},
		"a failure that does not come": {head + "  - {name: n, send: good, want: {error: {contains: [no]}}}\n", []string{
			`4 want the run FAILED, got COMPLETED | turn 3: rule "done" matched: true (team.yaml:24)`,
		}},
		"a question": {head + "  - {name: n, team: line, send: good}\n", []string{`4 want the run COMPLETED, got INPUT_REQUIRED | it asks "Which colour?"; give it answers: [TEXT]`}},
		"an answer too many": {head + "  - name: n\n    team: line\n    send: good\n    answers: [red, blue]\n    want: {reply: {equals: red it is}}\n", []string{
			`7 unused answer "blue" | `,
		}},
		"somebody who did not work": {head + "  - {name: n, team: panel, send: good, models: {fast: {agents: {panel: [{text: alone}]}}}, want: {said: {writer: {contains: [a]}}, given: {critic: {contains: [a]}}}}\n", []string{
			"4 want critic to work, but it did not | turn 1: the model answered (team.yaml:33)", "4 want writer to work, but it did not | …",
		}},
		"the second message": {head + "  - name: n\n    turns:\n      - {send: good}\n      - {send: bad, want: {members: [writer]}}\n      - {send: never, want: {members: []}}\n", []string{
			`7 message 2: want members [writer], got [writer critic writer critic] | turn 2: …`,
		}},
		"a long list": {"version: v1\nmodels: {fast: {agents: {writer: [{text: \"more {{input}}\"}]}}}\nscenarios:\n  - {name: n, team: thrift, send: x, want: {reason: BUDGET_EXCEEDED, members: []}}\n", []string{
			"4 want members [], got [writer … in all] | turn 1: …",
		}},
		"too long": {"version: v1\nmodels: {fast: {agents: {writer: [{delay_ms: 60000, text: x}], critic: [{text: x}]}}}\nscenarios:\n  - {name: n, send: good, timeout: 50ms}\n", []string{
			"4 the scenario has not ended after 50ms (timeout) | …",
		}},
		"an empty message": {head + "  - {name: n, send: \" \"}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := play(t, tt.text)
			if tt.told == nil {
				return
			}
			same(t, got, tt.told)
		})
	}
}

// TestConversation sends several messages, answers questions, and replaces models
// and agents of one scenario only.
func TestConversation(t *testing.T) {
	got := play(t, head+`  - name: answered
    team: line
    send: good
    answers: [red]
    want: {questions: ["Which colour?"], steps: [draft, ask], reply: {equals: red it is}}
  - name: two messages
    team: line
    turns:
      - {send: good, answers: [red], want: {reply: {equals: red it is}}}
      - {send: good, answers: [blue], want: {reply: {equals: blue it is}, model_calls: 1}}
  - name: the conversation stays with whom it was handed over to
    team: talk
    turns:
      - {send: hello, want: {members: [writer, critic], handoffs: 1, reply: {equals: "taken: take over: hello"}}}
      - {send: again, want: {members: [critic], reply: {equals: '{"score": 6}'}}}
  - name: money is counted as the model's whose script is played
    team: thrift
    send: hello
    want: {reason: BUDGET_EXCEEDED, at_most: {cost: 0.001}}
  - name: a model of another provider, and the one that is asked when it cannot answer
    team: thinkers
    models: {deep: {agents: {thinker: [{when: input == "hard", error: {status: 503}}, {text: deep}]}}, fast: {agents: {thinker: [{text: shallow}]}}}
    turns:
      - {send: easy, want: {reply: {equals: deep}}}
      - {send: hard, want: {reply: {equals: shallow}}}
  - name: another script
    team: line
    models: {fast: {agents: {writer: [{text: bad}], critic: [{text: fixed}]}}}
    send: good
    answers: [green]
    want: {steps: [draft, fix, ask], skipped: []}
  - name: an agent on another server
    team: abroad
    agents: {far: {steps: [{text: "from afar: {{input}}"}]}}
    send: hello
    want: {reply: {equals: "from afar: hello"}}
  - name: an agent by itself
    team: writer
    send: hello
    want: {reply: {equals: text hello}, members: [], model_calls: 1}
`)
	if len(got) > 0 {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// TestFaults shows what is wrong with a test file, each at its place.
func TestFaults(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"an unknown key":                      {head + "  - {name: n, sent: x}\n", `team_test.yaml:4:15  unknown key "sent"`},
		"an unknown word":                     {head + "  - {name: n, send: x, want: {state: DONE}}\n", `team_test.yaml:4:38  unknown value "DONE"`},
		"no scenarios":                        {"version: v1\n", "no scenarios are defined"},
		"no version":                          {"scenarios: [{name: n, send: x}]\n", "version is missing"},
		"no name":                             {head + "  - {send: x}\n", "a scenario needs a name"},
		"nothing sent":                        {head + "  - {name: n}\n", "a scenario needs exactly one of send and turns"},
		"both":                                {head + "  - {name: n, send: x, turns: [{send: y}]}\n", "a scenario needs exactly one of send and turns"},
		"want of turns":                       {head + "  - {name: n, turns: [{send: y}], want: {members: []}}\n", "with turns, answers and want are only allowed within a turn"},
		"nothing of a text":                   {head + "  - {name: n, send: x, want: {reply: {}}}\n", "no expectation is set"},
		"a pattern":                           {head + "  - {name: n, send: x, want: {reply: {matches: '('}}}\n", "team_test.yaml:4:48  error parsing regexp"},
		"two scripts":                         {"version: v1\nmodels: {fast: {file: fast.yaml, agents: {a: [{text: b}]}}}\nscenarios: [{name: n, send: x}]\n", "a script needs exactly one of file and agents"},
		"no such script":                      {"version: v1\nmodels: {fast: {file: none.yaml}}\nscenarios: [{name: n, send: x}]\n", `team_test.yaml:2:23  script "none.yaml": the file does not exist`},
		"a script in place":                   {"version: v1\nmodels: {fast: {agents: {writer: [{when: inptu == 'x', text: b}]}}}\nscenarios: [{name: n, send: x}]\n", `team_test.yaml:2:42  no such variable or function "inptu"`},
		"a script in a file":                  {"version: v1\nmodels: {fast: {file: team.yaml}}\nscenarios: [{name: n, send: x}]\n", `team.yaml:1:1  a script has no key "version"`},
		"an unknown model":                    {"version: v1\nmodels: {fats: {file: fast.yaml}}\nscenarios: [{name: n, send: x}]\n", `team_test.yaml:2:10  team.yaml has no model "fats"` + "\n   2 | models: {fats: {file: fast.yaml}}\n     |          ^ did you mean \"fast\"?"},
		"an unknown agent":                    {head + "  - {name: n, send: x, agents: {fra: {steps: [{echo: true}]}}}\n", `team_test.yaml:4:33  team.yaml has no agent "fra"`},
		"an unknown team":                     {head + "  - {name: n, send: x, team: desc}\n", `team_test.yaml:4:30  team.yaml has no team or agent "desc"`},
		"an unused agent":                     {head + "  - {name: n, send: x, team: unused}\n", `agent "unused" is not served: no team uses it`},
		"an unknown member":                   {head + "  - {name: n, send: x, want: {members: [writr]}}\n", `team_test.yaml:4:41  "desk" has no member "writr"`},
		"an unknown member of a path":         {head + "  - {name: n, send: x, want: {failed: [writr/a]}}\n", `"desk" has no member "writr"`},
		"an unknown member that speaks":       {head + "  - {name: n, send: x, want: {said: {writr: {equals: x}}}}\n", `team_test.yaml:4:38  "desk" has no member "writr"`},
		"an unknown rule":                     {head + "  - {name: n, send: x, want: {rules: [wrote]}}\n", `team_test.yaml:4:39  "desk" has no rule "wrote"`},
		"a step of no workflow":               {head + "  - {name: n, send: x, want: {steps: [draft]}}\n", `"desk" has no step "draft"` + "\n   4 | - {name: n, send: x, want: {steps: [draft]}}\n     |                                     ^ the team has none; remove this"},
		"a model over the network":            {head + "  - {name: n, send: x, team: luxury}\n", `team_test.yaml:4:5  "luxury" uses model "slow", which is called over the network`},
		"an agent over the network":           {head + "  - {name: n, send: x, team: abroad}\n", `"abroad" uses agent "far", which is on another server`},
		"a tool over the network":             {head + "  - {name: n, send: x, team: online}\n", `"online" uses tool "web", which is called over the network`},
		"no configuration":                    {"version: v1\nconfig: none.yaml\nscenarios: [{name: n, send: x}]\n", `team_test.yaml:2:9  config "none.yaml": the file does not exist`},
		"a configuration that does not exist": {"version: v1\nconfig: sk-secret\nscenarios: [{name: n, send: x}]\n", `team_test.yaml:2:9  config "sk-secret": the file does not exist`},
		"one fault beside another":            {head + "  - {name: n, sent: x}\n  - {name: m, send: x, want: {members: [writr]}}\n  - {name: o, send: x, models: {fats: {file: fast.yaml}}}\n", `"desk" has no member "writr"`},
		"a third one beside them":             {head + "  - {name: n, sent: x}\n  - {name: m, send: x, want: {members: [writr]}}\n  - {name: o, send: x, models: {fats: {file: fast.yaml}}}\n", `team.yaml has no model "fats"`},
		"a timeout":                           {head + "  - {name: n, send: x, timeout: 0s}\n", "timeout must be more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

// TestOrder: scenarios are played concurrently and reported in their order.
// TestFind_NoTest: if a configuration is given instead of its test, the error says so rather
// than reporting all of its keys as unknown.
func TestFind_NoTest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(path, []byte("version: v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := scenario.Find(path)
	if err == nil || !strings.Contains(err.Error(), "not a test file") || !strings.Contains(err.Error(), "_test.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestOrder(t *testing.T) {
	var b, want strings.Builder
	b.WriteString("version: v1\nmodels: {fast: {file: fast.yaml}}\nscenarios:\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  - {name: n%d, team: writer, send: x, models: {fast: {agents: {writer: [{delay_ms: %d, text: x}]}}}}\n", i, (30-i)%7*5)
		fmt.Fprintf(&want, "n%d ", i)
	}
	f, err := load(t, b.String())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	err = scenario.Play(t.Context(), f.Scenarios, nil, func(r *scenario.Result) error {
		got.WriteString(r.Name + " ")
		return nil
	})
	if diff := cmp.Diff(want.String(), got.String()); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestEnd: Play stops all scenarios when it is canceled, or when report returns an error.
func TestEnd(t *testing.T) {
	f, err := load(t, "version: v1\nmodels: {fast: {agents: {writer: [{delay_ms: 60000, text: x}]}}}\nscenarios: [{name: a, team: writer, send: x}, {name: b, team: writer, send: x}]\n")
	if err != nil {
		t.Fatal(err)
	}
	ended := errors.New("ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	if err := scenario.Play(ctx, f.Scenarios, nil, func(*scenario.Result) error { return nil }); !errors.Is(err, ended) {
		t.Errorf("got %v", err)
	}
}

// TestSelect chooses scenarios by team and name.
func TestSelect(t *testing.T) {
	f, err := load(t, head+"  - {name: one, send: x}\n  - {name: two, team: panel, send: x}\n")
	if err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{"": 2, "^desk": 1, "one$": 1, "panel two": 1, "three": 0} {
		if got := len(scenario.Select([]*scenario.File{f}, regexp.MustCompile(pattern))); got != want {
			t.Errorf("%q: %d, want %d", pattern, got, want)
		}
	}
}
