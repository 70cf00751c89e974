package config_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
)

const base = `version: v1
models: {script: {provider: scripted, file: s.yaml}}
agents:
  writer: {model: script, instructions: Write.}
teams:
  desk: {members: [{agent: writer}], supervisor: {rules: [{id: end, when: "true", finish: last}]}}
`

func added(t *testing.T, additions ...config.Addition) (*config.Config, error) {
	t.Helper()
	files := fstest.MapFS{"team.yaml": {Data: []byte(base)}, "s.yaml": {Data: []byte("agents: {writer: [{text: x}]}")}, "secret.json": {Data: []byte("{}")}}
	return config.Loader{Files: files, Env: func(string) (string, bool) { return "secret", true }, Additions: additions}.Load("team.yaml")
}

// TestR_003_17_Additions: an addition has the same effect as if it were in the file.
func TestR_003_17_Additions(t *testing.T) {
	c, err := added(t,
		config.Addition{Name: "pair", Data: []byte("agents: {critic: {model: script, instructions: Judge.}}\nteams:\n  pair: {members: [{agent: writer}, {agent: critic}], workflow: {steps: [{id: a, agent: writer}, {id: b, agent: critic, after: [a]}]}}\n")},
		config.Addition{Name: "outer", Data: []byte("version: v1\nteams: {outer: {members: [{agent: pair}, {agent: desk}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}}\n")},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"desk", "pair", "outer", "writer", "critic"} {
		if !c.Used[id] {
			t.Errorf("%q is not served", id)
		}
	}
	before, err := added(t)
	if err != nil {
		t.Fatal(err)
	}
	if before.Same(c) {
		t.Error("the same with additions and without")
	}
	for _, id := range []string{"desk", "writer"} {
		one, err := before.Definition(id)
		if err != nil {
			t.Fatal(err)
		}
		if two, err := c.Definition(id); err != nil || one.Revision != two.Revision {
			t.Errorf("%q: revision %q, with additions %q: %v", id, one.Revision, two.Revision, err)
		}
	}
}

// TestC_07_CostsOfAdditions: a stored team whose cost max_cost cannot limit is served, and named.
func TestC_07_CostsOfAdditions(t *testing.T) {
	files := fstest.MapFS{"team.yaml": {Data: []byte("version: v1\nmodels: {m: {provider: openai, name: n, base_url: \"http://127.0.0.1/v1\"}}\nagents: {writer: {model: m, instructions: Write.}}\n")}}
	c, err := config.Loader{Files: files, Env: func(string) (string, bool) { return "", false }, Additions: []config.Addition{
		{Name: "pair", Data: []byte("teams:\n  pair: {members: [{agent: writer}], workflow: {steps: [{id: a, agent: writer}]}, limits: {max_cost: 1}}\n")},
	}}.Load("team.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]config.Uncounted{{Limited: "pair", Model: "m"}}, c.Uncounted()); diff != "" || !c.Used["pair"] {
		t.Error(diff)
	}
}

