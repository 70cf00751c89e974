package config_test

import (
	"slices"
	"testing"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/warnings"
)

// TestC_11_Unstaffed finds teams that cannot work since no member is enabled; none of
// that is a fault.
func TestC_11_Unstaffed(t *testing.T) {
	const file = `version: v1
models: {m: {provider: openai, name: m, base_url: "http://127.0.0.1:1"}}
agents: {a: {scripted: {steps: [{text: x}]}}, b: {scripted: {steps: [{text: x}]}}}
teams:
  all: {members: [{agent: a, enabled: false}, {agent: b, enabled: false}], broadcast: {model: m}}
  led: {members: [{agent: a, enabled: false}], coordinator: {leader: {model: m, instructions: Lead.}}}
  planned: {members: [{agent: a, enabled: false}], workflow: {plan: {model: m}}}
  people: {members: [{agent: a, enabled: false}], workflow: {steps: [{id: ask, human: {question: "?"}}]}}
  rules: {members: [{agent: a, enabled: false}], supervisor: {rules: [{id: end, when: "true", finish: a}]}}
  some: {members: [{agent: a, enabled: false}, {agent: b}], broadcast: {model: m}}
  steps: {members: [{agent: a, enabled: false}], workflow: {steps: [{id: one, agent: a}]}}
  unlisted: {members: [{agent: a, enabled: false}], workflow: {steps: [{id: one, agent: b}]}}
`
	c, err := config.Loader{}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings.Of(c.Server) {
		got = append(got, w.Path)
	}
	if want := []string{"teams.all.members", "teams.planned.members", "teams.rules.members", "teams.steps.members"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
