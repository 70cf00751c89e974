package tests

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// spoiler changes fields of a request at random, to what may be right or wrong.
type spoiler struct{ *rapid.T }

// spoil changes one field of a message, or of what it holds.
func (s spoiler) spoil(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	fd := fields.Get(rapid.IntRange(0, fields.Len()-1).Draw(s.T, "field"))
	inner := fd.Kind() == protoreflect.MessageKind
	switch {
	case rapid.IntRange(0, 9).Draw(s.T, "clear") == 0:
		m.Clear(fd)
	case inner && fd.Message().FullName() == "google.protobuf.Struct":
		m.Set(fd, protoreflect.ValueOfMessage(someObject(2).Draw(s.T, "object").ProtoReflect()))
	case inner && fd.Message().FullName() == "google.protobuf.Value":
		m.Set(fd, protoreflect.ValueOfMessage(someValue(2).Draw(s.T, "value").ProtoReflect()))
	case fd.IsList():
		s.list(m.Mutable(fd).List(), fd, inner)
	case inner:
		s.spoil(m.Mutable(fd).Message())
	default:
		m.Set(fd, s.scalar(fd))
	}
}

func (s spoiler) list(l protoreflect.List, fd protoreflect.FieldDescriptor, inner bool) {
	if n := l.Len(); n > 0 && inner && rapid.Bool().Draw(s.T, "one that is there") {
		s.spoil(l.Get(rapid.IntRange(0, n-1).Draw(s.T, "which")).Message())
		return
	}
	v := l.NewElement()
	if inner {
		s.spoil(v.Message())
	} else {
		v = s.scalar(fd)
	}
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 33, 101}).Draw(s.T, "more") {
		l.Append(v)
	}
}

func (s spoiler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(s.T, "bool"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(rapid.SampledFrom([]protoreflect.EnumNumber{0, 1, 1, 2, 3, 99, -1}).Draw(s.T, "enum"))
	case protoreflect.Int32Kind:
		numbers := []int32{1, 2, 100, 101, -1, 1<<31 - 1, -1 << 31}
		if fd.Name() != "page_size" { // over gRPC alone 0 means that none is given
			numbers = append(numbers, 0)
		}
		return protoreflect.ValueOfInt32(rapid.SampledFrom(numbers).Draw(s.T, "int32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64Range(0, 1<<34).Draw(s.T, "int64"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(s.T, "bytes"))
	}
	return protoreflect.ValueOfString(s.text(fd))
}

// text is one that fits its field now and then. What is part of a path over REST is
// never empty there, and has nothing that a path means otherwise.
func (s spoiler) text(fd protoreflect.FieldDescriptor) string {
	texts := []string{"nothing", "x", "a b", "ä", long(129), "a/b"}
	switch fd.Name() {
	case "id", "task_id":
	case "message_id": // one that fits would be known the next time
		texts = []string{"", "a b", "ä", long(129), "\x00"}
	case "tenant":
		texts = append(texts, "echoes", "asks", "reads", "")
	case "url":
		texts = append(texts, "http://127.0.0.1:1/x", "https://127.0.0.1:1", "", "ftp://x", "http://a:b@c")
	default:
		texts = append(texts, "", "\x00", "text/plain", "image/png", "Bearer", "\n")
	}
	return rapid.SampledFrom(texts).Draw(s.T, "text")
}

// TestA_01_AnyRequest: whatever is changed of whatever request, right or wrong, it
// is answered alike over every binding.
func TestA_01_AnyRequest(t *testing.T) {
	sample.Checks(t, 600)
	agents, d := theCast(t)
	t.Cleanup(d.letGo)
	clients := rig.Clients(t, rig.Serve(t, server.Config{Agents: agents, Push: hasty}))
	ops := operations()
	var n, answered, refused atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		op := ops[rapid.IntRange(0, len(ops)-1).Draw(rt, "operation")]
		from := rapid.SampledFrom([]string{"", "echoes", "asks"}).Draw(rt, "task")
		switch {
		case op.rpc == "SubscribeToTask": // else it would be told until somebody answers
			from = "echoes"
		case from == "" && op.rpc != "SendMessage" && op.rpc != "SendStreamingMessage" && op.rpc != "ListTasks":
			from = "asks"
		}
		tenant := rapid.SampledFrom([]string{"echoes", "reads", "direct"}).Draw(rt, "agent")
		if from != "" {
			tenant = ""
		}
		var request proto.Message // as it was changed, for all bindings
		run := n.Add(1)
		var first string
		for i, c := range clients {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			own := map[string]string{ownMessage: fmt.Sprintf("m-%d-%d", i, run)}
			a := about{tenant: tenant, id: ownMessage, after: 1}
			if from != "" {
				a.task = ownTask
				own[ownTask] = send(t, c, rig.Text(from, fmt.Sprintf("m-%d-begins-%d", i, run), "High tide")).GetId()
			}
			a.change = func(req proto.Message) {
				if request == nil {
					request = spoilt(rt, req)
				}
				proto.Reset(req)
				proto.Merge(req, request)
				owned(req, own)
			}
			got := op.do(ctx, c.(rig.PushClient), a)
			text := outcome(ctx, t, c, request, got)
			forget(ctx, t, c.(rig.PushClient), got)
			cancel()
			if got.Fault == nil {
				answered.Add(1)
			} else {
				refused.Add(1)
			}
			if i == 0 {
				first = text
			} else if text != first {
				rt.Fatalf("%s of %v\nover %s\n%.3000s\nover %s\n%.3000s", op.name, request, clients[0].Binding(), first, c.Binding(), text)
			}
		}
	})
	t.Logf("%d requests over 3 bindings: %d answered, %d refused", n.Load(), answered.Load(), refused.Load())
}

