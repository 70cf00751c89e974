package a2av03

import (
	"encoding/base64"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// object is a JSON object to be encoded. Its methods set fields, but omit empty values.
type object map[string]*structpb.Value

func (o object) value() *structpb.Value { return structpb.NewStructValue(&structpb.Struct{Fields: o}) }

func (o object) text(name, s string) {
	if s != "" {
		o[name] = structpb.NewStringValue(s)
	}
}

func (o object) number(name string, n *int32) {
	if n != nil {
		o[name] = structpb.NewNumberValue(float64(*n))
	}
}

func (o object) flag(name string, b bool) {
	if b {
		o[name] = structpb.NewBoolValue(true)
	}
}

func (o object) data(name string, s *structpb.Struct) {
	if s != nil {
		o[name] = structpb.NewStructValue(s)
	}
}

func (o object) list(name string, values []*structpb.Value) {
	if len(values) > 0 {
		o[name] = list(values)
	}
}

func (o object) texts(name string, texts []string) {
	o.list(name, each(texts, structpb.NewStringValue))
}

func list(values []*structpb.Value) *structpb.Value {
	return structpb.NewListValue(&structpb.ListValue{Values: values})
}

func each[T any](items []T, of func(T) *structpb.Value) []*structpb.Value {
	values := make([]*structpb.Value, len(items))
	for i, item := range items {
		values[i] = of(item)
	}
	return values
}

// of returns an object of a kind; REST objects have no kind field.
func (f Form) of(kind string) object {
	if f == REST {
		return object{}
	}
	return object{"kind": structpb.NewStringValue(kind)}
}

func (f Form) message(m *a2av1.Message) *structpb.Value {
	o := f.of("message")
	o.text("messageId", m.GetMessageId())
	o.text("contextId", m.GetContextId())
	o.text("taskId", m.GetTaskId())
	o.data("metadata", m.GetMetadata())
	o.texts("extensions", m.GetExtensions())
	o.texts("referenceTaskIds", m.GetReferenceTaskIds())
	w := f.words()
	o[w.parts] = list(each(m.GetParts(), f.part))
	o.text("role", w.user)
	if m.GetRole() == a2av1.Role_ROLE_AGENT {
		o.text("role", w.agent)
	}
	return o.value()
}

func (f Form) part(p *a2av1.Part) *structpb.Value {
	metadata := p.GetMetadata()
	var o object
	switch c := p.GetContent().(type) {
	case *a2av1.Part_Raw:
		o = f.file(p, "bytes", "fileWithBytes", base64.StdEncoding.EncodeToString(c.Raw))
	case *a2av1.Part_Url:
		o = f.file(p, "uri", "fileWithUri", c.Url)
	case *a2av1.Part_Data:
		o = f.of("data")
		data := c.Data
		if data.GetStructValue() == nil {
			data, metadata = wrap(data), marked(metadata)
		}
		if f == REST {
			data = object{"data": data}.value()
		}
		o["data"] = data
	default:
		o = f.of("text")
		o["text"] = structpb.NewStringValue(p.GetText())
	}
	o.data("metadata", metadata)
	return o.value()
}

func (f Form) file(p *a2av1.Part, rpc, rest, content string) object {
	if f == REST {
		rpc = rest
	}
	file := object{rpc: structpb.NewStringValue(content)}
	file.text("mimeType", p.GetMediaType())
	file.text("name", p.GetFilename())
	o := f.of("file")
	o["file"] = file.value()
	return o
}

func wrap(v *structpb.Value) *structpb.Value { return object{"value": v}.value() }

func marked(metadata *structpb.Struct) *structpb.Struct {
	m := &structpb.Struct{Fields: map[string]*structpb.Value{wrapped: structpb.NewBoolValue(true)}}
	for k, v := range metadata.GetFields() {
		if k != wrapped {
			m.Fields[k] = v
		}
	}
	return m
}

func (f Form) status(s *a2av1.TaskStatus) *structpb.Value {
	o := object{}
	o.text("state", f.words().states[s.GetState()])
	if s.GetMessage() != nil {
		o["message"] = f.message(s.GetMessage())
	}
	if t := s.GetTimestamp(); t != nil {
		o.text("timestamp", t.AsTime().Format(time.RFC3339Nano))
	}
	return o.value()
}

func (f Form) artifact(a *a2av1.Artifact) *structpb.Value {
	o := object{"parts": list(each(a.GetParts(), f.part))}
	o.text("artifactId", a.GetArtifactId())
	o.text("name", a.GetName())
	o.text("description", a.GetDescription())
	o.data("metadata", a.GetMetadata())
	o.texts("extensions", a.GetExtensions())
	return o.value()
}

func (f Form) task(t *a2av1.Task) *structpb.Value {
	o := f.of("task")
	o["status"] = f.status(t.GetStatus())
	o["contextId"] = structpb.NewStringValue(t.GetContextId())
	o.text("id", t.GetId())
	o.list("artifacts", each(t.GetArtifacts(), f.artifact))
	o.list("history", each(t.GetHistory(), f.message))
	o.data("metadata", t.GetMetadata())
	return o.value()
}

func (f Form) statusUpdate(u *a2av1.TaskStatusUpdateEvent, final bool) *structpb.Value {
	o := f.of("status-update")
	o["status"] = f.status(u.GetStatus())
	o["contextId"] = structpb.NewStringValue(u.GetContextId())
	o["final"] = structpb.NewBoolValue(final)
	o.text("taskId", u.GetTaskId())
	o.data("metadata", u.GetMetadata())
	return o.value()
}

func (f Form) artifactUpdate(u *a2av1.TaskArtifactUpdateEvent) *structpb.Value {
	o := f.of("artifact-update")
	o["artifact"] = f.artifact(u.GetArtifact())
	o["contextId"] = structpb.NewStringValue(u.GetContextId())
	o.text("taskId", u.GetTaskId())
	o.flag("append", u.GetAppend())
	o.flag("lastChunk", u.GetLastChunk())
	o.data("metadata", u.GetMetadata())
	return o.value()
}

// WriteEvent encodes an event of a stream. final marks the last one.
func (f Form) WriteEvent(r *a2av1.StreamResponse, final bool) ([]byte, error) {
	name, v := "", (*structpb.Value)(nil)
	switch p := r.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		name, v = "task", f.task(p.Task)
	case *a2av1.StreamResponse_Message:
		name, v = "message", f.message(p.Message)
	case *a2av1.StreamResponse_StatusUpdate:
		name, v = "statusUpdate", f.statusUpdate(p.StatusUpdate, final)
	case *a2av1.StreamResponse_ArtifactUpdate:
		name, v = "artifactUpdate", f.artifactUpdate(p.ArtifactUpdate)
	}
	if f == REST {
		return render(object{name: v})
	}
	return render(v.GetStructValue().GetFields())
}

