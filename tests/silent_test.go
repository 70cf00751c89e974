package tests

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestS_11_SilentMember: a member on another server that says nothing new for its idle_timeout has failed; its
// task is canceled there, and the next attempt begins another one. Without another attempt the step
// fails, on each binding of the caller.
func TestS_11_SilentMember(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"a2a", "grpc"} {
		for _, attempts := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s %d", kind, attempts), func(t *testing.T) {
				silent := fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}
				var turns []fakeagent.Turn
				for range 3 { // one for each binding
					turns = append(turns, silent)
					if attempts > 1 {
						turns = append(turns, fakeagent.Turn{Text: "done"})
					}
				}
				f := fakeagent.New(t, fakeagent.Config{Turns: turns})
				at := fmt.Sprintf("a2a: {card: %q, idle_timeout: 1s}", f.URL())
				if kind == "grpc" {
					at = fmt.Sprintf("grpc: {address: %q, idle_timeout: 1s}", f.GRPC())
				}
				target, _ := fromFile(t, rig.Memory(t), fmt.Sprintf(`version: v1
agents: {far: {description: Elsewhere., %s}}
teams: {desk: {members: [{agent: far}], limits: {retry: {attempts: %d, backoff: 10ms}}, workflow: {steps: [{id: one, agent: far}]}}}
`, at, attempts), nil)
				rig.Each(t, target, func(t *testing.T, c rig.Client) {
					resp, err := c.Send(t.Context(), rig.Text("desk", rand.Text(), "hello"))
					if err != nil {
						t.Fatal(err)
					}
					task := resp.GetTask()
					state, want := a2av1.TaskState_TASK_STATE_COMPLETED, "done"
					if attempts == 1 {
						state, want = a2av1.TaskState_TASK_STATE_FAILED, "sent nothing for 1s (idle_timeout)"
					}
					if got := fmt.Sprint(task.GetArtifacts(), task.GetStatus()); task.GetStatus().GetState() != state || !strings.Contains(got, want) {
						t.Errorf("%s, want %s %s", got, state, want)
					}
				})
				if n, want := f.Played(), 3*attempts; n != want {
					t.Errorf("the member was called %d times, want %d", n, want)
				}
				cancel := map[string]string{"a2a": "CancelTask", "grpc": "Cancel"}[kind]
				if n := len(f.Requests(cancel)); n != 3 {
					t.Errorf("%d tasks were canceled there, want 3", n)
				}
			})
		}
	}
}