// TestR_003_17_FaultsOfAdditions: faults name the addition and the line in it, and reveal
// nothing of the server to callers who may only manage teams.
func TestR_003_17_FaultsOfAdditions(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"no YAML", "teams: [", `new:1:9  a value is missing before this (add it, or close the bracket that is open)`},
		{"another section", "models: {m: {provider: openai}}", `new:1:1  "models" belongs in the server's configuration file (a team document may define only agents and teams; it uses models and tools of the file by name)`},
		{"an id of the file", "agents:\n  desk: {model: script, instructions: x}", `new:2:3  "desk" already exists (choose another id; this one is defined in the server's configuration file)`},
		{"an id of another addition", "teams:\n  other: {}", `new:2:3  "other" already exists (choose another id; this one is defined in line 1 of first)`},
		{"an unknown member", "teams:\n  t:\n    members:\n    - {agent: writr}\n    supervisor: {rules: [{id: end, when: \"true\", finish: last}]}", `new:4:15  team "t" has member "writr", which is not defined (did you mean "writer" (the server's configuration file)?)`},
		{"an unknown member that is near another addition's", "teams:\n  t:\n    members:\n    - {agent: othr}\n    supervisor: {rules: [{id: end, when: \"true\", finish: last}]}", `new:4:15  team "t" has member "othr", which is not defined (did you mean "other" (line 1 of first)?)`},
		{"an unknown key", "agents:\n  a: {modle: script}", `new:2:7  unknown key "modle" (did you mean "model"?)`},
		{"a wrong type", "agents:\n  a: {model: script, instructions: x, limits: {max_turns: many}}", `new:2:59  expected a number (write it without quotes or units)`},
		{"an expression", "teams:\n  t: {members: [{agent: writer}], supervisor: {rules: [{id: end, when: \"nobody ==\", finish: last}]}}", `new:2:`},
		{"a cycle", "teams:\n  t: {members: [{agent: t}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}", `new:2:25  teams form a cycle: t -> t (new:2   break it by removing one member)`},
		{"a variable", "agents:\n  a: {model: script, instructions: \"${HOME}\"}", `new:2:36  environment variables and files of the server cannot be used here`},
		{"a file of the server", "agents:\n  a: {model: script, instructions: x, output_schema: secret.json}", `new:2:39  "output_schema" names a file, which is only allowed in the server's configuration file`},
		{"a file that is not there", "agents:\n  a: {model: script, instructions: x, output_schema: none.json}", `new:2:39  "output_schema" names a file, which is only allowed in the server's configuration file`},
		{"files of guardrails", "agents:\n  a: {model: script, instructions: x, guardrails: {output: [{schema: secret.json}]}}", `new:2:39  "guardrails" names a file, which is only allowed in the server's configuration file`},
		{"trusted keys", "agents:\n  a: {a2a: {card: \"https://h\", trusted_keys: [secret.json]}}", `new:2:32  "trusted_keys" names a file, which is only allowed in the server's configuration file`},
		{"a token", "agents:\n  a: {a2a: {card: \"https://h\", auth: {bearer: x}}}", `new:2:32  "auth" holds a secret, which is only allowed in the server's configuration file`},
		{"a key twice", "teams: {}\nteams: {}", `new:2:1  key "teams" is set twice (the first one is in line 1; remove one of them)`},
		{"a member twice", "teams:\n  t:\n    members:\n    - {agent: writer}\n    - {agent: writer}\n    supervisor: {rules: [{id: end, when: \"true\", finish: last}]}", `new:5:7  team "t" has member "writer" twice (the first one is in line 4; give one of them another id)`},
		{"no mapping", "teams: 7", `new:1:8  expected agents or teams by id, got a number`},
		{"a version", "version: v3\nteams: {}", `new:1:10  version "v3" is unknown`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := added(t,
				config.Addition{Name: "first", Data: []byte("teams: {other: {members: [{agent: writer}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}}")},
				config.Addition{Name: "new", Data: []byte(c.data)})
			faults, ok := err.(source.Faults) //nolint:errorlint // it is one
			if !ok || len(faults) == 0 {
				t.Fatalf("got %v", err)
			}
			if got := faults[0].String(); !strings.HasPrefix(got, c.want) {
				t.Error(cmp.Diff(c.want, got))
			}
			if len(faults) > 1 && c.name != "an expression" {
				t.Errorf("%d faults: %v", len(faults), faults)
			}
		})
	}
}

// TestS_37_CycleOfAdditions: a cycle is reported, with its path, for the addition that closes it.
func TestS_37_CycleOfAdditions(t *testing.T) {
	team := func(id, member string) config.Addition {
		return config.Addition{Name: id, Data: []byte("teams:\n  " + id + ": {members: [{agent: " + member + "}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}")}
	}
	for _, order := range [][]config.Addition{{team("a", "b"), team("b", "c"), team("c", "a")}, {team("c", "a"), team("b", "c"), team("a", "b")}} {
		_, err := added(t, order...)
		faults, ok := err.(source.Faults) //nolint:errorlint // it is one
		last := order[2].Name
		if !ok || len(faults) != 1 || faults[0].File != last || !strings.HasPrefix(faults[0].Message, "teams form a cycle: "+last+" -> ") {
			t.Errorf("%s is last: %v", last, err)
		}
	}
}

// TestR_003_17_Split: each team takes along the agents that it works with.
func TestR_003_17_Split(t *testing.T) {
	parts, err := config.Addition{Name: "file", Data: []byte(`version: v1
agents:
  one: {model: script, instructions: x}
  both: {model: script, instructions: x}
  two: {model: script, instructions: x} # the second
teams:
  outer: {members: [{agent: inner}, {agent: two}, {agent: both}], swarm: {entry: two}}
  inner: {members: [{agent: one}, {agent: both}], swarm: {entry: one}}
`)}.Split()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, p.Name, string(p.Data))
	}
	want := []string{"inner", `agents:
  one: {model: script, instructions: x}
  both: {model: script, instructions: x}
teams:
  inner: {members: [{agent: one}, {agent: both}], swarm: {entry: one}}
`, "outer", `agents:
  two: {model: script, instructions: x} # the second
teams:
  outer: {members: [{agent: inner}, {agent: two}, {agent: both}], swarm: {entry: two}}
`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestR_003_17_AddedAreServed: added agents are served even if no team uses them, and so are
// the agents of a file without teams.
func TestR_003_17_AddedAreServed(t *testing.T) {
	file, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {a: {scripted: {steps: [{text: x}]}}}"))
	if err != nil {
		t.Fatal(err)
	}
	both := []config.Addition{
		{Name: "b", Data: []byte("agents: {b: {scripted: {steps: [{text: x}]}}}")},
		{Name: "t", Data: []byte("teams: {t: {members: [{agent: b}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}}")},
	}
	c, err := file.With(t.Context(), both)
	if err != nil {
		t.Fatal(err)
	}
	first, err := file.With(t.Context(), both[:1])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Config{c, file.Beside(map[string]*config.Config{"b": first, "t": c})} {
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true, "t": true}, c.Used); diff != "" {
			t.Error(diff)
		}
		if c.Addition("a") != "" || c.Addition("b") != "b" || c.Addition("t") != "t" {
			t.Error(c.Addition("a"), c.Addition("b"), c.Addition("t"))
		}
	}
}
