package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/config/warnings"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

// TestUnheld: steps that ask roles which no key has are found, where there are keys.
func TestUnheld(t *testing.T) {
	const teams = `version: v1
models: {m: {provider: openai, name: m, api_key: k}}
tools: {bank: {mcp: {url: "http://127.0.0.1:1", elicit: {roles: [legal]}}, approve: {roles: [legal]}}}
agents:
  a: {scripted: {steps: [{text: x}]}}
  b: {model: m, tools: [bank], limits: {max_tokens: 9, on_limit: ASK, ask_roles: [legal]}}
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
  u: {members: [{agent: a}], workflow: {plan: {model: m, approve: {roles: [legal]}}}}
`
	key := `server: {auth: {api_keys: [{name: bob, sha256: "` + strings.Repeat("0", 64) + `", roles: [editor]}]}}` + "\n"
	tokens := strings.Replace(key, "api_keys:", "jwt: [{name: corp, issuer: \"https://id.example\", audiences: [team], claims: {roles: roles}}], api_keys:", 1)
	tls := `server: {tls: {cert: c, key: k, client_ca: ca, client: OPTIONAL}, auth: {mtls: [{san: ann.example, name: ann, roles: [legal]}], `
	certificates := strings.Replace(key, "server: {auth: {", tls, 1)
	dir := t.TempDir()
	cert, private := testcerts.New(t, "ca").Issue(time.Now().Add(time.Hour), "team.example")
	testcerts.Write(t, dir, "c", cert)
	testcerts.Write(t, dir, "k", private)
	testcerts.Write(t, dir, "ca", cert)
	for file, want := range map[string][]string{teams: nil, teams + tokens: nil, teams + certificates: nil, teams + key: {"tools.bank.approve.roles", "tools.bank.mcp.elicit.roles", "agents.b.limits.ask_roles", "teams.t.limits.ask_roles", "teams.t.members[0].approve.roles", "teams.t.workflow.steps[3].human.roles", "teams.u.workflow.plan.approve.roles"}} {
		c, err := config.Loader{}.Parse(filepath.Join(dir, "team.yaml"), []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		if got := warnings.Unheld(c.Server); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestApproveTool: what a condition may read otherwise than the tool needs approval.
func TestApproveTool(t *testing.T) {
	approve := modes.ApproveTool(&teamv1.ApproveTools{Tools: []string{"pay_*"}, When: "has(arguments.amount) && arguments.amount > 100"})
	for arguments, want := range map[string]bool{
		`{"amount":100}`: false, `{"amount":101}`: true, `{}`: false, `{"x":{"a":1},"y":{"a":2},"z":["a","a"]}`: false,
		`{"amount":100000,"amount":1}`: true, `{"amount":1,"Amount":100000}`: true, `{"sum":1,"\u017fum":100000}`: true, `{"x":[{"a":1,"A":2}]}`: true,
		`[1]`: true, `"x"`: true, `null`: true, `{"amount":"many"}`: true, `{"a":"a","b":"a"}`: false,
	} {
		if got := approve("pay_out", []byte(arguments)) != nil; got != want {
			t.Errorf("%s needs approval: %v, want %v", arguments, got, want)
		}
	}
	if approve("balance", []byte(`{"amount":101}`)) != nil {
		t.Error("another tool needs approval")
	}
}
