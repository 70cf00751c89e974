package config

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentteams/team-server/internal/config/source"
)

const guardedText = `version: v1
models: {m: {provider: openai, name: n, base_url: "http://127.0.0.1/v1"}}
agents:
  a: {model: m, output_schema: "schemas/reply.json", guardrails: {input: [INPUT], output: [{deny: "no"}, {schema: "schemas/reply.json"}]}}
  s: {scripted: {steps: [{echo: true}]}SCRIPTED}
teams:
  t:
    workflow: {steps: [{id: x, agent: a}, {id: y, agent: s, after: [x]}]}
    guardrails: {input: [], delegation: [{name: short, max_length: 100}], result: [{require: "^ok"}]}
`

const replySchema = "{\n  \"type\": \"object\"\n}\n"

// guardedFile parses the file with an input guardrail and what the scripted agent has besides.
func guardedFile(t *testing.T, input, scripted, schema string) (*Config, source.Faults) {
	t.Helper()
	text := strings.NewReplacer("INPUT", input, "SCRIPTED", scripted).Replace(guardedText)
	c, err := Loader{Env: noEnv, Files: fstest.MapFS{"schemas/reply.json": {Data: []byte(schema)}}}.Parse("team.yaml", []byte(text))
	var fs source.Faults
	if err != nil && !errors.As(err, &fs) {
		t.Fatal(err)
	}
	return c, fs
}

func TestGuardrails(t *testing.T) {
	for name, tt := range map[string]struct{ input, scripted, schema, want string }{
		"good":                 {"{max_length: 5}", "", replySchema, ""},
		"no guardrails":        {"", "", replySchema, ""},
		"nothing in one":       {"{name: x}", "", replySchema, "team.yaml:4:75  a guardrail needs exactly one of max_length, deny, require and schema"},
		"two in one":           {`{deny: x, require: y}`, "", replySchema, "a guardrail needs exactly one of"},
		"less than nothing":    {`{max_length: -1}`, "", replySchema, "team.yaml:4:88  max_length must be more than 0"},
		"expression":           {`{deny: "a(b"}`, "", replySchema, "team.yaml:4:83  invalid regular expression: missing closing )"},
		"expression, in place": {`{deny: "abc[z-a]"}`, "", replySchema, "team.yaml:4:87  invalid regular expression: invalid character class range"},
		"look-around":          {`{require: "(?=a)"}`, "", replySchema, "without look-around"},
		"no such file":         {`{schema: "nowhere.json"}`, "", replySchema, `team.yaml:4:84  schema "nowhere.json": the file does not exist`},
		"schema":               {"", "", "{\n  \"type\": \"objekt\"\n}", "schemas/reply.json:2:11  unknown type"},
		"no JSON":              {"", "", "type: object", "schemas/reply.json:1:1  the file is not valid JSON"},
		"no model":             {"", ", guardrails: {input: [{max_length: 3}]}", replySchema, "team.yaml:5:6  guardrails and output_schema are only allowed for an agent with a model"},
		"no model, no schema":  {"", ", output_schema: schemas/reply.json", replySchema, "guardrails and output_schema are only allowed for an agent with a model"},
		"for members":          {"]}, guardrails: {delegation: [{max_length: 1}", "", replySchema, `key "guardrails" is set twice`},
	} {
		t.Run(name, func(t *testing.T) {
			c, fs := guardedFile(t, tt.input, tt.scripted, tt.schema)
			if tt.want == "" && (len(fs) > 0 || c.Schemas["schemas/reply.json"] == nil) {
				t.Error(fs)
			}
			if tt.want != "" && (len(fs) != 1 || !strings.Contains(fs[0].String(), tt.want) || fs[0].Hint == "") {
				t.Errorf("%v\nwant %s", fs, tt.want)
			}
		})
	}
	text := strings.NewReplacer("{input: [INPUT],", "{delegation: [{max_length: 1}],", "SCRIPTED", "").Replace(guardedText)
	_, err := Loader{Env: noEnv, Files: fstest.MapFS{"schemas/reply.json": {Data: []byte(replySchema)}}}.Parse("team.yaml", []byte(text))
	if err == nil || !strings.Contains(err.Error(), "delegation and result are only allowed for a team") {
		t.Error(err)
	}
}

// TestDefinition_Guardrails ties a run to its guardrails and the schemas that they name.
func TestDefinition_Guardrails(t *testing.T) {
	load := func(input, schema string) *Config {
		c, fs := guardedFile(t, input, "", schema)
		if len(fs) > 0 {
			t.Fatal(fs)
		}
		return c
	}
	c := load("{max_length: 5}", replySchema)
	d := definition(t, c, "t")
	changed := load("{max_length: 5}", `{"type": "array"}`)
	for name, other := range map[string]*Config{"another length": load("{max_length: 6}", replySchema), "another schema": changed} {
		if definition(t, other, "t").Revision == d.Revision || c.Same(other) {
			t.Errorf("%s: the definition is the same", name)
		}
	}
	restored, err := changed.Restore(d.Body)
	if err != nil {
		t.Fatal(err)
	}
	if string(restored.schemas["schemas/reply.json"]) != replySchema || restored.Schemas["schemas/reply.json"] == nil {
		t.Errorf("restored is %q", restored.schemas)
	}
	if again := definition(t, restored, "t"); again.Revision != d.Revision {
		t.Error("what is restored is another definition")
	}
	if s := definition(t, c, "s"); strings.Contains(string(s.Body), "reply.json") {
		t.Error("an agent has schemas that it does not name")
	}
}
