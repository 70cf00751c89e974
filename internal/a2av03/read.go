package a2av03

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

func (n node) message() *a2av1.Message {
	n.kind("message")
	m := &a2av1.Message{
		MessageId: n.text("messageId"), ContextId: n.text("contextId"), TaskId: n.text("taskId"), Role: n.role(),
		Metadata: n.data("metadata"), Extensions: n.texts("extensions"), ReferenceTaskIds: n.texts("referenceTaskIds"),
	}
	parts := n.form.words().parts
	if n.form == mixed && !n.has(parts) {
		parts = "content"
	}
	for _, p := range n.objects(parts) {
		m.Parts = append(m.Parts, p.part())
	}
	return m
}

// messageAt returns an optional message.
func (n node) messageAt(name string) *a2av1.Message {
	if o, ok := n.object(name); ok {
		return o.message()
	}
	return nil
}

func (n node) part() *a2av1.Part {
	p := &a2av1.Part{Metadata: n.data("metadata")}
	if n.form == mixed {
		p.Filename, p.MediaType = n.text("filename"), n.text("mediaType")
	}
	switch n.partKind() {
	case "text":
		p.Content = &a2av1.Part_Text{Text: n.needText("text")}
	case "file":
		n.file(p)
	case "data":
		n.structured(p)
	case "raw":
		p.Content = &a2av1.Part_Raw{Raw: n.raw("raw")}
	case "url":
		p.Content = &a2av1.Part_Url{Url: n.text("url")}
	}
	return p
}

// partKind returns the kind of a part. Except in RPC it follows from the field that is set.
func (n node) partKind() string {
	if n.form == RPC {
		kind := n.text("kind")
		if kind != "text" && kind != "file" && kind != "data" {
			n.wrong("kind", "must be text, file or data")
		}
		return kind
	}
	if n.form == mixed {
		return n.one("text", "file", "data", "raw", "url")
	}
	return n.one("text", "file", "data")
}

// one returns which one of some fields is set. It is an error if none or several are.
func (n node) one(names ...string) string {
	var there string
	for _, name := range names {
		switch {
		case n.has(name) && there != "":
			n.wrong("", "has more than one of "+strings.Join(names, ", "))
		case n.has(name):
			there = name
		}
	}
	if there == "" {
		n.wrong("", "has no content; set one of "+strings.Join(names, ", "))
	}
	return there
}

func (n node) file(p *a2av1.Part) {
	f, ok := n.object("file")
	if !ok {
		n.wrong("file", "is required")
		return
	}
	raw, uri := "bytes", "uri"
	if n.form == REST || n.form == mixed && (f.has("fileWithBytes") || f.has("fileWithUri")) {
		raw, uri = "fileWithBytes", "fileWithUri"
	}
	p.Filename, p.MediaType = f.text("name"), f.text("mimeType")
	switch f.one(raw, uri) {
	case raw:
		p.Content = &a2av1.Part_Raw{Raw: f.raw(raw)}
	case uri:
		p.Content = &a2av1.Part_Url{Url: f.text(uri)}
	}
}

// structured sets the data of a part. In A2A 0.3 data is always an object: a value that is not an
// object comes as the field value of one, which the metadata of the part marks as wrapped.
func (n node) structured(p *a2av1.Part) {
	if n.form == REST {
		n, _ = n.object("data")
	}
	if !n.has("data") {
		n.wrong("data", "is required")
	}
	if n.form == mixed {
		p.Content = &a2av1.Part_Data{Data: n.get("data")}
		return
	}
	v := structpb.NewStructValue(n.data("data"))
	if inner, ok := v.GetStructValue().GetFields()["value"]; ok && p.GetMetadata().GetFields()[wrapped].GetBoolValue() {
		v = inner
		delete(p.GetMetadata().GetFields(), wrapped)
		if len(p.GetMetadata().GetFields()) == 0 {
			p.Metadata = nil
		}
	}
	p.Content = &a2av1.Part_Data{Data: v}
}

func (n node) status() *a2av1.TaskStatus {
	s, ok := n.object("status")
	if !ok {
		n.wrong("status", "is required")
		return nil
	}
	return &a2av1.TaskStatus{State: s.state(), Message: s.messageAt("message"), Timestamp: s.time("timestamp")}
}

func (n node) artifact() *a2av1.Artifact {
	a := &a2av1.Artifact{
		ArtifactId: n.text("artifactId"), Name: n.text("name"), Description: n.text("description"),
		Metadata: n.data("metadata"), Extensions: n.texts("extensions"),
	}
	for _, p := range n.objects("parts") {
		a.Parts = append(a.Parts, p.part())
	}
	return a
}

func (n node) task() *a2av1.Task {
	n.kind("task")
	t := &a2av1.Task{Id: n.needText("id"), ContextId: n.text("contextId"), Status: n.status(), Metadata: n.data("metadata")}
	for _, a := range n.objects("artifacts") {
		t.Artifacts = append(t.Artifacts, a.artifact())
	}
	for _, m := range n.objects("history") {
		t.History = append(t.History, m.message())
	}
	return t
}

// taskID returns the id of an update's task, which mixed answers may leave out.
func (n node) taskID() string {
	if n.form == mixed {
		return n.text("taskId")
	}
	return n.needText("taskId")
}

func (n node) statusUpdate() *a2av1.TaskStatusUpdateEvent {
	n.kind("status-update")
	return &a2av1.TaskStatusUpdateEvent{
		TaskId: n.taskID(), ContextId: n.text("contextId"), Status: n.status(), Metadata: n.data("metadata"),
	}
}

func (n node) artifactUpdate() *a2av1.TaskArtifactUpdateEvent {
	n.kind("artifact-update")
	u := &a2av1.TaskArtifactUpdateEvent{
		TaskId: n.taskID(), ContextId: n.text("contextId"), Append: n.flag("append"), LastChunk: n.flag("lastChunk"),
		Metadata: n.data("metadata"),
	}
	a, ok := n.object("artifact")
	if !ok {
		n.wrong("artifact", "is required")
		return u
	}
	u.Artifact = a.artifact()
	return u
}

// event decodes an event of a stream, or the response to a send.
func (n node) event() *a2av1.StreamResponse {
	switch n.form {
	case mixed:
		return n.mixedEvent()
	case REST:
		at, _ := n.object(n.one("task", "message", "statusUpdate", "artifactUpdate"))
		return at.named(strings.TrimPrefix(at.path, "."))
	default:
		return n.named(n.needText("kind"))
	}
}

func (n node) named(kind string) *a2av1.StreamResponse {
	switch kind {
	case "task":
		return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: n.task()}}
	case "message":
		return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: n.message()}}
	case "status-update", "statusUpdate":
		return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_StatusUpdate{StatusUpdate: n.statusUpdate()}}
	case "artifact-update", "artifactUpdate":
		return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: n.artifactUpdate()}}
	}
	n.wrong("kind", "must be task, message, status-update or artifact-update")
	return nil
}

// ReadEvent decodes an event of a stream, or the response to a send.
func (f Form) ReadEvent(b []byte) (*a2av1.StreamResponse, error) {
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	r := n.event()
	return r, n.fault
}

// ReadTask decodes a task.
func (f Form) ReadTask(b []byte) (*a2av1.Task, error) {
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	t := n.task()
	return t, n.fault
}
