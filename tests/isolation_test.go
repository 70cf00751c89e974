package tests

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// isolatedFile has an agent that asks, and callers of two accounts; two of them share one.
const isolatedFile = `version: v1
agents: {asker: {scripted: {steps: [{text: "first"}, {ask: "Go on?"}, {text: "done"}]}}}
server:
  egress: {allow: [127.0.0.0/8]}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`

// TestT_1_T_2_ForeignTasks: every operation on a task of another caller is answered like one on an id
// that was never used, on every binding, and leaves the task as it is.
func TestT_1_T_2_ForeignTasks(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := whole.Open(t, at, isolatedFile, fakellm.New(t))
		for i, client := range rig.Clients(t, h.Target) {
			ann, ok := client.(rig.PushClient)
			if !ok {
				t.Fatalf("%T", client)
			}
			sent, err := ann.Send(t.Context(), rig.Text("asker", "m-"+ann.Binding(), "hello"))
			if err != nil {
				t.Fatal(err)
			}
			id := sent.GetTask().GetId()
			config, err := ann.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: id, Url: "http://127.0.0.1:9/hook"})
			if err != nil {
				t.Fatal(err)
			}
			before, err := ann.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			for _, who := range []rig.Target{h.As("other", "eve"), h.As("acme", "bob")} {
				c, _ := rig.Clients(t, who)[i].(rig.PushClient)
				for what, call := range foreignCalls(t, c, config.GetId()) {
					const random = "01a21505-0000-7000-8000-000000000000"
					got, want := rig.Fault(call(id)), rig.Fault(call(random))
					if got == nil || want == nil || got.Code != want.Code || got.Reason != want.Reason || strings.ReplaceAll(got.Message, id, random) != want.Message {
						t.Errorf("%s %s: %v, of an unknown task: %v", c.Binding(), what, got, want)
					}
				}
				if list, err := c.List(t.Context(), &a2av1.ListTasksRequest{ContextId: before.GetContextId()}); err != nil || len(list.GetTasks()) > 0 || list.GetTotalSize() != 0 {
					t.Errorf("T-3 %s lists %v, %v", c.Binding(), list, err)
				}
			}
			after, err := ann.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
			if err != nil || !proto.Equal(before, after) {
				t.Errorf("%s: the task was %v and is %v, %v", ann.Binding(), before, after, err)
			}
		}
	})
}

// foreignCalls are the operations on a task.
func foreignCalls(t *testing.T, c rig.PushClient, config string) map[string]func(id string) error {
	ctx := t.Context()
	return map[string]func(id string) error{
		"get":    func(id string) error { _, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: id}); return err },
		"cancel": func(id string) error { _, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: id}); return err },
		"subscribe": func(id string) error {
			_, err := rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0))
			return err
		},
		"send": func(id string) error {
			req := rig.Text("asker", "to-"+id, "yes")
			req.Message.TaskId = id
			_, err := c.Send(ctx, req)
			return err
		},
		"refer": func(id string) error {
			req := rig.Text("asker", "ref-"+id, "yes")
			req.Message.ReferenceTaskIds = []string{id}
			_, err := c.Send(ctx, req)
			return err
		},
		"create push": func(id string) error {
			_, err := c.CreatePush(ctx, &a2av1.TaskPushNotificationConfig{TaskId: id, Url: "http://127.0.0.1:9/hook"})
			return err
		},
		"get push": func(id string) error {
			_, err := c.GetPush(ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: id, Id: config})
			return err
		},
		"list pushes": func(id string) error {
			_, err := c.ListPushes(ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: id})
			return err
		},
		"delete push": func(id string) error {
			return c.DeletePush(ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: id, Id: config})
		},
	}
}
