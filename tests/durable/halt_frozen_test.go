//go:build linux

package durable

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestHalt_FrozenReplica: the receipt of a halt that covers a part of a task lists it also if the replica that works on
// it is stopped and cannot say so, and its total is the number of what it lists.
func TestHalt_FrozenReplica(t *testing.T) {
	for name, of := range map[string]*teamv1.HaltRequest{
		"model by its key":  {Kind: teamv1.HaltKind_HALT_KIND_MODEL, Name: "m"},
		"model by its name": {Kind: teamv1.HaltKind_HALT_KIND_MODEL, Name: "model-m"},
		"member":            {Kind: teamv1.HaltKind_HALT_KIND_AGENT, Name: "writer"},
		"whole task":        {Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: "desk"},
		"another model":     {Kind: teamv1.HaltKind_HALT_KIND_MODEL, Name: "n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, done := make(chan struct{}, 10), make(chan struct{})
			llm := fakellm.New(t)
			llm.Answer("model-m", func(*fakellm.Request) fakellm.Turn {
				called <- struct{}{}
				<-done
				return fakellm.Turn{Text: "late"}
			})
			t.Cleanup(func() { close(done) })
			file := filepath.Join(t.TempDir(), "team.yaml")
			if err := os.WriteFile(file, []byte(haltFile(llm.URL, "http://127.0.0.1:1")), 0o600); err != nil {
				t.Fatal(err)
			}
			start := func(c command, n int) *replica {
				c.args = []string{"--lease=" + lease.String(), fmt.Sprintf("--replica=r%d", n)}
				r, err := c.start()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.end(syscall.SIGKILL) })
				return r
			}
			c := command{config: file, store: pgtest.URL(t), dir: t.ArtifactDir()}
			frozen := start(c, 0)
			h := &halting{T: t, replicas: []*replica{frozen}}
			task, err := h.send(t.Context(), 0, "desk", "message")
			if err != nil {
				t.Fatal(err)
			}
			<-called
			other := start(c, 1)
			frozen.signal(syscall.SIGSTOP)

			of.Reason = "wrong"
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			resp, err := teamv1.NewHaltServiceClient(rig.Services(t, other.target)[0]).Halt(ctx, of)
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if of.GetName() == "n" {
				want = 0
			}
			if len(resp.GetTasks()) != want || int(resp.GetTotal()) != want || len(resp.GetStragglers()) > 0 {
				t.Fatalf("receipt %v, want %d tasks", resp, want)
			}
			for _, one := range resp.GetTasks() {
				root, scope := agent.SplitTask(one.GetTaskId())
				if root != task || (scope == "") != (of.GetKind() == teamv1.HaltKind_HALT_KIND_TEAM) || one.GetState() == teamv1.HaltedState_HALTED_STATE_STOPPING {
					t.Errorf("listed is %v, want a part of %s that has stopped", one, task)
				}
			}
		})
	}
}
