package build

import (
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestR_002_07_Memory: what a file says of memory; without a word, agents with a
// model and teams remember.
func TestR_002_07_Memory(t *testing.T) {
	m := registered(t, load(t, `version: v1
models: {m: {provider: openai, name: n, base_url: "http://127.0.0.1:1/v1", api_key: k}}
agents:
  remembers: {model: m}
  also: {model: m, memory: true}
  forgets: {model: m, memory: false}
  script: {scripted: {steps: [{echo: true}]}}
teams:
  desk:
    members: [{agent: remembers}, {agent: also}, {agent: forgets}, {agent: script}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [script]}, {id: end, when: "true", finish: script}]}
  blank:
    memory: false
    workflow: {steps: [{id: x, agent: script}]}
`))
	for id, want := range map[string]bool{"remembers": true, "also": true, "forgets": false, "script": false, "desk": true, "blank": false} {
		a, err := m.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := a.(agent.Rememberer)
		if got := ok && r.Remembers(); got != want {
			t.Errorf("R-002-07 %s remembers: %v, want %v", id, got, want)
		}
	}
}
