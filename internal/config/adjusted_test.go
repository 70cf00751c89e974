package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestR_002_5_1_AdjustedTimes(t *testing.T) {
	const file = `version: v1
agents: {a: {scripted: {steps: [{echo: true}]}}}
teams:
  s:
    members: [{agent: a, member_timeout: 90s}, {agent: a, id: b, member_timeout: 30s}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [a]}, {id: end, when: "true", finish: a}]}
    limits: {timeout: 60s, member_timeout: 120s}
  w: {workflow: {steps: [{id: x, agent: a}]}, limits: {member_timeout: 400s}}
  good: {workflow: {steps: [{id: x, agent: a}]}, limits: {timeout: 60s, member_timeout: 60s}}
`
	c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []Adjustment{
		{"teams.s.limits.member_timeout", "2m0s", "1m0s", "teams.s.limits.timeout"},
		{"teams.s.members[0].member_timeout", "1m30s", "1m0s", "teams.s.limits.timeout"},
		{"teams.w.limits.member_timeout", "6m40s", "5m0s", "the default of teams.w.limits.timeout"},
	}
	if diff := cmp.Diff(want, c.Adjusted()); diff != "" {
		t.Error(diff)
	}
}
