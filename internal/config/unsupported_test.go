package config

import (
	"strings"
	"testing"
)

// TestNotBuiltYetIsRefused has a file with each thing that has its place in the
// format and is not built: it is refused at its place, never ignored.
func TestNotBuiltYetIsRefused(t *testing.T) {
	const base = `version: v1
models: {m: {MODEL}}
agents: {a: {scripted: {steps: [{echo: true}]}}, b: {AGENT}}
teams:
  s:
    members: [{agent: a}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [a]}, {id: end, when: "true", finish: a}]}
    limits: {LIMITS}
  w: {workflow: {steps: [{id: x, agent: a}, {id: y, agent: a, after: [x]}, {id: h, after: [y], human: {question: Sure}}]}}
server: {SERVER}
`
	good := map[string]string{
		"{MODEL}": `{provider: openai, name: n, base_url: "http://127.0.0.1/v1"}`, "{AGENT}": "{model: m}",
		"{LIMITS}": "{max_steps: 5}", "{SERVER}": "{store: 'memory:'}",
	}
	file := func(changed map[string]string) string {
		text := base
		for at, value := range good {
			if v, ok := changed[at]; ok {
				value = v
			}
			text = strings.ReplaceAll(text, at, value)
		}
		return text
	}
	if fs := faultsOf(t, file(nil)); len(fs) > 0 {
		t.Fatalf("the file is not good to begin with: %v", fs)
	}
	for at, values := range map[string][]string{
		"{SERVER}": {`{auth: {oidc: {issuer: "https://id.example"}}}`},
	} {
		for _, value := range values {
			fs := faultsOf(t, file(map[string]string{at: value}))
			if len(fs) != 1 || !strings.Contains(fs[0].Message, "not supported yet") ||
				fs[0].Line == 0 || fs[0].Hint == "" {
				t.Errorf("%s: %v", value, fs)
			}
		}
	}
}
