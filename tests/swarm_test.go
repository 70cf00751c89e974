package tests

import (
	"context"
	"iter"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/swarm"
	"github.com/agentteams/team-server/tests/rig"
)

// passing is a model that hands over to the agent named, with what it was told
// last, and answers where it names none.
type passing struct{ to string }

func (passing) Name() string { return "passing" }

func (p passing) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		lines := strings.Split(req.Messages[len(req.Messages)-1].Text, "\n") // over A2A what was said before comes first
		last := lines[len(lines)-1]
		turn := &teamv1.Turn{Text: req.Agent + " answers " + last}
		if p.to != "" {
			turn = &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "transfer_to_agent", Arguments: `{"agent_name": "` + p.to + `", "message": "` + req.Agent + ` passes ` + last + `"}`}}}
		}
		yield(agent.ModelChunk{Turn: turn}, nil)
	}
}

func passer(t testing.TB, id, to string) agent.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{ID: id, Model: passing{to}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestC_13_SwarmAcrossServers has the second of three members of a swarm on another
// server: control goes there and comes back, over the Agent service and over A2A on
// each binding.
func TestC_13_SwarmAcrossServers(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		far := rig.Serve(t, server.Config{Agents: rig.Manager(t, passer(t, "billing", "closer"))})
		for name, member := range map[string]func(*testing.T) agent.Agent{
			"agent service": func(t *testing.T) agent.Agent { return overService(t, "billing", far, "billing") },
			"A2A gRPC":      func(t *testing.T) agent.Agent { return overA2A(t, "billing", far, "billing", "GRPC") },
			"A2A REST":      func(t *testing.T) agent.Agent { return overA2A(t, "billing", far, "billing", "HTTP+JSON") },
			"A2A JSON-RPC":  func(t *testing.T) agent.Agent { return overA2A(t, "billing", far, "billing", "JSONRPC") },
		} {
			t.Run(name, func(t *testing.T) {
				m := rig.Manager(t, passer(t, "triage", "billing"), passer(t, "closer", ""))
				if err := m.Register("billing", member(t)); err != nil {
					t.Fatal(err)
				}
				desk(t, m, "triage", "billing", "closer")
				task := asked(t, rig.Serve(t, server.Config{Agents: m, Store: kept(t, place)}), "desk", "how much?")
				if got := answerOf(task); got != "closer answers billing passes triage passes how much?" {
					t.Errorf("the answer is %q", got)
				}
			})
		}
	})
}

// desk is a swarm; the first member begins.
func desk(t testing.TB, m *manager.Manager, ids ...string) {
	t.Helper()
	var list []team.Member
	for _, id := range ids {
		list = append(list, team.Member{Agent: id})
	}
	s, err := swarm.New(swarm.Config{Entry: ids[0], Members: list})
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: "desk", Mode: "swarm", Scheduler: s, Members: list, Registry: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("desk", tm); err != nil {
		t.Fatal(err)
	}
}

// asked sends a text over gRPC and returns the task that came of it.
func asked(t testing.TB, target rig.Target, tenant, text string) *a2av1.Task {
	t.Helper()
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	resp, err := g.Send(t.Context(), rig.Text(tenant, "m-"+tenant, text))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask()
}

// answerOf is the text of a task's result, or why there is none.
func answerOf(task *a2av1.Task) string {
	if len(task.GetArtifacts()) == 0 {
		return agent.Text(task.GetStatus().GetMessage())
	}
	var texts []string
	for _, p := range task.GetArtifacts()[0].GetParts() {
		texts = append(texts, p.GetText())
	}
	return strings.Join(texts, "\n")
}
