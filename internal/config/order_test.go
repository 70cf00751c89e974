package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	for _, s := range Plan(c.Server.GetTeams()[id]) {
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
			if _, err := workflow.New(Workflow(c.Server.GetTeams()["t"])); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestC_02_ReorderedStepsAreNamed: a file of the previous version says which of its steps
// began with the run; one that says the order itself, or that it is of this version, does not.
func TestC_02_ReorderedStepsAreNamed(t *testing.T) {
	old, err := os.ReadFile("testdata/order/old.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := parsed(t, string(old)).Reordered()
	want := []Reordered{{Line: 12, Col: 11, Team: "release", Step: "approve", After: []string{"draft"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, text := range map[string]string{
		"written for this version": strings.Replace(string(old), "version: v1", "version: v2", 1),
		"after":                    strings.Replace(string(old), "{id: approve,", "{id: approve, after: [draft],", 1),
		"parallel":                 inSteps("v1", "        - parallel: [{id: a, agent: w}, {id: b, agent: w}]\n        - {id: c, agent: w, after: [a, b]}\n"),
		"one step":                 inSteps("v1", "        [{id: a, agent: w}]"),
	} {
		if got := parsed(t, text).Reordered(); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	t.Run("each step of a group", func(t *testing.T) {
		c := parsed(t, inSteps("v1", "        - {id: a, agent: w}\n        - parallel:\n            - {id: b, agent: w}\n            - {id: c, agent: w, after: [a]}\n            - parallel: [{id: d, agent: w}]\n"))
		want := []Reordered{{Line: 10, Col: 15, Team: "t", Step: "b", After: []string{"a"}}, {Line: 12, Col: 26, Team: "t", Step: "d", After: []string{"a"}}}
		if diff := cmp.Diff(want, c.Reordered()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestC_02_OldDocumentsKeepTheirMeaning: what a store holds of the previous version runs as
// it was written, and reads so.
func TestC_02_OldDocumentsKeepTheirMeaning(t *testing.T) {
	stored, err := os.ReadFile("testdata/order/stored.yaml")
	if err != nil {
		t.Fatal(err)
	}
	now := Addition{Name: "release", Data: stored}.SideBySide()
	c, err := parsed(t, "version: v1\nagents: {w: {scripted: {steps: [{echo: true}]}}}\n").With([]Addition{{Name: "release", Data: now}})
	if err != nil {
		t.Fatalf("%v\n%s", err, now)
	}
	if got, want := planText(c, "release"), "draft approve publish<draft,approve"; got != want {
		t.Errorf("it runs %s, want %s\n%s", got, want, now)
	}
	if len(c.Reordered()) > 0 || !strings.Contains(string(now), "- parallel:\n") || !strings.Contains(string(now), `question: "Publish?"`) {
		t.Errorf("%v\n%s", c.Reordered(), now)
	}
	if again := (Addition{Name: "release", Data: now}).SideBySide(); string(again) != string(now) {
		t.Errorf("it is changed once more:\n%s", again)
	}
	for name, same := range map[string]string{
		"no workflow":   "teams: {t: {members: [{agent: w}], swarm: {entry_member: w}}}",
		"all say after": "teams: {t: {workflow: {steps: [{id: a,   agent: w}, {id: b, agent: w, after: [a]}]}}}",
		"not YAML":      "teams: [",
	} {
		if got := (Addition{Name: "t", Data: []byte(same)}).SideBySide(); string(got) != same {
			t.Errorf("%s: it became\n%s", name, got)
		}
	}
}

// TestC_02_OldDefinitionsKeepTheirMeaning: testdata/order/definition.binpb is the definition
// of old.yaml as the previous version put it on record.
func TestC_02_OldDefinitionsKeepTheirMeaning(t *testing.T) {
	body, err := os.ReadFile("testdata/order/definition.binpb")
	if err != nil {
		t.Fatal(err)
	}
	was, err := parsed(t, inSteps("v1", "        [{id: a, agent: w}]")).Restore(body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := planText(was, "release"), "draft approve publish<draft,approve"; got != want {
		t.Errorf("a run of the previous version goes on as %s, want %s", got, want)
	}
	c := parsed(t, inSteps("v1", "        [{id: a, agent: w}, {id: b, agent: w}]"))
	d := definition(t, c, "t")
	back, err := c.Restore(d.Body)
	if err != nil || planText(back, "t") != "a b<a" {
		t.Errorf("a run of this version goes on as %s: %v", planText(back, "t"), err)
	}
	if again := definition(t, back, "t"); again.Revision != d.Revision {
		t.Error("what was restored has another revision")
	}
}
