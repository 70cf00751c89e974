package a2av03

import (
	"slices"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// What only clients of 0.3 encode and decode: requests, and the responses to them.

// Is reports whether a version, as a card or a call names it, is 0.3.
func Is(version string) bool {
	return version == Version || strings.HasPrefix(version, Version+".")
}

// ReadAnswer decodes the response to a send: a task or a message.
func (f Form) ReadAnswer(b []byte) (*a2av1.SendMessageResponse, error) {
	r, err := f.ReadEvent(b)
	switch {
	case err != nil:
		return nil, err
	case r.GetMessage() != nil:
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: r.GetMessage()}}, nil
	case r.GetTask() != nil:
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: r.GetTask()}}, nil
	}
	return nil, wire.Invalid("kind", "must be task or message")
}

// pageNames returns the names of the fields in a page of tasks.
func (f Form) pageNames() (next, total, size string) {
	if f == REST {
		return "nextPageToken", "totalSize", "pageSize"
	}
	return "next_page_token", "total_size", "page_size"
}

// ReadTasks decodes a page of tasks.
func (f Form) ReadTasks(b []byte) (*a2av1.ListTasksResponse, error) {
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	next, total, size := f.pageNames()
	r := &a2av1.ListTasksResponse{NextPageToken: n.text(next)}
	for _, t := range n.objects("tasks") {
		r.Tasks = append(r.Tasks, t.task())
	}
	if i := n.number(total); i != nil {
		r.TotalSize = *i
	}
	if i := n.number(size); i != nil {
		r.PageSize = *i
	}
	return r, n.fault
}

// WriteList encodes the parameters of tasks/list in the form of the official Go SDK.
func WriteList(req *a2av1.ListTasksRequest) ([]byte, error) {
	o := object{}
	o.text("context_id", req.GetContextId())
	o.text("page_token", req.GetPageToken())
	o.number("page_size", req.PageSize)
	o.number("history_length", req.HistoryLength)
	o.flag("include_artifacts", req.GetIncludeArtifacts())
	if req.GetStatus() != 0 {
		o.text("status", RPC.Word(req.GetStatus()))
	}
	if at := req.GetStatusTimestampAfter(); at != nil {
		o.text("last_updated_after", at.AsTime().Format(time.RFC3339Nano))
	}
	return render(o)
}

// Word returns the name of a state. State parses it.
func (f Form) Word(s a2av1.TaskState) string { return f.words().states[s] }

// WritePushRequest encodes the request to set a webhook of a task.
func (f Form) WritePushRequest(p *a2av1.TaskPushNotificationConfig) ([]byte, error) {
	if f == RPC {
		return f.WritePush(p)
	}
	o := object{"config": f.push(p)}
	o.text("parent", "tasks/"+p.GetTaskId())
	o.text("configId", p.GetId())
	return render(o)
}

// WritePushID encodes the IDs of a task and a webhook; without a webhook ID the server
// chooses one.
func WritePushID(task, id string) ([]byte, error) {
	o := object{}
	o.text("id", task)
	o.text("pushNotificationConfigId", id)
	return render(o)
}

// ReadTaskPush decodes the webhook of a task in a response.
func (f Form) ReadTaskPush(b []byte) (*a2av1.TaskPushNotificationConfig, error) {
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	p := n.taskPush()
	return p, n.fault
}

func (n node) taskPush() *a2av1.TaskPushNotificationConfig {
	inner, ok := n.object("pushNotificationConfig")
	if !ok {
		n.wrong("pushNotificationConfig", "is required")
	}
	p := inner.push()
	if n.form == RPC {
		p.TaskId = n.text("taskId")
		return p
	}
	if name := strings.Split(n.text("name"), "/"); len(name) == 4 { // tasks/TASK/pushNotificationConfigs/ID
		p.TaskId = name[1]
		if p.GetId() == "" {
			p.Id = name[3]
		}
	}
	return p
}

// ReadPushes decodes the webhooks of a task.
func (f Form) ReadPushes(b []byte) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	if f == RPC {
		if len(b) == 0 {
			b = []byte("null")
		}
		b = slices.Concat([]byte(`{"configs":`), b, []byte("}"))
	}
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	r := &a2av1.ListTaskPushNotificationConfigsResponse{}
	if f == REST {
		r.NextPageToken = n.text("nextPageToken")
	}
	for _, c := range n.objects("configs") {
		r.Configs = append(r.Configs, c.taskPush())
	}
	return r, n.fault
}
