package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
)

// TestSettings: the settings of an agent replace those of its model one by one, for this agent only, and its
// output_schema reaches the endpoint.
func TestSettings(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("n", fakellm.Turn{Text: `{"score": 1}`, Forever: true})
	dir := t.TempDir()
	file := filepath.Join(dir, "team.yaml")
	for name, text := range map[string]string{
		"score.json": `{"type": "object", "properties": {"score": {"type": "integer"}}}`,
		"team.yaml": `version: v1
models:
  m:
    provider: openai
    name: n
    base_url: "` + llm.URL + `"
    settings: {temperature: 0.5, top_p: 0.9, stop: [END], extra_body: {top_k: 5, min_p: 0.1}, headers: {X-Team: "${TEAM}", X-Cost: low}}
agents:
  plain: {description: d, model: m}
  own: {description: d, model: m, output_schema: score.json, settings: {temperature: 0, stop: [A, B], extra_body: {top_k: null}, headers: {X-Team: red}}}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Loader{Env: func(name string) (string, bool) { return "blue", name == "TEAM" }}.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Server.String(); strings.Contains(s, "blue") || strings.Contains(s, "red") {
		t.Errorf("the definition shows headers: %s", s)
	}
	m := registered(t, c)
	for id, want := range map[string]struct{ body, team string }{
		"plain": {`{"min_p":0.1,"stop":["END"],"temperature":0.5,"top_k":5,"top_p":0.9}`, "blue"},
		"own": {`{"min_p":0.1,"response_format":{"json_schema":{"name":"answer","schema":{"properties":{"score":{"type":"integer"}},"type":"object"}},"type":"json_schema"},` +
			`"stop":["A","B"],"temperature":0,"top_p":0.9}`, "red"},
	} {
		trail(t.Context(), t, m, id, "x")
		rs := llm.Requests()
		r := rs[len(rs)-1]
		var body map[string]any
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"model", "messages", "stream", "stream_options"} {
			delete(body, key)
		}
		if got, _ := json.Marshal(body); string(got) != want.body || r.Header.Get("X-Team") != want.team || r.Header.Get("X-Cost") != "low" {
			t.Errorf("%s sends %s, X-Team %q", id, got, r.Header.Get("X-Team"))
		}
	}
}
