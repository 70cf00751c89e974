package server_test

import (
	"context"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/tests/rig"
)

// A message for which there is no memory yet is received when there is, over each binding: callers that were refused at
// once would come back at once.
func TestP11_MessagesWaitForMemory(t *testing.T) {
	const account, size = "acme", 100 << 20
	full := make(chan struct{}, 1)
	budget := inflight.New(size, func(string) int { // called when an account holds much
		select {
		case full <- struct{}{}:
		default:
		}
		return 1
	})
	p := &probe{send: func(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: &a2av1.Task{Id: "t1"}}}, nil
	}}
	target := start(t, server.Config{Handler: p, Auth: byKeys(key("ann", account, "secret")), Memory: budget})
	target.Key = "secret"
	for _, c := range rig.Clients(t, target) {
		t.Run(c.Binding(), func(t *testing.T) {
			select {
			case <-full:
			default:
			}
			hold := budget.Take(inflight.Request, account, size*4/5)
			go func() {
				<-full
				hold.Release()
			}()
			if _, err := c.Send(t.Context(), rig.Text("a", "m-"+c.Binding(), "hi")); err != nil {
				t.Error(err)
			}
		})
	}
}
