package config

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config/warnings"
)

// TestNames: names of inputs and outputs that are wrong, never set or never read are said.
func TestNames(t *testing.T) {
	t.Parallel()
	const head = "version: v1\nmodels: {m: {provider: openai, name: n, base_url: 'http://127.0.0.1:1/v1', api_key: k}}\nagents:\n  a: {description: d, model: m, instructions: i}\n" +
		"  asks: {description: d, model: m, instructions: 'Of {{inputs.draft}}.', inputs: {draft: {type: string}}}\n"
	for text, want := range map[string]string{
		"teams: {t: {inputs: {x: {type: string}}, workflow: {steps: [{agent: a, task: 'of {{inputs.y}}'}]}}}":                      `step "a": no such placeholder {{inputs.y}}`,
		"teams: {t: {inputs: {x: {type: strin}}, workflow: {steps: [a]}}}":                                                         `"strin" is not the type of an input`,
		"teams: {t: {inputs: {x: {type: string, default: 4}}, workflow: {steps: [a]}}}":                                            `input "x": the default does not fit (type): got number`,
		"teams: {t: {inputs: {x-y: {type: string}}, workflow: {steps: [a]}}}":                                                      `"x-y" cannot be the name of an input`,
		"teams: {t: {workflow: {steps: [{agent: a, when: inputs.x == 'y'}]}}}":                                                     `step "a": no such input "x"`,
		"teams: {t: {workflow: {steps: [{agent: a, task: '{{outputs.b}}'}, {id: b, agent: a, output: b}]}}}":                       `step "a": reads output "b", which no step before it has`,
		"teams: {t: {workflow: {steps: [{agent: a, output: b}, {id: c, agent: a, when: outputs.d.text == 'y'}]}}}":                 `step "c": no such output "d"`,
		"teams: {t: {workflow: {steps: [{agent: a, output: 'b c'}]}}}":                                                             `"b c" cannot be the name of an output`,
		"teams: {t: {members: [a], coordinator: {model: m, instructions: 'For {{inputs.x}}.'}}}":                                   `team "t": no such input "x"`,
		"teams: {t: {members: [a], loop: {exit_when: a.data.ok, answer: b}}}":                                                      `loop: no such member "b"`,
		"teams: {t: {members: [a], loop: {exit_when: b.data.ok}}}":                                                                 `loop: no such variable "b"`,
		"teams: {t: {members: [a], loop: {max_rounds: 0}}}":                                                                        `max_rounds of a loop must be 1 to 100`,
		"teams: {t: {members: [a], loop: {}, supervisor: {router: {model: m}}}}":                                                   `a team needs exactly one of`,
		"teams: {t: {workflow: {steps: [{agent: a, output: b}]}}}":                                                                 `warning teams.t: nothing reads the output "b"`,
		"teams: {t: {inputs: {x: {type: string}}, workflow: {steps: [{agent: a, task: Do it.}]}}}":                                 `warning teams.t.inputs.x: nothing reads it`,
		"teams: {t: {inputs: {x: {type: string}}, workflow: {steps: [a]}}}":                                                        ``, // the member is given the message itself
		"teams: {t: {workflow: {steps: [asks]}}}":                                                                                  `warning teams.t: "asks" asks for the input "draft"`,
		"teams: {t: {workflow: {steps: [{agent: a, output: draft}, asks]}}}":                                                       ``,
		"teams: {t: {members: [asks], coordinator: {model: m}}}":                                                                   ``, // its leader can give it
		"teams: {t: {members: [{agent: a, output: draft}, asks], supervisor: {rules: [{id: x, when: 'true', finish: a}]}}}":        ``,
		"teams: {t: {inputs: {x: {type: string}}, members: [a], supervisor: {rules: [{id: x, when: inputs.x == '', finish: a}]}}}": ``,
	} {
		c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(head+text+"\n"))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, w := range warnings.Of(c.Server) {
				got += "warning " + w.Path + ": " + w.Message
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "\nteam.yaml") {
			t.Errorf("%s\nwant %q\ngot  %s", text, want, got)
		}
	}
}
