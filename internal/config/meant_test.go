package config

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config/warnings"
)

// TestWhatPeopleWrite: what people write by mistake, or as in other systems, is one fault with the right place and the
// next step, and shows the words as they are written.
func TestWhatPeopleWrite(t *testing.T) {
	const models = "version: v1\nmodels: {m: {provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1', api_key: hushhush}}\n"
	const agents = "agents: {a: {description: d, model: m, instructions: i}, b: {description: e, model: m, instructions: i}}\n"
	agent := func(keys string) string { return models + "agents: {a: {description: d, model: m, " + keys + "}}\n" }
	team := func(keys string) string { return models + agents + "teams: {t: {" + keys + "}}\n" }
	for name, c := range map[string]struct{ text, want string }{
		"system_prompt":             {agent("system_prompt: Be brief."), `team.yaml:3:40  unknown key "system_prompt" (did you mean "instructions"?)`},
		"systemPrompt":              {agent("systemPrompt: Be brief."), `team.yaml:3:40  unknown key "systemPrompt" (did you mean "instructions"?)`},
		"temperature":               {agent("temperature: 0.2"), `team.yaml:3:40  unknown key "temperature" (write settings: {temperature: VALUE})`},
		"mcpServers":                {models + agents + "mcpServers: {x: {command: npx}}\n", `team.yaml:4:1  unknown key "mcpServers" (write tools: {NAME: `},
		"mode":                      {team("mode: supervisor, members: [{agent: a}]"), `team.yaml:4:13  unknown key "mode" (remove it: the mode is the key supervisor, `},
		"args":                      {models + agents + "tools: {x: {mcp: {command: [npx], args: [-y, x]}}}\n", `team.yaml:4:35  unknown key "args" (write the arguments after the program: command: [PROGRAM, ARGUMENT])`},
		"a model by its name":       {"version: v1\nagents: {a: {model: gpt-4o, instructions: i}}\n", `team.yaml:2:21  agent "a" uses model "gpt-4o", which is not defined (no models are defined; `},
		"claude":                    {"version: v1\nmodels: {m: {provider: claude, name: n}}\nagents: {a: {model: m, instructions: i}}\n", `team.yaml:2:24  provider "claude" is unknown (write provider: anthropic)`},
		"groq without a key":        {"version: v1\nmodels: {m: {provider: groq, name: n}}\nagents: {a: {model: m, instructions: i}}\n", `team.yaml:2:24  agent "a" needs GROQ_API_KEY, which is not set (set it, or use a model without a key: one at a base_url of your own, or one with provider: scripted)`},
		"azure without its address": {"version: v1\nmodels: {m: {provider: azure, name: n, api_key: hushhush}}\nagents: {a: {model: m, instructions: i}}\n", `team.yaml:2:24  a model of azure needs the address of your endpoint (add base_url: https://RESOURCE.openai.azure.com/openai/v1)`},
		"model of a model":          {"version: v1\nmodels: {g: {provider: openai, model: gpt-4o, api_key: hushhush}}\nagents: {a: {model: g, instructions: i}}\n", `team.yaml:2:32  unknown key "model" (did you mean "name"?)`},
		"a command as a text":       {models + agents + "tools: {x: {mcp: {command: 'npx -y x'}}}\n", `team.yaml:4:28  expected a list, got text (write command: [npx, -y, x])`},
		"a key as it is":            {models + agents + "server: {auth: {api_keys: [{name: ann, key: sesame}]}}\n", `team.yaml:4:40  unknown key "key" (keys are stored as SHA-256: write sha256: `},
		"one equals sign":           {team("members: [{agent: a}], supervisor: {rules: [{id: x, when: 'turn = 1', finish: a}]}"), `team.yaml:4:77  rule "x": = is not an operator (write == for equal)`},
		"typographic quotes":        {team("members: [{agent: a}], supervisor: {rules: [{id: x, when: 'a.text == “yes”', finish: a}]}"), `team.yaml:4:82  rule "x": “ and ” are not quotes here`},
		"and in words":              {team("members: [{agent: a}], supervisor: {rules: [{id: x, when: 'turn == 1 and true', finish: a}]}"), `team.yaml:4:82  rule "x": and is not an operator (write && for and)`},
		"an indented dash":          {models + agents + "teams:\n  t:\n    workflow:\n      steps:\n      - a\n       - b\n", `team.yaml:9:8  this entry is indented more than the one above (indent its dash like `},
		"agents as a list":          {models + "agents:\n  - {id: a, model: m, instructions: i}\n", `team.yaml:4:3  expected keys and values, got a list (write a name before each, without a dash: agents: {NAME: {...}})`},
		"a model as a text":         {"version: v1\nmodels: {m: gpt-5-mini}\n", `team.yaml:2:13  expected keys and values, got text (write {provider: openai, name: MODEL})`},
		"a variable without braces": {"version: v1\nmodels: {m: {provider: openai, name: n, api_key: $OPENAI_API_KEY}}\nagents: {a: {model: m, instructions: i}}\n", `team.yaml:2:50  this is the name of a variable, not its value (write ${NAME})`},
		"a variable by its name":    {"version: v1\nmodels: {m: {provider: openai, name: n, api_key: OPENAI_API_KEY}}\nagents: {a: {model: m, instructions: i}}\n", `team.yaml:2:50  this is the name of a variable, not its value (write ${NAME})`},
		"an amount with its unit":   {team("members: [a], broadcast: {model: m}, limits: {max_tokens: 5 USD}"), `team.yaml:4:71  expected a number (write 5)`},
		"minutes in words":          {team("members: [a], broadcast: {model: m}, limits: {timeout: 5 min}"), `team.yaml:4:68  expected a duration (write 5m)`},
		"a time of days":            {team("members: [a], broadcast: {model: m}, limits: {timeout: 2 days}"), `team.yaml:4:68  expected a duration (write 48h)`},
		"an address as a command":   {models + agents + "tools: {x: {mcp: {command: 'http://127.0.0.1:1/mcp'}}}\n", `team.yaml:4:28  expected a list, got text (write url: URL in place of command)`},
		"a url beside mcp":          {models + agents + "tools: {x: {url: 'http://127.0.0.1:1/mcp'}}\n", `team.yaml:4:13  unknown key "url" (write mcp: {url: VALUE})`},
		"a listener":                {models + agents + "server: {listen: 8080}\n", `team.yaml:4:10  unknown key "listen" (write http: HOST:PORT, for example 127.0.0.1:8080)`},
		"limits of all":             {models + agents + "limits: {timeout: 5m}\n", `team.yaml:4:1  unknown key "limits" (write limits: {...} in a team or an agent)`},
		"a built-in tool":           {agent("instructions: i, tools: [ask-user]"), `team.yaml:3:65  agent "a" uses tool "ask-user", which is not defined (did you mean "ask_user"?)`},
		"iterations":                {team("members: [a], loop: {max_iterations: 3}"), `team.yaml:4:34  unknown key "max_iterations" (did you mean "max_rounds"?)`},
		"two modes":                 {team("members: [a], broadcast: {model: m}, route: {model: m}"), `team.yaml:4:12  a team needs exactly one of supervisor, workflow, coordinator, swarm, route, broadcast, loop and program (keep one of them)`},
		"no mode":                   {team("members: [a]"), `team.yaml:4:12  a team needs exactly one of supervisor, workflow, coordinator, swarm, route, broadcast, loop and program (add one, for example coordinator: {model: NAME})`},
		"a reference around braces": {team("workflow: {steps: [{agent: a, task: '${{ input }}'}]}"), `team.yaml:4:49  ${{ input } is not a valid reference (write {{NAME}} without $ for a value of the run)`},
		"inputs as a list":          {team("inputs: [x], workflow: {steps: [{agent: a, task: '{{inputs.x}}'}]}"), `team.yaml:4:21  expected keys and values, got a list (write a name before each, without a dash: inputs: {NAME: {...}})`},
		"the name of an input":      {team("inputs: {x-y: string}, workflow: {steps: [{agent: a, task: '{{inputs.x-y}}'}]}"), `team.yaml:4:22  "x-y" cannot be the name of an input (use 1 to 63 letters`},
		"the type of an input":      {team("inputs: {x: int}, workflow: {steps: [{agent: a, task: '{{inputs.x}}'}]}"), `team.yaml:4:25  "int" is not the type of an input (did you mean "integer"?)`},
		"a required input":          {team("inputs: {x: {type: string, required: true}}, workflow: {steps: [{agent: a, task: '{{inputs.x}}'}]}"), `team.yaml:4:40  inputs are required unless they have a default (remove it, `},
		"an output as a list":       {team("workflow: {steps: [{agent: a, output: [x]}, {agent: b, task: '{{outputs.x}}'}]}"), `team.yaml:4:51  expected keys and values, got a list (`},
		"a question mark":           {models + agents + "teams:\n  t:\n    workflow:\n      steps:\n        - {id: s, agent: a}\n        - {id: q, human: {question: ok?, options: [yes, no]}}\n", `team.yaml:9:9  expected a comma or the closing bracket (write a comma between entries, close each bracket, and put text with : ? `},
	} {
		t.Run(name, func(t *testing.T) {
			fs := faultsOf(t, c.text)
			if len(fs) != 1 || !strings.HasPrefix(fs[0].String(), c.want) || strings.Contains(fs.Error(), "sesame") || strings.Contains(fs.Error(), "hushhush") {
				t.Errorf("want %s\ngot %v", c.want, fs)
			}
		})
	}
}

