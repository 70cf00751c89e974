package upgrade

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// withoutKits serves the store of agents for conformance kits. The file that the store was made
// with had an agent "kit" with the key conformance, and a team "mixed" with that agent, a question
// and parrot.
const withoutKits = `version: v2
agents:
  parrot: {scripted: {steps: [{text: "parrot: {{input}}"}]}}
server:
  retention: 876000h
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}", manage: true}, {name: bob, account: acme, sha256: "${BOB}", roles: [chief]}]}
`

// TestP19_StoreWithAgentsForConformanceKits opens a store that the last version with such agents
// left without notice: agents and teams in its catalog, and runs in each state. These sources
// cannot make the store anew.
func TestP19_StoreWithAgentsForConformanceKits(t *testing.T) {
	h := open(t, loadSQLite(t, "testdata/removed-kind.db.gz"), newCast(t, withoutKits))

	roots := h.roots()
	names := slices.Sorted(maps.Keys(roots))
	if diff := cmp.Diff([]string{"kit/completed", "kit/running", "kit/waiting", "mixed/completed", "mixed/waiting", "own/completed", "stored/completed"}, names); diff != "" {
		t.Fatal(diff)
	}
	for name, want := range map[string]string{
		"kit/completed": "Hello from TCK", "stored/completed": "Generated text content", "mixed/completed": "parrot: yes", "own/completed": "parrot: Write about own/completed.",
	} {
		task := roots[name]
		got := agent.Text(task.GetStatus().GetMessage())
		for _, a := range task.GetArtifacts() {
			got = agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
		if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || got != want {
			t.Errorf("%s: %v %q, want %q", name, task.GetStatus(), got, want)
		}
		must[*teamv1.Trace](t)(h.monitor.Trace(t.Context(), task.GetId()))
	}

	for name, id := range map[string]string{"kit/running": "kit", "kit/waiting": "kit", "mixed/waiting": "mixed"} {
		h.finish(roots[name])
		err := a2a.RunOf(h.get(roots[name].GetId()).GetMetadata()).GetError()
		want := `the run cannot continue with "` + id + `" as it began: agent "kit" is of the kind conformance, which is no longer supported`
		if err.GetReason() != agent.ReasonInterrupted || err.GetMessage() != want {
			t.Errorf("%s ended with %v, want %s", name, err, want)
		}
	}

	for id, want := range map[string]string{
		"with-kit": `"conformance" is no longer supported`, "names-kit": `step "one" uses agent "stored-kit", which is not defined`, "without-kit": "",
	} {
		team := must[*teamv1.GetTeamResponse](t)(h.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: id})).GetTeam()
		state := teamv1.TeamState_TEAM_STATE_ERROR
		if want == "" {
			state = teamv1.TeamState_TEAM_STATE_READY
		}
		if team.GetState() != state || team.GetDetail() != want {
			t.Errorf("team %s: %v %q, want %v %q", id, team.GetState(), team.GetDetail(), state, want)
		}
	}
	answer := must[*a2av1.SendMessageResponse](t)(h.tasks.Send(t.Context(), rig.Text("without-kit", "m1", "hello")))
	if got := answer.GetTask().GetArtifacts(); len(got) != 1 || agent.Text(&a2av1.Message{Parts: got[0].GetParts()}) != "parrot: hello" {
		t.Errorf("a team without such an agent answers %v", answer)
	}

	registry := teamv1.NewRegistryServiceClient(rig.Services(t, h.Target)[0])
	stored := must[*teamv1.GetAgentResponse](t)(registry.GetAgent(t.Context(), &teamv1.GetAgentRequest{AgentId: "stored-kit"})).GetAgent()
	if stored.GetHealth().GetHealthy() || stored.GetHealth().GetDetail() == "" {
		t.Errorf("the stored agent: %v", stored)
	}
	// An agent that is not served can be replaced or deleted.
	must[*teamv1.UpdateAgentResponse](t)(registry.UpdateAgent(t.Context(), &teamv1.UpdateAgentRequest{AgentId: "stored-kit", Config: &teamv1.AgentConfig{
		Scripted: &teamv1.ScriptedAgent{Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Echo{Echo: true}}}},
	}}))
	team := must[*teamv1.GetTeamResponse](t)(h.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: "names-kit"})).GetTeam()
	if team.GetState() != teamv1.TeamState_TEAM_STATE_READY {
		t.Errorf("the team that names it: %v", team)
	}
	must[*teamv1.DeleteTeamResponse](t)(h.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "with-kit"}))
	if strings.Contains(strings.Join(h.Running.Live.Teams(), " "), "with-kit") {
		t.Error("a deleted team is served")
	}
}
