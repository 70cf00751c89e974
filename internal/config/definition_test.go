package config

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// company has agents of every kind, nested, and secrets in all places that
// there are for them.
const company = `version: v1
models:
  script: {provider: scripted, file: s.yaml}
  real: {provider: openai, name: n, api_key: "${KEY}", base_url: "http://gateway-secret.example/v1", price: {input: 1, output: 2}}
agents:
  writer: {model: script, instructions: "${TONE:-Write.}"}
  critic: {model: real}
  near: {grpc: {address: "near-secret.example:1", agent_id: x, tls: {}, auth: {bearer: "${KEY}"}}}
  far: {a2a: {card: "http://far-secret.example/card.json", auth: {bearer: "${KEY}"}}}
  other: {scripted: {steps: [{text: other}]}}
teams:
  desk:
    members: [{agent: writer}, {agent: critic}, {agent: near}]
    supervisor: {rules: [{id: all, when: "turn == 1", next: [writer]}, {id: end, when: "true", finish: writer}]}
  company: {workflow: {steps: [{id: a, agent: desk}, {id: b, agent: far, after: [a]}]}}
  side: {workflow: {steps: [{id: a, agent: other}]}}
`

const key = "sk-very-secret"

// defined parses a file with a script and a key.
func defined(t *testing.T, text, script string, vars ...string) *Config {
	t.Helper()
	values := map[string]string{"KEY": key}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	l := Loader{Env: env(values), Files: fstest.MapFS{"s.yaml": {Data: []byte(script)}}}
	c, err := l.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func definition(t *testing.T, c *Config, id string) Definition {
	t.Helper()
	d, err := c.Definition(id)
	if err != nil {
		t.Fatal(err)
	}
	if d.Revision != Revision(d.Body) || len(d.Revision) != 32 {
		t.Errorf("revision %s is not that of the content, %s", d.Revision, Revision(d.Body))
	}
	return d
}

const script = "agents: {writer: [{text: one}]}\n"

func TestDefinition(t *testing.T) {
	c := defined(t, company, script)
	d := definition(t, c, "company")
	if got := strings.Join(d.IDs, " "); got != "critic far near writer company desk" {
		t.Errorf("it is built from %s", got)
	}
	for _, secret := range []string{key, "-secret"} {
		if bytes.Contains(d.Body, []byte(secret)) {
			t.Errorf("%s is in the definition", secret)
		}
	}
	for name, want := range map[string]struct {
		text, script string
		vars         []string
		changes      bool
	}{
		"the same":               {company, script, nil, false},
		"another key":            {company, script, []string{"KEY=other"}, false},
		"another address":        {strings.ReplaceAll(company, "-secret", "-moved"), script, nil, false},
		"what it does not use":   {strings.Replace(company, "text: other", "text: changed", 1), script, nil, false},
		"how it is served":       {company + "server: {default_agent: desk}\n", script, nil, false},
		"an agent two levels in": {strings.Replace(company, "model: real}", "model: real, instructions: Be strict.}", 1), script, nil, true},
		"a variable in a text":   {company, script, []string{"TONE=Sing."}, true},
		"the script":             {company, strings.Replace(script, "one", "two", 1), nil, true},
		"a rule":                 {strings.Replace(company, "turn == 1", "turn < 2", 1), script, nil, true},
	} {
		got := definition(t, defined(t, want.text, want.script, want.vars...), "company")
		if changed := got.Revision != d.Revision; changed != want.changes {
			t.Errorf("%s: the revision changed: %v", name, changed)
		}
	}
}

func TestRestore(t *testing.T) {
	old := defined(t, company, script)
	d := definition(t, old, "company")
	copyAt := strings.NewReplacer("-secret", "-moved", "Write.}", "Changed.}", "turn == 1", "turn < 2", "provider: scripted, file: s.yaml", `provider: openai, name: x, base_url: "http://x.example/v1"`).Replace(company)
	got, err := defined(t, copyAt, script, "KEY=fresh").Restore(d.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := defined(t, strings.ReplaceAll(company, "-secret", "-moved"), script, "KEY=fresh")
	for id := range got.Used {
		if diff := cmp.Diff(want.Server.GetAgents()[id], got.Server.GetAgents()[id], protocmp.Transform()); diff != "" {
			t.Errorf("agent %s: %s", id, diff)
		}
		if diff := cmp.Diff(want.Server.GetTeams()[id], got.Server.GetTeams()[id], protocmp.Transform()); diff != "" {
			t.Errorf("team %s: %s", id, diff)
		}
	}
	if diff := cmp.Diff(want.Server.GetModels()["real"], got.Server.GetModels()["real"], protocmp.Transform()); diff != "" {
		t.Errorf("model: %s", diff)
	}
	if len(got.Used) != 6 || got.Scripts["script"] == nil {
		t.Errorf("restored are %v and scripts %v", got.Used, got.Scripts)
	}
	if again := definition(t, got, "company"); again.Revision != d.Revision {
		t.Error("what is restored is another definition")
	}
}

func TestRestoreSaysWhatIsGone(t *testing.T) {
	d := definition(t, defined(t, company, script), "company")
	const bare = "version: v1\nagents: {other: {scripted: {steps: [{text: other}]}}}\n"
	for name, want := range map[string]struct{ text, says string }{
		"everything": {bare, `agent "far" is no longer configured; agent "near" is no longer configured; model "real" of provider openai is no longer configured`},
		"another kind": {
			strings.NewReplacer(`{grpc: {address: "near-secret.example:1", agent_id: x, tls: {}, auth: {bearer: "${KEY}"}}}`, "{scripted: {steps: [{echo: true}]}}").Replace(company),
			`agent "near" is no longer configured`,
		},
		"a key that nothing uses": {
			strings.NewReplacer("${KEY}", "${GONE}").Replace(company[:strings.Index(company, "teams:")]) +
				"teams: {side: {workflow: {steps: [{id: a, agent: other}]}}}\n",
			`agent "far" needs GONE, which is not set; agent "near" needs GONE, which is not set; model "real" needs GONE, which is not set`,
		},
		"the model's address": {
			strings.Replace(company[:strings.Index(company, "teams:")], `api_key: "${KEY}", base_url: "http://gateway-secret.example/v1", `, "", 1) +
				"teams: {side: {workflow: {steps: [{id: a, agent: other}]}}}\n",
			`model "real" needs OPENAI_API_KEY, which is not set`,
		},
	} {
		_, err := defined(t, want.text, script).Restore(d.Body)
		if err == nil || err.Error() != want.says {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := defined(t, company, script).Restore([]byte{0xff}); err == nil {
		t.Error("bytes that are no definition are restored")
	}
}