// TestDoubts: what is valid and probably not meant is said.
func TestDoubts(t *testing.T) {
	const head = "version: v1\nmodels: {m: {provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1', api_key: k}}\nagents: {a: {model: m, instructions: i}, b: {description: d, model: m, instructions: i}}\n"
	for text, want := range map[string]string{
		"teams: {t: {members: [{agent: a}], supervisor: {rules: [{id: x, when: 'true', next: [a]}]}}}":                "teams.t.supervisor.rules",
		"teams: {t: {members: [{agent: a}], supervisor: {rules: [{id: x, when: 'true', finish: a}]}}}":                "",
		"teams: {t: {members: [{agent: a}], supervisor: {router: {model: m}}}}":                                       "",
		"teams: {t: {members: [{agent: b}, {agent: a}], coordinator: {leader: {model: m}}}}":                          "teams.t.members[1]",
		"teams: {t: {members: [{agent: b}, {agent: a, description: Counts.}], coordinator: {leader: {model: m}}}}":    "",
		"teams: {t: {members: [{agent: b}, {agent: a, enabled: false}], coordinator: {leader: {model: m}}}}":          "",
		"teams: {t: {members: [a, b], loop: {}}}":                                                                     "teams.t.loop",
		"teams: {t: {members: [a, b], loop: {exit_when: 'true', max_rounds: 50}}}":                                    "",
		"teams: {t: {members: [a, b], loop: {exit_when: 'true', max_rounds: 51}}}":                                    "teams.t.loop",
		"teams: {t: {members: [a, b], loop: {max_rounds: 51}, limits: {max_steps: 102}}}":                             "",
		"teams: {t: {workflow: {steps: [{agent: a, repeat: {until: 'false', max: 9}}, b]}, limits: {max_steps: 9}}}":  "teams.t.workflow.steps",
		"teams: {t: {workflow: {steps: [{agent: a, repeat: {until: 'false', max: 9}}, b]}, limits: {max_steps: 10}}}": "",
	} {
		c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(head+text+"\n"))
		if err != nil {
			t.Fatal(text, err)
		}
		got := ""
		for _, d := range warnings.Of(c.Server) {
			got += d.Path
		}
		if got != want {
			t.Errorf("%s: %v", text, warnings.Of(c.Server))
		}
	}
}

