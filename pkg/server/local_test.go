package server_test

import (
	"context"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// After Serve the default store is closed: calls return errors.
func TestLocal_CallsAfterServe(t *testing.T) {
	t.Parallel()
	l, err := server.NewLocal(server.Config{Agent: upper()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"})
	serving, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(serving) }()
	resp, err := l.Handler().SendMessage(ctx, rig.Text("", "m1", "hi"))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := l.Handler().GetTask(ctx, &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()}); err == nil {
		t.Error("a task was read from a store that is closed")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A Local that is never served is closed by Close.
func TestLocal_Close(t *testing.T) {
	t.Parallel()
	l, err := server.NewLocal(server.Config{Agent: upper()})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
