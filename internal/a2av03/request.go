package a2av03

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// ReadSend decodes the parameters of message/send or message/stream. In JSON-RPC a missing
// "blocking" means true; in REST it means false, because ProtoJSON omits false values.
func (f Form) ReadSend(b []byte) (*a2av1.SendMessageRequest, error) {
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	name := "message"
	if f == REST && !n.has(name) && n.has("request") {
		name = "request" // the proto name of the field, whose JSON name is message
	}
	req := &a2av1.SendMessageRequest{Message: n.messageAt(name), Metadata: n.data("metadata")}
	if c, ok := n.object("configuration"); ok {
		req.Configuration = c.configuration()
	}
	return req, n.fault
}

func (n node) configuration() *a2av1.SendMessageConfiguration {
	c := &a2av1.SendMessageConfiguration{AcceptedOutputModes: n.texts("acceptedOutputModes"), HistoryLength: n.number("historyLength")}
	if n.form == REST || n.has("blocking") {
		c.ReturnImmediately = !n.flag("blocking")
	}
	if p, ok := n.object(n.form.words().push); ok {
		c.TaskPushNotificationConfig = p.push()
	}
	return c
}

// push decodes a webhook without its task.
func (n node) push() *a2av1.TaskPushNotificationConfig {
	p := &a2av1.TaskPushNotificationConfig{Id: n.text("id"), Url: n.text("url"), Token: n.text("token")}
	if a, ok := n.object("authentication"); ok {
		p.Authentication = &a2av1.AuthenticationInfo{Credentials: a.text("credentials")}
		schemes := a.texts("schemes")
		if len(schemes) == 0 {
			a.wrong("schemes", "must name a scheme, such as Bearer")
			return p
		}
		p.Authentication.Scheme = schemes[0] // schemes are alternatives
	}
	return p
}

// ReadTaskQuery decodes the parameters of tasks/get.
func ReadTaskQuery(b []byte) (*a2av1.GetTaskRequest, error) {
	n, err := parse(RPC, b)
	if err != nil {
		return nil, err
	}
	req := &a2av1.GetTaskRequest{Id: n.text("id"), HistoryLength: n.number("historyLength")}
	return req, n.fault
}

// ReadCancel decodes the parameters of tasks/cancel.
func ReadCancel(b []byte) (*a2av1.CancelTaskRequest, error) {
	n, err := parse(RPC, b)
	if err != nil {
		return nil, err
	}
	req := &a2av1.CancelTaskRequest{Id: n.text("id"), Metadata: n.data("metadata")}
	return req, n.fault
}

// ReadResubscribe decodes the parameters of tasks/resubscribe.
func ReadResubscribe(b []byte) (*a2av1.SubscribeToTaskRequest, error) {
	n, err := parse(RPC, b)
	if err != nil {
		return nil, err
	}
	req := &a2av1.SubscribeToTaskRequest{Id: n.text("id")}
	return req, n.fault
}

// ReadList decodes the parameters of tasks/list, which 0.3 does not define but the official
// Go SDK calls.
func ReadList(b []byte) (*a2av1.ListTasksRequest, error) {
	n, err := parse(REST, b) // accepts camel case and snake case
	if err != nil {
		return nil, err
	}
	req := &a2av1.ListTasksRequest{
		ContextId: n.text("contextId"), PageSize: n.number("pageSize"), PageToken: n.text("pageToken"),
		HistoryLength: n.number("historyLength"), StatusTimestampAfter: n.time("lastUpdatedAfter"),
	}
	if n.has("includeArtifacts") {
		req.IncludeArtifacts = proto.Bool(n.flag("includeArtifacts"))
	}
	if n.has("status") {
		if req.Status, err = RPC.State(n.text("status")); err != nil {
			n.wrong("status", "must be a state, such as working")
		}
	}
	return req, n.fault
}

// ReadPush decodes the request to set a webhook of a task. In REST the task is in the path.
func (f Form) ReadPush(b []byte) (*a2av1.TaskPushNotificationConfig, error) {
	n, err := parse(f, b)
	if err != nil {
		return nil, err
	}
	id := ""
	outer := n
	if c, ok := n.object("config"); ok && f == REST {
		id, outer = n.text("configId"), c
	}
	inner, ok := outer.object("pushNotificationConfig")
	if !ok {
		outer.wrong("pushNotificationConfig", "is required")
	}
	p := inner.push()
	if f == RPC {
		p.TaskId = n.text("taskId")
	}
	if p.GetId() == "" {
		p.Id = id
	}
	return p, n.fault
}

// ReadPushID decodes the IDs of a task and a webhook. An empty webhook ID means any
// webhook.
func ReadPushID(b []byte) (task, id string, err error) {
	n, err := parse(RPC, b)
	if err != nil {
		return "", "", err
	}
	task, id = n.text("id"), n.text("pushNotificationConfigId")
	return task, id, n.fault
}

// WriteSend encodes the parameters of message/send or message/stream.
func (f Form) WriteSend(req *a2av1.SendMessageRequest) ([]byte, error) {
	o := object{"message": f.message(req.GetMessage())}
	o.data("metadata", req.GetMetadata())
	if c := req.GetConfiguration(); c != nil {
		conf := object{"blocking": structpb.NewBoolValue(!c.GetReturnImmediately())}
		conf.texts("acceptedOutputModes", c.GetAcceptedOutputModes())
		conf.number("historyLength", c.HistoryLength)
		if p := c.GetTaskPushNotificationConfig(); p != nil {
			conf[f.words().push] = push(p)
		}
		o["configuration"] = conf.value()
	}
	return render(o)
}

// WriteTaskQuery encodes the parameters of tasks/get.
func WriteTaskQuery(req *a2av1.GetTaskRequest) ([]byte, error) {
	o := object{}
	o.text("id", req.GetId())
	o.number("historyLength", req.HistoryLength)
	return render(o)
}

// WriteTaskID encodes the parameters of tasks/cancel or tasks/resubscribe.
func WriteTaskID(id string, metadata *structpb.Struct) ([]byte, error) {
	o := object{}
	o.text("id", id)
	o.data("metadata", metadata)
	return render(o)
}

// State parses the name of a state.
func (f Form) State(word string) (a2av1.TaskState, error) {
	n := node{&reader{form: f}, "", map[string]*structpb.Value{"state": structpb.NewStringValue(word)}}
	s := n.state()
	return s, n.fault
}