// TestUnserved: agents that are not served are said, and only in a file with teams.
func TestUnserved(t *testing.T) {
	t.Parallel()
	const agents = "version: v1\nagents:\n  a: {description: d, scripted: {steps: [{echo: true}, {call: called}]}}\n  called: {description: d, scripted: {steps: [{echo: true}]}}\n  b: {description: d, scripted: {steps: [{echo: true}]}}\n"
	for text, want := range map[string]string{
		"": "",
		"teams: {t: {members: [a], loop: {max_rounds: 2, exit_when: 'true'}}}":                                     "agents.b: it is not served, because the file has teams and none of them uses it; add it to the members of a team, name it in server.default_agent, or remove it",
		"teams: {t: {members: [a], loop: {max_rounds: 2, exit_when: 'true'}}}\nserver: {default_agent: b}":         "",
		"teams: {t: {members: [a], loop: {max_rounds: 2, exit_when: 'true'}}}\nserver: {openai: {title_model: b}}": "",
	} {
		if got := warned(t, agents+text+"\n"); got != want {
			t.Errorf("%s\nwant %s\ngot  %s", text, want, got)
		}
	}
}

// warned returns the warnings about a valid file.
func warned(t *testing.T, text string) string {
	t.Helper()
	c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(text, err)
	}
	var all []string
	for _, w := range Warnings(c) {
		all = append(all, w.Path+": "+w.Message)
	}
	return strings.Join(all, "\n")
}