// What stands for the ids that each binding has its own of.
const (
	ownTask    = "own-task"
	ownMessage = "own-message"
)

// spoilt is a request that is changed, if JSON and a path can say it.
func spoilt(rt *rapid.T, req proto.Message) proto.Message {
	for range rapid.IntRange(1, 3).Draw(rt, "changes") {
		spoiler{rt}.spoil(req.ProtoReflect())
	}
	if _, err := wire.Marshal(req); err != nil {
		rt.Skip("JSON cannot say it")
	}
	for _, id := range ids(req) {
		if *id == "" {
			rt.Skip("a path cannot say it")
		}
	}
	return proto.CloneOf(req)
}

// ids are what stands in the path of a request over REST, besides the tenant.
func ids(m proto.Message) []*string {
	switch req := m.(type) {
	case *a2av1.GetTaskRequest:
		return []*string{&req.Id}
	case *a2av1.CancelTaskRequest:
		return []*string{&req.Id}
	case *a2av1.SubscribeToTaskRequest:
		return []*string{&req.Id}
	case *a2av1.TaskPushNotificationConfig:
		return []*string{&req.TaskId}
	case *a2av1.GetTaskPushNotificationConfigRequest:
		return []*string{&req.TaskId, &req.Id}
	case *a2av1.DeleteTaskPushNotificationConfigRequest:
		return []*string{&req.TaskId, &req.Id}
	case *a2av1.ListTaskPushNotificationConfigsRequest:
		return []*string{&req.TaskId}
	}
	return nil
}

// owned puts a binding's own ids into a request.
func owned(m proto.Message, own map[string]string) {
	list := ids(m)
	if req, ok := m.(*a2av1.SendMessageRequest); ok && req.GetMessage() != nil {
		list = []*string{&req.Message.MessageId, &req.Message.TaskId}
	}
	for _, id := range list {
		if is := own[*id]; is != "" {
			*id = is
		}
	}
}

// forget deletes what an answer says of receivers: an owner may have so many.
func forget(ctx context.Context, t *testing.T, c rig.PushClient, got tried) {
	t.Helper()
	id := ""
	switch m := got.Answer.(type) {
	case *a2av1.TaskPushNotificationConfig:
		id = m.GetTaskId()
	case *a2av1.Task:
		id = m.GetId()
	}
	if len(got.Events) > 0 {
		id = got.Events[0].GetTask().GetId()
	}
	list, err := c.ListPushes(ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: id})
	if id == "" || err != nil {
		return // there is nothing
	}
	for _, conf := range list.GetConfigs() {
		if err := c.DeletePush(ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: id, Id: conf.GetId()}); err != nil {
			t.Fatal(err)
		}
	}
}

// outcome is what came of a request, as far as it is the same each time.
func outcome(ctx context.Context, t *testing.T, c rig.Client, request proto.Message, got tried) string {
	t.Helper()
	switch req := request.(type) {
	case *a2av1.ListTasksRequest:
		if got.Fault == nil {
			return "a page of what there is by now"
		}
	case *a2av1.SendMessageRequest:
		if got.Fault == nil && req.GetConfiguration().GetReturnImmediately() {
			return "some task that is under way"
		}
	}
	if len(got.Events) > 0 && got.Events[0].GetTask() != nil { // how far it was then is a matter of time
		task, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: got.Events[0].GetTask().GetId()})
		if err != nil {
			t.Fatal(err)
		}
		got.Answer, got.Events = task, nil
	}
	return alike(t, got)
}
