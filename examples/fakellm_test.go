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
// scripts: the answers are the same as without one.
func TestR_004_37_BothStylesOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		folder, team, text string
		models             []string
	}{
		{"coordinator", "analysis", "an umbrella", []string{"analysis", "legal", "market", "pricing"}},
		{"swarm", "helpdesk", "my invoice is wrong", []string{"billing", "closer", "triage"}},
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
			if got.Failed() || got.Answer != want.Answer || got.Answer == "" {
				t.Errorf("answer %q, want %q\n%s", got.Answer, want.Answer, talk)
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
