package examples

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/agentteams/team-server/api"
)

// TestSchema: editors find nothing wrong with the examples and with what the configuration's description shows, short
// forms among it, and find what is wrong.
func TestSchema(t *testing.T) {
	t.Parallel()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.TeamSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("team.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("team.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			return err
		}
		return schema.Validate(v)
	}
	files, err := filepath.Glob("*/team.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, full, _ := strings.Cut(string(page), "```yaml full.yaml\n")
	full, _, _ = strings.Cut(full, "```")
	if err := check([]byte(full)); err != nil {
		t.Errorf("full.yaml: %v", err)
	}
	const short = "{version: v1, agents: {a: {a2a: 'https://x.example/card', card: private}}, teams: {t: {members: [a], coordinator: {model: m, instructions_file: i.md, on_limit: finalize}}, " +
		"u: {members: [a], team_lead: {leader: a}}, v: {workflow: {steps: [a, {ask: 'Really?', options: ['yes']}, {parallel: [a]}]}}}}"
	if err := check([]byte(short)); err != nil {
		t.Errorf("short forms: %v", err)
	}
	for _, bad := range []string{"{version: v1, teams: {t: {member: [a]}}}", "{version: v1, teams: {t: {members: [7]}}}", "{version: v1, teams: {t: {limits: {on_limit: maybe}}}}"} {
		if check([]byte(bad)) == nil {
			t.Errorf("nothing is wrong with %s", bad)
		}
	}
}
