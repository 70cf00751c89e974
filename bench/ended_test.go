package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// BenchmarkEnded has many tasks of 500 bytes end and looks at what the server
// holds of them beside the database in memory: those of an agent, and those of a team with that agent as its member.
func BenchmarkEnded(b *testing.B) {
	n := waitingRuns(b)
	t := &measure.Table{
		Once:  true,
		Title: fmt.Sprintf("what %d ended tasks of 500 bytes hold beside the database in memory", n),
		Head:  "agent\theap/task\theap of all",
		Goals: []string{"heap: growth of the Go heap of the process, after a garbage collection; the pages of the database are outside of it"},
	}
	b.Run("agent", func(b *testing.B) { ended(b, t, n, "agent", echo()) })
	b.Run("team", func(b *testing.B) { ended(b, t, n, "team", teamOf(b, relay{steps: 1}, echo(), nil)) })
	t.Print()
}

// ended measures the tasks of one agent, once.
func ended(b *testing.B, t *measure.Table, n int, name string, a agent.Agent) {
	if b.N > 1 {
		return
	}
	s, done := rig.Memory(b).Open(b)
	target, stop := rig.Start(b, server.Config{Agent: a, Store: s})
	defer done()
	defer stop()
	conn := dial(b, target.GRPC)
	defer func() { _ = conn.Close() }()
	client, text := a2av1.NewA2AServiceClient(conn), strings.Repeat("x", 500)
	w := &waiters{b: b, n: n}
	send := func(i int) {
		w.call(func(ctx context.Context) error {
			resp, err := client.SendMessage(ctx, &a2av1.SendMessageRequest{Message: agent.UserMessage(fmt.Sprint("m", i), text)})
			if got := resp.GetTask().GetStatus().GetState(); err == nil && got != a2av1.TaskState_TASK_STATE_COMPLETED {
				err = fmt.Errorf("task %d is %s", i, got)
			}
			return err
		})
	}
	send(0) // connections and pools are there before anything is counted
	before := footprint()
	w.each(1, send)
	after := footprint()
	held := float64(after.heap) - float64(before.heap)
	t.Add("%s\t%.0f B\t%.1f MB", name, held/float64(n-1), held/1e6)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(held/float64(n-1), "B/task")
}
