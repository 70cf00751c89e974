package rig

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
)

// OverA2A returns a fake agent on another server, and the agent that reaches it over A2A.
// After a cancel this agent waits up to wait for the task to end.
func OverA2A(t testing.TB, id string, cfg fakeagent.Config, wait time.Duration) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	f := fakeagent.New(t, cfg)
	a, err := remote.NewA2A(remote.A2AConfig{ID: id, Card: f.URL(), PollEvery: 10 * time.Millisecond, CancelWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return f, a
}

// OverService returns a fake agent on another server, and the agent that reaches it over
// the Agent service. After a cancel this agent waits up to wait for the task to end.
func OverService(t testing.TB, id string, cfg fakeagent.Config, wait time.Duration) (*fakeagent.Agent, agent.Agent) {
	t.Helper()
	f := fakeagent.New(t, cfg)
	a, err := remote.New(remote.Config{ID: id, Address: f.GRPC(), CancelEvery: 10 * time.Millisecond, CancelWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return f, a
}

// Held returns the configuration of a fake agent whose tasks work until they are canceled.
func Held() fakeagent.Config {
	return fakeagent.Config{Default: fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}}
}

// Reached returns the entries of the receipt of a canceled task as texts: scope, path, last
// action, and whether a peer that was asked to cancel has confirmed it.
func Reached(task *a2av1.Task) []string {
	var lines []string
	for _, e := range a2a.RunOf(task.GetMetadata()).GetReceipt().GetEntries() {
		line := e.GetScope() + " " + e.GetAgent() + ": " + e.GetLastAction()
		if e.GetConfirmed() {
			line += ", confirmed"
		}
		if e.GetUnconfirmed() {
			line += ", unconfirmed"
		}
		lines = append(lines, line)
	}
	return lines
}

// WantReached compares the entries of a task's receipt.
func WantReached(t testing.TB, task *a2av1.Task, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, Reached(task)); diff != "" {
		t.Errorf("the receipt (-want +got):\n%s", diff)
	}
}
