package teamfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/teamfile"
	"github.com/agentteams/team-server/pkg/teamfile/teamfiletest"
)

// TestTeams plays the tests of the file with the parts of the program.
func TestTeams(t *testing.T) { teamfiletest.Run(t, program(), "testdata") }

const file = `version: v1
tools:
  height: {program: {}}
  other: {program: {}}
agents:
  echo: {scripted: {steps: [{echo: true}]}}
  pricing: {program: {}}
  spare: {program: {}}
teams:
  desk: {members: [pricing, echo], program: {}}
  plain: {members: [echo], workflow: {steps: [echo]}}
`

// write writes files into a folder and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestLoad_Model has a scheduler of the program ask the model that the file names for it.
func TestLoad_Model(t *testing.T) {
	folder := write(t, map[string]string{"team.script.yaml": "agents: {desk: [{text: Summed up.}]}", "team.yaml": `version: v1
models: {script: {provider: scripted, file: team.script.yaml}}
agents: {echo: {scripted: {steps: [{echo: true}]}}}
teams: {desk: {members: [echo], program: {model: script}}}
`})
	f, err := teamfile.Load(folder, teamfile.Config{Schedulers: map[string]team.Scheduler{"desk": broadcast.New(broadcast.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	desk, err := f.Agent("desk")
	if err != nil {
		t.Fatal(err)
	}
	reply, err := agent.Reply(t.Context(), desk, agent.UserMessage("m1", "tides"))
	if agent.Text(reply) != "Summed up." || err != nil {
		t.Errorf("%v %v", reply, err)
	}
	if _, err := f.Agent("none"); err == nil {
		t.Error("an agent that is not in the file")
	}
}

func TestLoad_Faults(t *testing.T) {
	path := filepath.Join(write(t, map[string]string{"team.yaml": file}), "team.yaml")
	given := program()
	pricing, harbour := given.Agents["pricing"], given.Schedulers["harbour"]
	for _, tt := range []struct {
		name   string
		change func(c *teamfile.Config)
		want   []string // lines of the error, in order
	}{
		{"unused parts of the file may be missing", func(*teamfile.Config) {}, nil},
		{"missing", func(c *teamfile.Config) { c.Agents, c.Schedulers["desk"] = map[string]agent.Agent{"pricing": nil}, nil }, []string{
			`:7:13  the agent "pricing" is missing in the program`, "add it to Agents there",
			`:10:36  the scheduler of team "desk" is missing in the program`, "add it to Schedulers there",
		}},
		{"misspelled", func(c *teamfile.Config) { c.Agents["pricng"] = pricing; delete(c.Agents, "pricing") }, []string{
			`:5:1  the program has the agent "pricng", which is not in the file`, `did you mean "pricing"?`,
			`:7:13  the agent "pricing" is missing in the program`,
		}},
		{"of another kind", func(c *teamfile.Config) { c.Schedulers["plain"] = harbour }, []string{
			`:11:3  the program has the scheduler of team "plain", which the file describes otherwise`, "write program: {} here, or remove it from Schedulers in the program",
		}},
		{"too much", func(c *teamfile.Config) { c.Tools = map[string]agent.Tool{"length": height{}} }, []string{
			`the program has the tool "length", which is not in the file`, "known here: height, other",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := teamfile.Config{Agents: map[string]agent.Agent{"pricing": pricing}, Schedulers: map[string]team.Scheduler{"desk": harbour}}
			tt.change(&c)
			f, err := teamfile.Load(path, c)
			if err == nil {
				err = f.Close()
			}
			if (err == nil) != (tt.want == nil) {
				t.Fatal(err)
			}
			text := fmt.Sprint(err)
			for _, line := range tt.want {
				_, after, found := strings.Cut(text, line)
				if !found {
					t.Fatalf("%v\nlacks %s", err, line)
				}
				text = after
			}
		})
	}
}
