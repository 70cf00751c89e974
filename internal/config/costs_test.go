package config

import "testing"

// TestC_07_CostsOfInheritedModels: an agent without a model uses that of its leader, whose price its
// own max_cost needs.
func TestC_07_CostsOfInheritedModels(t *testing.T) {
	fs := faultsOf(t, `version: v1
models: {m: {provider: openai, name: n, base_url: "http://127.0.0.1/v1"}}
agents: {b: {instructions: Write., limits: {max_cost: 1}}}
teams:
  s:
    members: [{agent: b}]
    coordinator: {leader: {model: m, instructions: Lead.}}
`)
	if len(fs) != 1 || fs[0].Line != 2 || fs[0].Message != `model "m" has no price, and max_cost of "b" limits it` {
		t.Errorf("got %v", fs)
	}
}
