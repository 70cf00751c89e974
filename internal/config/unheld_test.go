package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config"
)

// TestUnheld: steps that ask roles which no key has are found, where there are keys.
func TestUnheld(t *testing.T) {
	const teams = `version: v1
agents: {a: {scripted: {steps: [{text: x}]}}}
teams:
  t:
    members: [{agent: a, approve: {roles: [legal]}}]
    workflow:
      steps:
        - {id: draft, agent: a}
        - {id: all, after: [draft], human: {question: "?"}}
        - {id: some, after: [draft], human: {question: "?", roles: [legal, editor]}}
        - {id: none, after: [draft], human: {question: "?", roles: [legal]}}
    limits: {max_tokens: 9, on_limit: ASK, ask_roles: [legal]}
`
	key := `server: {auth: {api_keys: [{name: bob, sha256: "` + strings.Repeat("0", 64) + `", roles: [editor]}]}}` + "\n"
	for file, want := range map[string][]string{teams: nil, teams + key: {"teams.t.limits.ask_roles", "teams.t.members[0].approve.roles", "teams.t.workflow.steps[3].human.roles"}} {
		c, err := config.Loader{}.Parse("team.yaml", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Unheld(); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
