package config

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// inSteps is a file with a workflow of these steps.
func inSteps(version, steps string) string {
	return "version: " + version + "\nagents:\n  w: {scripted: {steps: [{echo: true}]}}\n" +
		"teams:\n  t:\n    workflow:\n      steps:\n" + steps
}

// planText is which step follows which.
func planText(c *Config, id string) string {
	var all []string
	for _, s := range modes.Plan(c.Server.GetTeams()[id]) {
		all = append(all, strings.TrimRight(s.ID+"<"+strings.Join(s.After, ","), "<"))
	}
	return strings.Join(all, " ")
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Loader{Env: noEnv}.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// TestC_02_S_18_StepsRunInTheOrderOfTheFile: a step without after follows the steps above it
// that no other step above it follows.
func TestC_02_S_18_StepsRunInTheOrderOfTheFile(t *testing.T) {
	for _, tt := range []struct{ name, steps, want string }{
		{"a plain list", "[{id: a, agent: w}, {id: b, agent: w}, {id: c, agent: w}]", "a b<a c<b"},
		{"a group, and what stands behind it", "[{id: a, agent: w}, {parallel: [{id: b, agent: w}, {id: c, agent: w}]}, {id: d, agent: w}]", "a b<a c<a d<b,c"},
		{"a group first", "[{parallel: [{id: a, agent: w}, {id: b, agent: w}]}, {id: c, agent: w}]", "a b c<a,b"},
		{"after is taken at its word", "[{id: a, agent: w}, {id: b, agent: w}, {id: c, agent: w, after: [a]}, {id: d, agent: w}]", "a b<a c<a d<b,c"},
		{"a group's own after", "[{id: a, agent: w}, {id: b, agent: w}, {id: g, after: [a], parallel: [{id: c, agent: w}, {id: d, agent: w}]}, {id: e, agent: w}]", "a b<a c<a d<a e<b,c,d"},
		{"after names a group", "[{id: g, parallel: [{id: a, agent: w}, {id: b, agent: w}]}, {id: c, agent: w, after: [g]}]", "a b c<a,b"},
		{"a step of a group with after of its own", "[{id: a, agent: w}, {id: b, agent: w}, {parallel: [{id: c, agent: w}, {id: d, agent: w, after: [c]}, {id: e, agent: w, after: [a]}]}, {id: f, agent: w}]", "a b<a c<b d<c e<a f<d,e"},
		{"a group in a group", "[{id: a, agent: w}, {parallel: [{id: b, agent: w}, {parallel: [{id: c, agent: w}, {id: d, agent: w}]}]}, {id: e, agent: w}]", "a b<a c<a d<a e<b,c,d"},
		{"what waits for a step does not come before it", "[{id: b, agent: w, after: [c]}, {id: a, agent: w}, {id: c, agent: w}]", "b<c a<b c"},
		{"a join of a group above", "[{parallel: [{id: a, agent: w}, {id: b, agent: w}]}, {id: c, agent: w, join: ANY}]", "a b c<a,b"},
		{"the whole list side by side", "[{parallel: [{id: a, agent: w}, {id: b, agent: w, after: [a]}, {id: c, agent: w}]}]", "a b<a c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parsed(t, inSteps("v1", "        "+tt.steps))
			if got := planText(c, "t"); got != tt.want {
				t.Errorf("it runs %s, want %s", got, tt.want)
			}
			if _, err := workflow.New(modes.Workflow(c.Server.GetTeams()["t"])); err != nil {
				t.Error(err)
			}
		})
	}
}
