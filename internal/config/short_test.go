package config

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

const shortHead = `version: v1
models: {m: {provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1', api_key: k}}
tools: {files: {mcp: {command: [files]}}}
agents:
  a: {description: d, model: m, instructions: i}
  b: {description: e, model: m, instructions: i}
  scripted: {scripted: {steps: [{echo: true}]}}
  lead: {model: m, instructions: Lead them., tools: [files], settings: {temperature: 0.5}}
`

// TestShortForms: what people write first means the same as the full form.
func TestShortForms(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"lead.md": {Data: []byte("Lead them.\n")}}
	for name, c := range map[string]struct{ short, long string }{
		"members by name": {"{members: [a, b], broadcast: {model: m}}", "{members: [{agent: a}, {agent: b}], broadcast: {model: m}}"},
		"mixed members":   {"{members: [a, {agent: b, role: r}], broadcast: {model: m}}", "{members: [{agent: a}, {agent: b, role: r}], broadcast: {model: m}}"},
		"steps by name":   {"{workflow: {steps: [a, b]}}", "{workflow: {steps: [{id: a, agent: a}, {id: b, agent: b}]}}"},
		"the same agent again": {
			"{workflow: {steps: [a, b, {agent: a}, {id: a_2, agent: b}]}}",
			"{workflow: {steps: [{id: a, agent: a}, {id: b, agent: b}, {id: a_3, agent: a}, {id: a_2, agent: b}]}}",
		},
		"parallel by name":     {"{workflow: {steps: [{parallel: [a, b]}]}}", "{workflow: {steps: [{parallel: [{id: a, agent: a}, {id: b, agent: b}]}]}}"},
		"an input by its type": {"{inputs: {x: string}, workflow: {steps: [a]}}", "{inputs: {x: {type: string}}, workflow: {steps: [a]}}"},
		"words in lower case": {
			"{members: [{agent: a, history_scope: isolated}], limits: {on_limit: ask, max_tokens: 9}, workflow: {on_member_error: continue_partial, steps: [a]}}",
			"{members: [{agent: a, history_scope: ISOLATED}], limits: {on_limit: ASK, max_tokens: 9}, workflow: {on_member_error: CONTINUE_PARTIAL, steps: [{id: a, agent: a}]}}",
		},
		"a question as a step":         {"{workflow: {steps: [a, {ask: 'Send this?'}]}}", "{workflow: {steps: [{id: a, agent: a}, {id: ask, human: {question: 'Send this?'}}]}}"},
		"a question with options":      {"{workflow: {steps: [a, {id: q, ask: 'Send this?', options: ['yes', 'no']}]}}", "{workflow: {steps: [{id: a, agent: a}, {id: q, human: {question: 'Send this?', options: ['yes', 'no']}}]}}"},
		"a question with keys":         {"{workflow: {steps: [a, {id: q, ask: {question: 'Send?', options: ['yes']}}]}}", "{workflow: {steps: [{id: a, agent: a}, {id: q, human: {question: 'Send?', options: ['yes']}}]}}"},
		"a leader beside":              {"{members: [a], coordinator: {model: m, instructions: Lead them., async: true}}", "{members: [{agent: a}], coordinator: {leader: {model: m, instructions: Lead them.}, async: true}}"},
		"instructions of a file":       {"{members: [a], coordinator: {model: m, instructions_file: lead.md}}", "{members: [{agent: a}], coordinator: {leader: {model: m, instructions: Lead them.}}}"},
		"instructions of a planner":    {"{members: [a], workflow: {plan: {model: m, instructions_file: lead.md}}}", "{members: [{agent: a}], workflow: {plan: {model: m, instructions: Lead them.}}}"},
		"an agent leads":               {"{members: [a], coordinator: {leader: lead}}", "{members: [{agent: a}], coordinator: {leader: {agent: lead}}}"},
		"an agent leads, named beside": {"{members: [a], coordinator: {agent: lead, tool_style: single}}", "{members: [{agent: a}], coordinator: {leader: {agent: lead}, tool_style: SINGLE}}"},
		"another name of the mode":     {"{members: [a], ai_employee: {leader: lead}}", "{members: [{agent: a}], coordinator: {leader: {agent: lead}}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			load := func(team string) *Config {
				c, err := Loader{Env: noEnv, Files: files}.Parse("team.yaml", []byte(shortHead+"teams: {t: "+team+"}\n"))
				if err != nil {
					t.Fatalf("%s\n%v", team, err)
				}
				return c
			}
			if diff := cmp.Diff(load(c.long).Server, load(c.short).Server, protocmp.Transform()); diff != "" {
				t.Errorf("-long +short:\n%s", diff)
			}
		})
	}
}

