package server_test

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// What a task holds most of.
const (
	onePart     = "a part"
	oneValue    = "a value of metadata"
	smallValues = "small values of metadata"
)

// grown returns a task with an encoded size, most of which is content of one kind.
func grown(size int, kind string) *a2av1.Task {
	t := &a2av1.Task{Id: "t1", Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING}}
	switch kind {
	case oneValue:
		t.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", size)), "y": structpb.NewStringValue("z")}}
		return t
	case smallValues:
		t.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for i := range size / 1000 {
			t.Metadata.Fields[strconv.Itoa(i)] = structpb.NewStringValue(strings.Repeat("x", 1000))
		}
		return t
	}
	m := agent.UserMessage("m", strings.Repeat("x", size-100))
	t.History = []*a2av1.Message{m}
	m.Parts = agent.TextParts(agent.Text(m) + strings.Repeat("x", size-proto.Size(t)))
	return t
}

// TestA_01_AnswersTooLarge: if an answer is too large for one of the bindings, all of them
// replace parts by URLs; if that is not enough, all return the same error. With the race
// detector only gRPC and REST are tested.
func TestA_01_AnswersTooLarge(t *testing.T) {
	var size int
	var kind string
	once := func() (iter.Seq2[feed.Update, error], error) {
		return func(yield func(feed.Update, error) bool) {
			yield(feed.Update{Seq: 1, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: grown(size, kind)}}}, nil)
		}, nil
	}
	target := start(t, server.Config{Settings: settings.Of(&teamv1.ServerSettings{PublicUrl: "https://team.test"}), Handler: &probe{
		get: func(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error) { return grown(size, kind), nil },
		list: func(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
			return &a2av1.ListTasksResponse{Tasks: []*a2av1.Task{grown(size, kind)}}, nil
		},
		send: func(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
			return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: grown(size, kind)}}, nil
		},
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) { return once() },
		subscribe: func(context.Context, *a2av1.SubscribeToTaskRequest, int64) (iter.Seq2[feed.Update, error], error) {
			return once()
		},
	}})
	clients := append(rig.Clients(t, target), rig.ClientsV03(t, target)...)
	if !sample.All() {
		clients = clients[:2]
	}
	for name, call := range map[string]func(rig.Client) (*a2av1.Task, error){
		"get": func(c rig.Client) (*a2av1.Task, error) {
			return c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
		},
		"list": func(c rig.Client) (*a2av1.Task, error) {
			list, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
			return append(list.GetTasks(), nil)[0], err
		},
		"send": func(c rig.Client) (*a2av1.Task, error) {
			resp, err := c.Send(t.Context(), rig.Text("", "m", "x"))
			return resp.GetTask(), err
		},
		"stream": func(c rig.Client) (*a2av1.Task, error) {
			updates, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
			return append(updates, nil)[0].GetTask(), err
		},
		"subscribe": func(c rig.Client) (*a2av1.Task, error) {
			updates, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0))
			return append(updates, nil)[0].GetTask(), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var first *rig.Error
			for _, c := range clients {
				if name == "list" && strings.HasSuffix(c.Binding(), "0.3") {
					continue // it has none
				}
				if name == "get" || name == "stream" { // the others take as long
					size, kind = wire.MaxEvent-16<<10, onePart
					if task, err := call(c); err != nil || agent.Text(task.GetHistory()[0]) == "" {
						t.Errorf("%s: a task of %d bytes: %v", c.Binding(), size, err)
					}
				}
				size, kind = wire.MaxEvent+1, onePart
				task, err := call(c)
				if err != nil || !strings.HasPrefix(task.GetHistory()[0].GetParts()[0].GetUrl(), "https://team.test/tasks/t1/parts/") {
					t.Errorf("%s: a task of %d bytes: %d bytes, %v", c.Binding(), size, proto.Size(task), err)
				}
				kind = oneValue
				task, err = call(c)
				left := task.GetMetadata().GetFields()["x"].GetStructValue().GetFields()[project.TeamRunURI].GetStructValue().GetFields()
				if err != nil || !strings.HasPrefix(left["url"].GetStringValue(), "https://team.test/tasks/t1/parts/") || left["replaced"].GetStringValue() != "size" ||
					left["bytes"].GetStringValue() != strconv.Itoa(size+2) || task.GetMetadata().GetFields()["y"].GetStringValue() != "z" {
					t.Errorf("%s: metadata of %d bytes: %v, %v", c.Binding(), size, left, err)
				}
				kind = smallValues
				_, err = call(c)
				f := rig.Fault(err)
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
