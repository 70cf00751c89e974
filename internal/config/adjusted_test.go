package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/config/warnings"
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
	want := []warnings.Adjustment{
		{Path: "teams.s.limits.member_timeout", Set: "2m0s", Effective: "1m0s", Because: "teams.s.limits.timeout"},
		{Path: "teams.s.members[0].member_timeout", Set: "1m30s", Effective: "1m0s", Because: "teams.s.limits.timeout"},
		{Path: "teams.w.limits.member_timeout", Set: "6m40s", Effective: "5m0s", Because: "the default of teams.w.limits.timeout"},
	}
	if diff := cmp.Diff(want, warnings.Adjusted(c.Server)); diff != "" {
		t.Error(diff)
	}
}
