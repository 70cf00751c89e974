package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentteams/team-server/internal/config"
)

const secretsFile = `version: v1
models: {m: {provider: openai, name: n, api_key: "${file:model}"}}
tools:
  web: {mcp: {url: "http://127.0.0.1:1/mcp", bearer: canary-mcp}}
  run: {mcp: {command: [x], env: {A: canary-env-a, B: "${B}"}}}
agents:
  a: {description: d, model: m, instructions: i, tools: [web, run]}
  far: {description: d, a2a: {card: "http://127.0.0.1:1/c", auth: {bearer: canary-a2a}}}
  near: {description: d, grpc: {address: "127.0.0.1:1", auth: {bearer: canary-grpc}}}
teams:
  desk: {members: [{agent: a}, {agent: far}, {agent: near}], broadcast: {model: m}}
server:
  store: postgres://ann:canary-store@127.0.0.1/db
  store_listen: postgres://ann:canary-listen@127.0.0.1/db
  encryption: {keys: [{id: one, value: "${file:key}"}]}
`

// loadSecrets loads secretsFile, with the key of the model.
func loadSecrets(t *testing.T, model string) *config.Config {
	t.Helper()
	c, err := config.Loader{
		Env: func(name string) (string, bool) { return map[string]string{"B": "canary-env-b"}[name], name == "B" },
		Files: fstest.MapFS{
			"team.yaml": {Data: []byte(secretsFile)}, "model": {Data: []byte(model + "\n")},
			"key": {Data: []byte("canarycanarycanarycanarycanarycanarycanaryc=\n")},
		},
	}.Load("team.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestT_42_AConfigurationPrintsNoSecret: in no format, and yet each is there.
func TestT_42_AConfigurationPrintsNoSecret(t *testing.T) {
	c := loadSecrets(t, "canary-model")
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		fmt.Fprintf(&out, verb+verb+verb, c, c.Server, c.EncryptionKeys())
	}
	b, err := json.Marshal(c.Server)
	if err != nil {
		t.Fatal(err)
	}
	if text := out.String() + string(b); strings.Contains(text, "canary") {
		t.Errorf("printed: %s", text)
	}
	s := c.Server
	for shown, want := range map[string]string{
		s.GetModels()["m"].GetApiKey():                        "canary-model",
		s.GetTools()["web"].GetMcp().GetBearer():              "canary-mcp",
		s.GetTools()["run"].GetMcp().GetEnv()["A"]:            "canary-env-a",
		s.GetTools()["run"].GetMcp().GetEnv()["B"]:            "canary-env-b",
		s.GetAgents()["far"].GetA2A().GetAuth().GetBearer():   "canary-a2a",
		s.GetAgents()["near"].GetGrpc().GetAuth().GetBearer(): "canary-grpc",
	} {
		if got := c.Secret(shown).Reveal(); got != want {
			t.Errorf("Secret(%q) = %q, want %q", shown, got, want)
		}
	}
	if c.StoreURL() != "postgres://ann:canary-store@127.0.0.1/db" || c.StoreListen().Reveal() != "postgres://ann:canary-listen@127.0.0.1/db" {
		t.Errorf("store %q, %q", c.StoreURL(), c.StoreListen().Reveal())
	}
	if b, err := c.EncryptionKeys()[0].Bytes(); err != nil || len(b) != 32 {
		t.Errorf("key of %d bytes, %v", len(b), err)
	}
	for _, shown := range []string{"", "***", "***.server", "canary"} {
		if !c.Secret(shown).IsZero() {
			t.Errorf("Secret(%q) is one", shown)
		}
	}
}

// TestSecretsCount: a file with another secret is another configuration, which is applied when the file is
// read again.
func TestSecretsCount(t *testing.T) {
	one, two := loadSecrets(t, "one"), loadSecrets(t, "two")
	if !one.Same(loadSecrets(t, "one")) || one.Same(two) {
		t.Error("Same ignores secrets, or finds differences where there are none")
	}
	keys := []string{"store", "store_listen", "encryption", "http", "log.format"}
	for _, key := range keys {
		if !one.SameSetting(two, key) {
			t.Errorf("the key of a model is part of server.%s", key)
		}
	}
	for _, change := range []struct{ from, to, key string }{{"canary-store", "other", "store"}, {"canary-listen", "other", "store_listen"}, {"id: one", "id: two", "encryption"}} {
		other, err := config.Loader{
			Env:   func(name string) (string, bool) { return "", name == "B" },
			Files: fstest.MapFS{"team.yaml": {Data: []byte(strings.Replace(strings.Replace(secretsFile, change.from, change.to, 1), `"${B}"`, "b", 1))}, "model": {Data: []byte("one")}, "key": {Data: []byte("canarycanarycanarycanarycanarycanarycanaryc=")}},
		}.Load("team.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if one.SameSetting(other, key) == (key == change.key) {
				t.Errorf("%s in place of %s: server.%s is the same: %t", change.to, change.from, key, key != change.key)
			}
		}
	}
}

