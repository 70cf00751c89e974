package tests

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_000_31_WordsOfModels runs a supervisor over three model-backed members
// whose models add a random word each to what they read: all of them must be in
// the answer, on every binding. Nothing of it can be canned.
func TestR_000_31_WordsOfModels(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		llm := fakellm.New(t)
		words := map[string]string{}
		ids := []string{"researcher", "writer", "critic"}
		m := rig.Manager(t)
		var members []team.Member
		for _, id := range ids {
			words[id] = rand.Text()
			llm.Answer(id+"-model", func(r *fakellm.Request) fakellm.Turn {
				return fakellm.Turn{Text: r.Last() + " " + words[id], Chunks: 2}
			})
			model, err := openai.New(openai.Config{Name: id + "-model", BaseURL: llm.URL, APIKey: secret.New("test")})
			if err != nil {
				t.Fatal(err)
			}
			a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: model, Instructions: "Add your word."})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Register(id, a); err != nil {
				t.Fatal(err)
			}
			members = append(members, team.Member{Agent: id, History: team.HistoryLastResult})
		}
		scheduler, err := supervisor.New(supervisor.Config{Members: members, Rules: []supervisor.Rule{
			{ID: "first", When: "turn == 1", Next: []string{"researcher"}},
			{ID: "check", When: "last.member == 'researcher'", Next: []string{"critic"}},
			{ID: "write", When: fmt.Sprintf("critic.text.contains('%s') && turn == 3", words["critic"]), Next: []string{"writer"}},
			{ID: "done", When: "last.member == 'writer'", Finish: "writer"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		newsroom, err := team.New(team.Config{ID: "newsroom", Mode: "supervisor", Scheduler: scheduler, Members: members, Registry: m})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Register("newsroom", newsroom); err != nil {
			t.Fatal(err)
		}
		rig.Each(t, rig.Serve(t, server.Config{Agents: m, Store: kept(t, place)}, llm), func(t *testing.T, c rig.Client) {
			resp, err := c.Send(t.Context(), rig.Text("newsroom", rand.Text(), "tides"))
			if err != nil {
				t.Fatal(err)
			}
			task := resp.GetTask()
			if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Fatal(task)
			}
			want := strings.Join([]string{"tides", words["researcher"], words["critic"], words["writer"]}, " ")
			if got := task.GetArtifacts()[0].GetParts()[0].GetText(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	})
}