// WriteAnswer encodes the response to a send.
func (f Form) WriteAnswer(r *a2av1.SendMessageResponse) ([]byte, error) {
	if m := r.GetMessage(); m != nil {
		return f.WriteEvent(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: m}}, true)
	}
	return f.WriteEvent(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: r.GetTask()}}, true)
}

// WriteTask encodes a task. Webhooks that were set over 0.3 receive it, too.
func (f Form) WriteTask(t *a2av1.Task) ([]byte, error) {
	return render(f.task(t).GetStructValue().GetFields())
}

// WriteTasks encodes a page of tasks.
func (f Form) WriteTasks(r *a2av1.ListTasksResponse) ([]byte, error) {
	o := object{"tasks": list(each(r.GetTasks(), f.task))}
	next, total, size := f.pageNames()
	o[next] = structpb.NewStringValue(r.GetNextPageToken())
	o.number(total, &r.TotalSize)
	o.number(size, &r.PageSize)
	return render(o)
}

// push encodes a webhook without its task.
func push(p *a2av1.TaskPushNotificationConfig) *structpb.Value {
	o := object{}
	o.text("id", p.GetId())
	o["url"] = structpb.NewStringValue(p.GetUrl())
	o.text("token", p.GetToken())
	if a := p.GetAuthentication(); a != nil {
		auth := object{}
		auth.texts("schemes", []string{a.GetScheme()})
		auth.text("credentials", a.GetCredentials())
		o["authentication"] = auth.value()
	}
	return o.value()
}

func (f Form) push(p *a2av1.TaskPushNotificationConfig) *structpb.Value {
	o := object{"pushNotificationConfig": push(p)}
	if f == REST {
		o.text("name", "tasks/"+p.GetTaskId()+"/pushNotificationConfigs/"+p.GetId())
	} else {
		o.text("taskId", p.GetTaskId())
	}
	return o.value()
}

// WritePush encodes the webhook of a task.
func (f Form) WritePush(p *a2av1.TaskPushNotificationConfig) ([]byte, error) {
	return render(f.push(p).GetStructValue().GetFields())
}

// WritePushes encodes the webhooks of a task.
func (f Form) WritePushes(r *a2av1.ListTaskPushNotificationConfigsResponse) ([]byte, error) {
	configs := each(r.GetConfigs(), f.push)
	if f == RPC {
		return wire.Marshal(&structpb.ListValue{Values: configs})
	}
	o := object{"configs": list(configs)}
	o.text("nextPageToken", r.GetNextPageToken())
	return render(o)
}
