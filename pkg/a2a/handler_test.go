package a2a_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

type agents map[string]agent.Agent

func (a agents) Get(id string) (agent.Agent, error) {
	if x, ok := a[id]; ok {
		return x, nil
	}
	return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is no agent %q", id)
}

func (a agents) IDs() []string {
	var ids []string
	for id := range a {
		ids = append(ids, id)
	}
	return ids
}

func start(t *testing.T, as agents) *a2a.Handler {
	t.Helper()
	mem := store.NewMemory(store.MemoryConfig{})
	e := engine.New(engine.Config{Leases: mem, Replica: "r"})
	r := &a2a.Runner{Agent: as.Get, Replica: "r"}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Serve(ctx, r.Drive) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return a2a.NewHandler(a2a.Config{Agents: as, Store: mem, Wake: e.Wake})
}

func echo(id string) *agent.Func {
	return &agent.Func{ID: id, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return agent.NewMessage(id + ": " + agent.Text(m)), nil
	}}
}

func asUser(t *testing.T) context.Context {
	return a2a.WithCaller(t.Context(), a2a.Caller{Account: "local", Principal: "local"})
}

func TestSend(t *testing.T) {
	h := start(t, agents{"echo": echo("echo")})
	resp, err := h.SendMessage(asUser(t), &a2av1.SendMessageRequest{Message: agent.UserMessage("m1", "hi")})
	if err != nil {
		t.Fatal(err)
	}
	task := resp.GetTask()
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || len(task.GetArtifacts()) != 1 ||
		task.GetArtifacts()[0].GetParts()[0].GetText() != "echo: hi" || !strings.Contains(task.GetHistory()[0].String(), "hi") {
		t.Fatal(task)
	}
	updates, err := h.SendStreamingMessage(asUser(t), &a2av1.SendMessageRequest{Message: agent.UserMessage("m2", "hi")})
	if err != nil {
		t.Fatal(err)
	}
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		t.Log(u.Seq, u.Response)
	}
}
