//go:build linux

package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentteams/team-server/tests/rig"
)

// principals call the server; each is of an account of its own.
var principals = [][2]string{{"acme", "ann"}, {"rival", "bob"}}

// definition is the file of the server: a workflow, a supervisor with rules and
// a router, a team of both, a workflow that asks people, a leader whose members
// work at the same time, and a swarm with that team in it.
const definition = `
version: v1
models:
  mind: {provider: openai, name: mind, base_url: %[2]q, api_key: none}
  router: {provider: openai, name: router, base_url: %[2]q, api_key: none}
  lead: {provider: openai, name: lead, base_url: %[2]q, api_key: none}
  first: {provider: openai, name: first, base_url: %[2]q, api_key: none}
agents:
  alpha: {description: First., grpc: {address: %[1]q, agent_id: alpha}}
  beta: {description: Second., grpc: {address: %[1]q, agent_id: beta}}
  gamma: {description: Third., a2a: {card: %[3]q}}
  thinker: {description: Thinks., model: mind, instructions: Think.}
  opener: {description: Begins., model: first, instructions: Hand over.}
teams:
  flow:
    description: Works in steps.
    workflow:
      steps:
        - {id: draft, agent: alpha, task: "draft {{input}}"}
        - id: checks
          after: [draft]
          parallel:
            - {id: law, agent: gamma, task: "law {{steps.draft.text}}"}
            - {id: cost, agent: beta, task: "cost {{steps.draft.text}}"}
            - {id: sense, agent: thinker, task: "sense {{steps.draft.text}}"}
        - {id: publish, agent: beta, after: [law, cost, sense], task: "publish {{steps.law.text}} {{steps.cost.text}} {{steps.sense.text}}"}
  desk:
    description: Is directed.
    members: [{agent: alpha, history_scope: LAST_RESULT}, {agent: beta, history_scope: LAST_RESULT}, {agent: gamma, history_scope: LAST_RESULT}]
    supervisor:
      rules: [{id: begin, when: "turn == 1", next: [alpha]}]
      router: {model: router}
  company:
    description: A team of teams.
    workflow:
      steps:
        - {id: research, agent: desk, task: "about {{input}}"}
        - {id: release, agent: flow, after: [research], task: "{{steps.research.text}}"}
  consent:
    description: Asks.
    workflow:
      steps:
        - {id: draft, agent: alpha, task: "offer {{input}}"}
        - {id: approve, after: [draft], human: {question: "Publish {{steps.draft.text}}?"}}
        - {id: publish, agent: beta, after: [draft, approve], task: "{{steps.draft.text}} {{steps.approve.text}}"}
  led:
    description: Is led.
    members: [{agent: alpha, history_scope: ISOLATED}, {agent: gamma, history_scope: ISOLATED}, {agent: beta, history_scope: ISOLATED}]
    coordinator: {leader: {model: lead}, allow_parallel: true}
  relay:
    description: Hands over.
    members: [{agent: opener}, {agent: led, history_scope: ISOLATED}, {agent: thinker, history_scope: ISOLATED}]
    swarm: {entry_member: opener}
server:
  egress: {allow: [127.0.0.0/8]}
  default_agent: flow
  auth: {api_keys: [%[4]s]}
`

// config writes the file of the server.
func (m *members) config(t testing.TB) string {
	t.Helper()
	keys := ""
	for _, p := range principals {
		keys += fmt.Sprintf("{name: %s, account: %s, sha256: %q},", p[1], p[0], rig.Key(p[0], p[1]).GetSha256())
	}
	path := filepath.Join(t.TempDir(), "team.yaml")
	text := fmt.Sprintf(definition, m.address, m.llm.URL, m.gamma.URL(), keys)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// consent is what people answer.
const consent = "yes, do"

// answers are what the teams make of an input.
var answers = map[string]func(string) string{
	"flow":    flow,
	"desk":    desk,
	"company": func(in string) string { return flow(desk("about " + in)) },
	"led":     led,
	"relay":   func(in string) string { return mind(led("relay " + in)) },
	"consent": func(in string) string { return echo("beta", echo("alpha", "offer "+in)+" "+consent) },
}

func flow(in string) string {
	d := echo("alpha", "draft "+in)
	return echo("beta", "publish "+gamma("law "+d)+" "+echo("beta", "cost "+d)+" "+mind("sense "+d))
}

func led(in string) string {
	return echo("beta", "three "+echo("alpha", "one "+in)+" "+gamma("two "+in))
}

func desk(in string) string { return gamma(echo("beta", echo("alpha", in))) }