// TestEncryptionKeys: faults name the key and what to do, and no part of the value.
func TestEncryptionKeys(t *testing.T) {
	const valid = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	for keys, want := range map[string]string{
		`[]`:                                  "encryption needs 1 to 16 keys",
		`[{id: a, value: canaryvalue}]`:       "value must be a key of 32 bytes in base64 or hex",
		`[{id: a}]`:                           "value must be a key of 32 bytes in base64 or hex",
		`[{value: ` + valid + `}]`:            "a key needs an id of 1 to 63 of a-z, A-Z, 0-9",
		`[{id: "a b", value: ` + valid + `}]`: "a key needs an id of 1 to 63 of a-z, A-Z, 0-9",
		`[{id: a, value: ` + valid + `}, {id: a, value: ` + valid + `}]`: "each id must be unique",
		`[{id: a, value: "${CANARY_KEY}"}]`:                              "the server needs CANARY_KEY, which is not set",
		`[{id: a, value: "${file:canary}"}]`:                             "the server needs ${file:canary}, which cannot be read",
	} {
		text := "version: v1\nagents: {a: {description: d, scripted: {steps: [{echo: true}]}}}\nserver:\n  encryption: {keys: " + keys + "}\n"
		_, err := config.Loader{Env: func(string) (string, bool) { return "", false }, Files: fstest.MapFS{"team.yaml": {Data: []byte(text)}}}.Load("team.yaml")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "team.yaml:4") {
			t.Errorf("%s: %v, want %q", keys, err, want)
		} else if strings.Contains(err.Error(), "canaryvalue") || strings.Contains(err.Error(), valid) {
			t.Errorf("%s: shown: %v", keys, err)
		}
	}
	for _, value := range []string{valid, strings.TrimRight(valid, "="), strings.Repeat("0f", 32), strings.Repeat("0F", 32), "-_" + valid[2:]} {
		text := "version: v1\nagents: {a: {description: d, scripted: {steps: [{echo: true}]}}}\nserver: {encryption: {keys: [{id: 2026-11, value: " + value + "}]}}\n"
		c, err := config.Loader{Files: fstest.MapFS{"team.yaml": {Data: []byte(text)}}}.Load("team.yaml")
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if k := c.EncryptionKeys()[0]; k.ID != "2026-11" {
			t.Errorf("key %v", k)
		} else if b, err := k.Bytes(); err != nil || len(b) != 32 {
			t.Errorf("%s: %d bytes, %v", value, len(b), err)
		}
	}
}

// TestT_42_AdditionsReadNothing: definitions that are made by the API read neither files nor variables of
// the server, and hold no reference to its secrets.
func TestT_42_AdditionsReadNothing(t *testing.T) {
	for _, value := range []string{"${file:model}", "${B}", "x ${file:/etc/passwd}", "${file:"} {
		data := fmt.Sprintf("agents: {new: {description: %q, scripted: {steps: [{echo: true}]}}}\n", value)
		l := config.Loader{
			Env:       func(string) (string, bool) { return "canary-env", true },
			Files:     fstest.MapFS{"team.yaml": {Data: []byte("version: v1\nagents: {a: {description: d, scripted: {steps: [{echo: true}]}}}\n")}, "model": {Data: []byte("canary")}},
			Additions: []config.Addition{{Name: "new.yaml", Data: []byte(data)}},
		}
		_, err := l.Load("team.yaml")
		if err == nil || !strings.Contains(err.Error(), "environment variables and files of the server cannot be used here") || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", value, err)
		}
	}
}