// TestAgentLeads: a leader that is an agent has what the agent has.
func TestAgentLeads(t *testing.T) {
	t.Parallel()
	c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(shortHead+"teams: {t: {members: [a, b], coordinator: {leader: lead}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := c.Server.GetTeams()["t"].GetCoordinator().GetLeader()
	if l.GetModel() != "m" || l.GetInstructions() != "Lead them." || l.GetSettings().GetTemperature() != 0.5 || len(l.GetTools()) != 1 || !c.Used["lead"] {
		t.Errorf("the leader is %v", l)
	}
}

// TestScriptSyntax: a script that is not YAML is explained like the file that names it.
func TestScriptSyntax(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"s.yaml": {Data: []byte("agents:\n  a:\n    - {text: hello}\n    - {tool_calls: [{name: ask_user, arguments: {question: Which?}}]}\n")}}
	const text = "version: v1\nmodels: {m: {provider: scripted, file: s.yaml}}\nagents: {a: {description: d, model: m, instructions: i}}\n"
	_, err := Loader{Env: noEnv, Files: files}.Parse("team.yaml", []byte(text))
	if err == nil || !strings.HasPrefix(err.Error(), "s.yaml:4:") || !strings.Contains(err.Error(), "put text with : ? , { or [ in it in quotes") {
		t.Error(err)
	}
}

// TestShortForms_Faults: a short form that cannot be meant is one fault, at what was written.
func TestShortForms_Faults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ team, want string }{
		"an unknown member":           {"{members: [a, bb], broadcast: {model: m}}", `9:26  team "t" has member "bb", which is not defined (known here: a, b, lead, scripted, t)`},
		"an unknown leader":           {"{members: [a], coordinator: {leader: leed}}", `9:49  team "t" has leader "leed", which is not defined (did you mean "lead"`},
		"a model as leader":           {"{members: [a], coordinator: {leader: m}}", `9:49  team "t" has leader "m", which is not defined ("m" is a model: write coordinator: {model: m})`},
		"a leader that is a member":   {"{members: [a, lead], coordinator: {leader: lead}}", `9:26  "lead" leads the team, and cannot be a member of it too (remove it from members)`},
		"a leader twice":              {"{members: [a], coordinator: {leader: lead, model: m}}", `9:49  a leader that is an agent has the model, instructions, tools and skills of that agent (remove them here, or remove agent)`},
		"a leader without a model":    {"{members: [a], coordinator: {leader: scripted}}", `9:49  "scripted" cannot lead a team, because it has no model (name an agent with a model, or write coordinator: `},
		"a word that is none":         {"{members: [a], limits: {on_limit: maybe, max_tokens: 9}, broadcast: {model: m}}", `9:46  unknown value "maybe" (known here: ask, fail, finalize)`},
		"a word that is nearly right": {"{members: [a], limits: {on_limit: Assk, max_tokens: 9}, broadcast: {model: m}}", `9:46  unknown value "Assk" (did you mean "ask"?)`},
		"two forms of instructions":   {"{members: [a], coordinator: {model: m, instructions: x, instructions_file: y}}", `key "instructions" is set twice`},
		"a file that is not there":    {"{members: [a], coordinator: {model: m, instructions_file: nope.md}}", `9:70  team "t" needs ${file:nope.md}, which cannot be read (create the file, or correct the path; it is relative to this file)`},
		"a number as member":          {"{members: [7], broadcast: {model: m}}", `9:23  expected keys and values, got a number`},
		"a question with an agent":    {"{workflow: {steps: [{agent: a, ask: 'Send?'}]}}", `9:32  a step needs exactly one of agent, human and parallel`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Loader{Env: noEnv, Files: fstest.MapFS{}}.Parse("team.yaml", []byte(shortHead+"teams: {t: "+c.team+"}\n"))
			if err == nil || strings.Count(err.Error(), "team.yaml:") != 1 {
				t.Fatalf("want one fault, got %v", err)
			}
			if got := faultsOf(t, shortHead+"teams: {t: "+c.team+"}\n"); !strings.Contains(got[0].String(), c.want) {
				t.Errorf("want %s\ngot  %s", c.want, got[0])
			}
		})
	}
}
