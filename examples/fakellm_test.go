package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// TestR_004_37_BothStylesOverHTTP runs the examples of a coordinator and of a
// swarm with models behind an OpenAI-compatible endpoint, which plays their
// scripts: the answers begin as without one. What they quote of the input differs, because messages of one
// role in a row are one message for an endpoint.
func TestR_004_37_BothStylesOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		folder, team, text, begins string
		models                     []string
	}{
		{"coordinator", "analysis", "an umbrella", "Make an umbrella. What we know:\n\nmarket: succeeded\n\nEverybody who has no car, most of all in autumn.", []string{"analysis", "legal", "market", "pricing"}},
		{"swarm", "helpdesk", "my invoice is wrong", "Dear customer. ", []string{"billing", "closer", "triage"}},
	} {
		t.Run(tt.folder, func(t *testing.T) {
			llm := fakellm.New(t)
			source, err := os.ReadFile(filepath.Join(tt.folder, "team.script.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			script, err := scripted.Parse("team.script.yaml", source)
			if err != nil {
				t.Fatal(err)
			}
			llm.Play(script)
			_, want := runExample(t, tt.folder, nil, tt.team, tt.text)
			dir := writeFiles(t, map[string]string{"team.yaml": overHTTP(t, tt.folder, tt.team, llm.URL)})
			talk, got := runExample(t, dir, nil, tt.team, tt.text)
			if got.Failed() || !strings.HasPrefix(got.Answer, tt.begins) || !strings.HasPrefix(want.Answer, tt.begins) {
				t.Errorf("answer %q, want %q, which begins with %q\n%s", got.Answer, want.Answer, tt.begins, talk)
			}
			for _, model := range tt.models {
				if len(llm.Requests(model)) == 0 {
					t.Errorf("model %s was not asked", model)
				}
			}
		})
	}
}

var (
	scriptedModel = regexp.MustCompile(`(?m)^  script: .*$`)
	agentsModel   = regexp.MustCompile(`(?m)^  (\w+): (\{description: .*)model: script`)
)

// overHTTP is the team.yaml of an example whose agents each have a model of their
// own name at an endpoint.
func overHTTP(t *testing.T, folder, team, url string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, "team.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var models strings.Builder
	add := func(name string) {
		models.WriteString("  " + name + ": {provider: openai, name: " + name + ", base_url: \"" + url + "\"}\n")
	}
	for _, m := range agentsModel.FindAllStringSubmatch(string(b), -1) {
		add(m[1])
	}
	add(team)
	text := agentsModel.ReplaceAllString(string(b), "  $1: ${2}model: $1")
	text = strings.Replace(text, "leader: {model: script", "leader: {model: "+team, 1)
	return scriptedModel.ReplaceAllString(text, strings.TrimSuffix(models.String(), "\n"))
}
