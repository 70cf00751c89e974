// Package asking has a configuration file for tests of runs that wait while the file changes.
package asking

import "strings"

// Key is the value that tests give the variable KEY of the file.
const Key = "sk-0123456789-secret"

// text is a team in a team whose member asks a question, and then says which version of the file it belongs to.
const text = `version: v1
models: {real: {provider: openai, name: n, api_key: "${KEY}", base_url: "http://127.0.0.1:1/v1"}}
agents:
  echo: {scripted: {steps: [{echo: true}]}}
  curious: {scripted: {steps: [{ask: "Which colour?"}, {text: "OLD says {{answer}}"}]}}
  critic: {model: real, instructions: Score.}
  near: {grpc: {address: "127.0.0.1:1", auth: {bearer: "${KEY}"}}}
teams:
  desk:
    members: [{agent: curious}, {agent: critic}, {agent: near}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [curious]}, {id: end, when: "true", finish: curious}]}
  company: {workflow: {steps: [{id: a, agent: desk, task: "{{input}}"}, {id: b, agent: echo, after: [a], task: "OLD got: {{steps.a.text}}"}]}}
`

// Renewed are changes that every run of the team would notice.
var Renewed = []string{`{ask: "Which colour?"}, `, "", "OLD says {{answer}}", "NEW says no more", "OLD got", "NEW got"}

// File returns the file with changes, in pairs of old and new text.
func File(changes ...string) string { return strings.NewReplacer(changes...).Replace(text) }
