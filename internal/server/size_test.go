package server_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// grown is a task that has a size as it is encoded.
func grown(size int) *a2av1.Task {
	t := &a2av1.Task{Id: "t1", Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING}}
	m := agent.UserMessage("m", strings.Repeat("x", size-100))
	t.History = []*a2av1.Message{m}
	m.Parts = agent.TextParts(agent.Text(m) + strings.Repeat("x", size-proto.Size(t)))
	return t
}

// TestA_01_AnswersTooLarge: what is too large for one of the bindings is refused by
// all of them, in the same words; what is not comes over each.
func TestA_01_AnswersTooLarge(t *testing.T) {
	var size int
	once := func() (iter.Seq2[a2a.Update, error], error) {
		return func(yield func(a2a.Update, error) bool) {
			yield(a2a.Update{Seq: 1, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: grown(size)}}}, nil)
		}, nil
	}
	target := start(t, server.Config{Handler: &probe{
		get: func(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error) { return grown(size), nil },
		list: func(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
			return &a2av1.ListTasksResponse{Tasks: []*a2av1.Task{grown(size)}}, nil
		},
		send: func(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
			return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: grown(size)}}, nil
		},
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[a2a.Update, error], error) { return once() },
		subscribe: func(context.Context, *a2av1.SubscribeToTaskRequest, int64) (iter.Seq2[a2a.Update, error], error) {
			return once()
		},
	}})
	clients := append(rig.Clients(t, target), rig.ClientsV03(t, target)...)
	for name, call := range map[string]func(rig.Client) error{
		"get": func(c rig.Client) error {
			_, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
			return err
		},
		"list": func(c rig.Client) error {
			_, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
			return err
		},
		"send": func(c rig.Client) error {
			_, err := c.Send(t.Context(), rig.Text("", "m", "x"))
			return err
		},
		"stream": func(c rig.Client) error {
			_, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
			return err
		},
		"subscribe": func(c rig.Client) error {
			_, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var first *rig.Error
			for _, c := range clients {
				if name == "list" && strings.HasSuffix(c.Binding(), "0.3") {
					continue // it has none
				}
				if name == "get" || name == "stream" { // the others take as long
					size = wire.MaxEvent - 16<<10
					if err := call(c); err != nil {
						t.Errorf("%s: a task of %d bytes: %v", c.Binding(), size, err)
					}
				}
				size = wire.MaxEvent + 1
				f := rig.Fault(call(c))
				if f == nil || f.Reason != "INSUFFICIENT_RESOURCES" || f.Details["max_bytes"] != "16777216" || !strings.Contains(f.Message, "historyLength") {
					t.Errorf("%s: a task of %d bytes: %+v", c.Binding(), size, f)
					continue
				}
				if first == nil {
					first = f
				}
				if !rig.Same(first, f) {
					t.Errorf("%s: %+v\nand others: %+v", c.Binding(), f, first)
				}
				if f.Details["task_id"] != "t1" && name != "list" && name != "get" {
					t.Errorf("%s: the task is not named: %v", c.Binding(), f.Details)
				}
			}
		})
	}
}
