package a2av03

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// ReadMixed decodes an answer in which the forms of 1.0 and 0.3 are mixed, such as an event with a
// kind and a state of 1.0, or a task of 1.0 with a file part of 0.3. What an object is follows from
// its kind, else from the fields that it has. m must be a StreamResponse, SendMessageResponse, Task
// or ListTasksResponse; answers of other types have one form.
func ReadMixed(b []byte, m proto.Message) error {
	n, err := parse(mixed, b)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *a2av1.StreamResponse:
		proto.Merge(m, n.event())
	case *a2av1.SendMessageResponse:
		n.sent(m)
	case *a2av1.Task:
		proto.Merge(m, n.task())
	case *a2av1.ListTasksResponse:
		n.tasks(m)
	default:
		n.wrong("", "has an unknown form")
	}
	return n.fault
}

// plainWord returns an enum value of any form in the words of RPC.
func plainWord(said string) string {
	said = strings.TrimPrefix(strings.TrimPrefix(said, "TASK_STATE_"), "ROLE_")
	if said = strings.ToLower(strings.ReplaceAll(said, "_", "-")); said == "cancelled" {
		return "canceled"
	}
	return said
}

// sent decodes the response to a send.
func (n node) sent(m *a2av1.SendMessageResponse) {
	switch e := n.event(); {
	case e.GetTask() != nil:
		m.Payload = &a2av1.SendMessageResponse_Task{Task: e.GetTask()}
	case e.GetMessage() != nil:
		m.Payload = &a2av1.SendMessageResponse_Message{Message: e.GetMessage()}
	default:
		n.wrong("", "is neither a task nor a message")
	}
}

// tasks decodes a page of tasks.
func (n node) tasks(m *a2av1.ListTasksResponse) {
	m.NextPageToken = n.text("nextPageToken")
	for _, t := range n.objects("tasks") {
		m.Tasks = append(m.Tasks, t.task())
	}
	if i := n.number("totalSize"); i != nil {
		m.TotalSize = *i
	}
	if i := n.number("pageSize"); i != nil {
		m.PageSize = *i
	}
}

// mixedEvent decodes an event or a response to a send by its kind, the field that wraps it, or its
// own fields.
func (n node) mixedEvent() *a2av1.StreamResponse {
	if n.has("kind") {
		return n.named(n.text("kind"))
	}
	for _, wrapper := range []string{"task", "message", "statusUpdate", "artifactUpdate"} {
		if n.has(wrapper) {
			at, _ := n.object(wrapper)
			return at.named(wrapper)
		}
	}
	switch {
	case n.has("artifact"):
		return n.named("artifact-update")
	case n.has("status") && n.has("taskId"):
		return n.named("status-update")
	case n.has("status"):
		return n.named("task")
	case n.has("role"):
		return n.named("message")
	}
	n.wrong("", "is neither a task nor a message nor an update")
	return nil
}

// Complete reports whether each response and each part in a message of 1.0 has its content. What a
// decoder of 1.0 does not know is missing there without an error.
func Complete(m proto.Message) bool {
	switch m.(type) {
	case *a2av1.StreamResponse, *a2av1.SendMessageResponse, *a2av1.Task, *a2av1.ListTasksResponse:
		return complete(m.ProtoReflect())
	}
	return true
}

func complete(m protoreflect.Message) bool {
	for i := range m.Descriptor().Oneofs().Len() {
		if of := m.Descriptor().Oneofs().Get(i); !of.IsSynthetic() && m.WhichOneof(of) == nil {
			return false
		}
	}
	ok := true
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil || fd.IsMap() || fd.Message().ParentFile().Package() == "google.protobuf":
		case fd.IsList():
			for i := range v.List().Len() {
				ok = ok && complete(v.List().Get(i).Message())
			}
		default:
			ok = complete(v.Message())
		}
		return ok
	})
	return ok
}
