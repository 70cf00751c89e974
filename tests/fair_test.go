package tests

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// flooded serves agents slow and echo on replicas of a store, and has account acme begin 300 tasks of
// slow on each of them, more than all of their slots. release ends the slow tasks.
func flooded(t *testing.T, at rig.Place, replicas int) (targets []rig.Target, release func()) {
	t.Helper()
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	slow := &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		select {
		case <-gate:
			return agent.NewMessage("at last"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
	for range replicas {
		store, _ := at.Open(t)
		targets = append(targets, rig.Serve(t, server.Config{
			Agents:   rig.Manager(t, slow, says("echo")),
			Store:    store,
			Settings: &teamv1.ServerSettings{Auth: rig.Auth(rig.Key("acme", "ann"), rig.Key("other", "bob")), DefaultAgent: "echo"},
		}))
	}
	t.Cleanup(release)
	var sending sync.WaitGroup
	for r, target := range targets {
		c, err := rig.NewGRPC(target.As("acme", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		for w := range 10 {
			sending.Go(func() {
				for i := range 30 {
					req := rig.Text("slow", fmt.Sprintf("flood-%d-%d-%d", r, w, i), "x")
					req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
					if _, err := c.Send(within(t), req); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	sending.Wait()
	return targets, release
}

// echoes has account other begin tasks of echo, one after the other, and fails if one takes longer than
// two seconds.
func echoes(t *testing.T, targets []rig.Target, n int) {
	t.Helper()
	for r, target := range targets {
		c, err := rig.NewGRPC(target.As("other", "bob"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range n {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			resp, err := c.Send(ctx, rig.Text("echo", fmt.Sprintf("echo-%d-%d", r, i), "hi"))
			cancel()
			task := proto.CloneOf(resp.GetTask())
			if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED && resp.GetMessage() == nil {
				t.Fatalf("call %d of another account at replica %d: %v, %v", i, r, resp, err)
			}
		}
	}
}

// TestP11_SlowTasksOfOneAccount has one account begin more slow tasks than there are slots. The tasks of
// another account are answered, and those of the first end when they can.
func TestP11_SlowTasksOfOneAccount(t *testing.T) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		targets, release := flooded(t, at, 1)
		echoes(t, targets, 5)
		release()
		completed(t, targets[0], 300)
	})
}

// TestP11_SlowTasksOnThreeReplicas does the same on replicas that share a store.
func TestP11_SlowTasksOnThreeReplicas(t *testing.T) {
	at := rig.PostgreSQL(t)
	targets, release := flooded(t, at, 3)
	echoes(t, targets, 3)
	release()
	completed(t, targets[0], 900)
}

// completed waits until n tasks of acme/ann are completed.
func completed(t *testing.T, target rig.Target, n int) {
	t.Helper()
	completedBy(t, target, n, "ann")
}

// completedBy waits until n tasks of principals of account acme are completed.
func completedBy(t *testing.T, target rig.Target, n int, principals ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients []rig.Client
	for _, principal := range principals {
		c, err := rig.NewGRPC(target.As("acme", principal))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	for {
		all := int32(0)
		for _, c := range clients {
			list, err := c.List(ctx, &a2av1.ListTasksRequest{PageSize: proto.Int32(1), Status: a2av1.TaskState_TASK_STATE_COMPLETED})
			if err != nil {
				t.Fatal(err)
			}
			all += list.GetTotalSize()
		}
		if all == int32(n) {
			return
		}
	}
}