// TestInsertsNothing: names in braces that insert nothing, and quotes that YAML does not know, are said; braces and quotes
// that are meant are not.
func TestInsertsNothing(t *testing.T) {
	t.Parallel()
	const head = "version: v1\nagents: {a: {description: d, scripted: {steps: [{echo: true}]}}}\n"
	const curly = "the quotes “ and ” are a part of the text, because YAML knows only ' and \"; write these, or put the text with its quotes in ' if they are meant"
	for text, want := range map[string]string{
		"task: 'About {input}.'":                             "teams.t.workflow.steps[1].task: {input} is text and inserts nothing; write {{input}}",
		"task: 'About { inputs.x }.'":                        "teams.t.workflow.steps[1].task: { inputs.x } is text and inserts nothing; write {{inputs.x}}",
		"task: 'About {x}.'":                                 "teams.t.workflow.steps[1].task: {x} is text and inserts nothing; write {{inputs.x}}",
		"task: 'About {outputs.draft}.'":                     "teams.t.workflow.steps[1].task: {outputs.draft} is text and inserts nothing; write {{outputs.draft}}",
		"task: 'About {draft} and {input}.'":                 "teams.t.workflow.steps[1].task: {draft} is text and inserts nothing; write {{outputs.draft}}",
		"task: 'About {first}.'":                             "teams.t.workflow.steps[1].task: {first} is text and inserts nothing; write {{steps.first.text}}",
		"task: 'About {steps.first.text}.'":                  "teams.t.workflow.steps[1].task: {steps.first.text} is text and inserts nothing; write {{steps.first.text}}",
		"task: 'About {{input}}, as {\"input\": {}} or {y}'": "",
		"when: \"input != '{x}'\"":                           "",
		"task: “About tides”":                                "teams.t.workflow.steps[1].task: " + curly,
		"task: “Don’t go”":                                   "teams.t.workflow.steps[1].task: " + curly,
		"task: \"“About tides”\"":                            "",
		"task: “Ebb” and “flow”":                             "",
		"task: She said “no”":                                "",
	} {
		got := warned(t, head+"teams: {t: {inputs: {x: {type: string}}, workflow: {steps: [{id: first, agent: a, task: '{{inputs.x}}', output: draft}, {id: second, agent: a, after: [first], "+text+"}, {id: third, agent: a, task: '{{outputs.draft}}'}]}}}\n")
		if got != want {
			t.Errorf("%s\nwant %s\ngot  %s", text, want, got)
		}
	}
	for text, want := range map[string]string{
		"About {{inputs.x}} {{ inputs.x }} {y} {{y}}": "",
		"About {inputs.x}":                            "agents.a.instructions: {inputs.x} is text and inserts nothing; write {{inputs.x}}",
		"About {{ x }}":                               "agents.a.instructions: {{ x }} is text and inserts nothing; write {{inputs.x}}",
		"About {x}":                                   "agents.a.instructions: {x} is text and inserts nothing; write {{inputs.x}}",
		"About {{input}}":                             "agents.a.instructions: {{input}} is text and inserts nothing; remove it: the model is given the message beside its instructions",
	} {
		got := warned(t, "version: v1\nmodels: {m: {provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1', api_key: k}}\nagents: {a: {description: d, model: m, inputs: {x: {type: string}}, instructions: '"+text+"'}}\n")
		if got != want {
			t.Errorf("%s\nwant %s\ngot  %s", text, want, got)
		}
	}
}
