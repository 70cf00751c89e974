// Package tests drives whole servers from outside, over the wire.
package tests

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) {
	if os.Getenv(askerVariable) != "" {
		runAsker()
		return
	}
	rig.VerifyMain(m)
}

// says is a member that answers with its name around what it was given.
func says(id string, skills ...string) *agent.Func {
	f := &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage(id + "(" + agent.Text(m) + ")"), nil
	}}
	for _, s := range skills {
		f.Skills = append(f.Skills, &teamv1.Skill{Id: s, Name: s})
	}
	return f
}

// chain is a team whose members work one after the other.
func chain(t *testing.T, m *manager.Manager, id string, members ...string) *team.Team {
	t.Helper()
	c := workflow.Config{}
	var list []team.Member
	for i, name := range members {
		step := workflow.Step{ID: "s" + string(rune('0'+i)), Member: name}
		if i > 0 {
			step.After = []string{"s" + string(rune('0'+i-1))}
		}
		c.Steps = append(c.Steps, step)
		list = append(list, team.Member{Agent: name})
	}
	s, err := workflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: id, Mode: "workflow", Scheduler: s, Members: list, Registry: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register(id, tm); err != nil {
		t.Fatal(err)
	}
	return tm
}

func overService(t *testing.T, id string, at rig.Target, agentID string) agent.Agent {
	t.Helper()
	a, err := remote.New(remote.Config{ID: id, Address: at.GRPC, AgentID: agentID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func overA2A(t *testing.T, id string, at rig.Target, agentID, binding string) agent.Agent {
	t.Helper()
	return member(t, remote.A2AConfig{ID: id, Card: at.HTTP + "/" + agentID, Prefer: []string{binding}})
}

func member(t *testing.T, c remote.A2AConfig) agent.Agent {
	t.Helper()
	a, err := remote.NewA2A(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// events runs an agent over the Agent service and returns what happened.
func events(t *testing.T, at rig.Target, agentID, text string) []*teamv1.Event {
	t.Helper()
	g, err := rig.NewGRPC(at)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := teamv1.NewAgentServiceClient(g.Conn).ProcessStream(g.Context(ctx), &teamv1.ProcessStreamRequest{
		Request: &teamv1.ProcessRequest{AgentId: agentID, Message: agent.UserMessage(text, text)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []*teamv1.Event
	for {
		resp, err := stream.Recv()
		if err != nil {
			return all
		}
		all = append(all, resp.GetEvent())
	}
}

// TestR_000_39_TeamOfAnotherServer has a team of another server as a member,
// over the Agent service and over A2A on each binding (S-56).
func TestR_000_39_TeamOfAnotherServer(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		far := rig.Manager(t, says("researcher", "search"), says("writer"))
		chain(t, far, "newsroom", "researcher", "writer")
		b := rig.Serve(t, server.Config{Agents: far})
		members := map[string]func(*testing.T) agent.Agent{
			"agent service": func(t *testing.T) agent.Agent { return overService(t, "far", b, "newsroom") },
			"a2a grpc":      func(t *testing.T) agent.Agent { return overA2A(t, "far", b, "newsroom", remote.BindingGRPC) },
			"a2a rest":      func(t *testing.T) agent.Agent { return overA2A(t, "far", b, "newsroom", remote.BindingREST) },
			"a2a jsonrpc":   func(t *testing.T) agent.Agent { return overA2A(t, "far", b, "newsroom", remote.BindingJSONRPC) },
			"A-25 a2a 0.3 rest": func(t *testing.T) agent.Agent {
				return member(t, remote.A2AConfig{ID: "far", Card: b.HTTP + "/newsroom", Version: "0.3", Prefer: []string{remote.BindingREST}})
			},
			"A-25 a2a 0.3 jsonrpc": func(t *testing.T) agent.Agent {
				return member(t, remote.A2AConfig{ID: "far", Card: b.HTTP + "/newsroom", Version: "0.3", Prefer: []string{remote.BindingJSONRPC}})
			},
		}
		for name, member := range members {
			t.Run(name, func(t *testing.T) {
				near := rig.Manager(t, member(t), says("editor"))
				if _, err := near.Get("far"); err != nil {
					if err := near.Register("far", member(t)); err != nil {
						t.Fatal(err)
					}
				}
				chain(t, near, "desk", "far", "editor")
				a := rig.Serve(t, server.Config{Agents: near, Store: kept(t, place)})
				all := events(t, a, "desk", "tides")
				last := all[len(all)-1].GetEnded()
				if got := agent.Text(last.GetReply()); got != "editor(writer(researcher(tides)))" {
					t.Errorf("answer %q of %v", got, last)
				}
				paths, bound := map[string]bool{}, false
				for _, ev := range all {
					paths[ev.GetAgent()] = true
					bound = bound || ev.GetBound().GetTaskId() != ""
				}
				if !paths["desk/far"] || !paths["desk/editor"] || !bound {
					t.Errorf("paths %v, bound %v", paths, bound)
				}
				if name == "agent service" && !hasPrefix(paths, "desk/far/newsroom/") && !hasPrefix(paths, "desk/far/researcher") {
					t.Errorf("the path through both servers is not shown: %v", paths)
				}
			})
		}
	})
}

func hasPrefix(paths map[string]bool, prefix string) bool {
	for p := range paths {
		if strings.HasPrefix(p, prefix) {
			return true
		}
	}
	return false
}

// TestR_000_36_ServersThatContainEachOther has servers whose teams contain each
// other, over the Agent service and over A2A: health, info and a message end with
// a clear error, again and again (S-37).
func TestR_000_36_ServersThatContainEachOther(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		links := map[string]func(t *testing.T, at rig.Target, agentID string) agent.Agent{
			"agent service": func(t *testing.T, at rig.Target, agentID string) agent.Agent {
				return overService(t, "far", at, agentID)
			},
		}
		for _, binding := range []string{remote.BindingGRPC, remote.BindingREST, remote.BindingJSONRPC} {
			links["a2a "+binding] = func(t *testing.T, at rig.Target, agentID string) agent.Agent {
				return overA2A(t, "far", at, agentID, binding)
			}
		}
		for name, link := range links {
			t.Run(name, func(t *testing.T) { circle(t, place, 2, link) })
		}
		t.Run("three servers, mixed", func(t *testing.T) {
			n := 0
			circle(t, place, 3, func(t *testing.T, at rig.Target, agentID string) agent.Agent {
				n++
				return []func(*testing.T, rig.Target, string) agent.Agent{
					links["agent service"], links["a2a "+remote.BindingREST], links["a2a "+remote.BindingGRPC],
				}[n-1](t, at, agentID)
			})
		})
	})
}

// circle has n servers, each with a team whose member is the next server's team.
func circle(t *testing.T, place rig.Place, n int, link func(*testing.T, rig.Target, string) agent.Agent) {
	managers, at := make([]*manager.Manager, n), make([]rig.Target, n)
	for i := range n {
		managers[i] = rig.Manager(t)
		c := server.Config{Agents: managers[i]}
		if i == 0 {
			c.Store = kept(t, place)
		}
		at[i] = rig.Serve(t, c)
	}
	for i, m := range managers {
		next := (i + 1) % n
		if err := m.Register("far", link(t, at[next], fmt.Sprintf("team%d", next))); err != nil {
			t.Fatal(err)
		}
		chain(t, m, fmt.Sprintf("team%d", i), "far")
	}
	g, err := rig.NewGRPC(at[0])
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := teamv1.NewAgentServiceClient(g.Conn)
	for round := range 2 {
		h, err := c.HealthCheck(g.Context(ctx), &teamv1.HealthCheckRequest{AgentId: "team0"})
		if err != nil || h.GetHealthy() || !strings.Contains(h.GetDetail(), "contain each other") {
			t.Errorf("health, round %d: %v %v", round, h, err)
		}
		_, err = c.Info(g.Context(ctx), &teamv1.InfoRequest{AgentId: "team0"})
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Reason != agent.ReasonMaxDepth {
			t.Errorf("info, round %d: %v", round, err)
		}
		_, err = c.Process(g.Context(ctx), &teamv1.ProcessRequest{AgentId: "team0", Message: agent.UserMessage(fmt.Sprint(round), "hi")})
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Reason != agent.ReasonMaxDepth {
			t.Errorf("message, round %d: %v", round, err)
		}
	}
}
