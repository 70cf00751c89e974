package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// result is what a step was answered.
type result struct {
	status int
	body   any
	events []any  // of a stream: the payload of each event, and for JSON-RPC in raw steps the whole response
	fault  *fault // nil without an error
}

// fault is an error in an answer.
type fault struct {
	name    string // of the error, as ACTS names it
	message string
	data    any
}

// errorNames are the names that ACTS gives to the reasons of errors.
var errorNames = map[string]string{
	"TASK_NOT_FOUND": "TaskNotFoundError", "TASK_NOT_CANCELABLE": "TaskNotCancelableError", "UNSUPPORTED_OPERATION": "UnsupportedOperationError",
	"CONTENT_TYPE_NOT_SUPPORTED": "ContentTypeNotSupportedError", "INVALID_REQUEST": "InvalidParamsError", "VERSION_NOT_SUPPORTED": "VersionNotSupportedError",
	"PUSH_NOTIFICATION_NOT_SUPPORTED": "PushNotificationNotSupportedError", "EXTENSION_SUPPORT_REQUIRED": "ExtensionSupportRequiredError",
	"EXTENDED_AGENT_CARD_NOT_CONFIGURED": "ExtendedCardNotSupportedError",
}

// sut is the system under test.
type sut struct {
	http, grpc string // base URL, and host:port
	token      string // for bearer authentication; empty for none
}

const callTime = 30 * time.Second

// operation is an operation of A2A: its message types, its JSON-RPC method and its REST call, in which {x} stands for a
// field of the parameters.
type operation struct {
	method, verb, path string
	stream             bool
	request            func() proto.Message
}

var operations = map[string]operation{
	"send_message":                    {"SendMessage", "POST", "/message:send", false, func() proto.Message { return &a2av1.SendMessageRequest{} }},
	"send_streaming_message":          {"SendStreamingMessage", "POST", "/message:stream", true, func() proto.Message { return &a2av1.SendMessageRequest{} }},
	"get_task":                        {"GetTask", "GET", "/tasks/{id}", false, func() proto.Message { return &a2av1.GetTaskRequest{} }},
	"list_tasks":                      {"ListTasks", "GET", "/tasks", false, func() proto.Message { return &a2av1.ListTasksRequest{} }},
	"cancel_task":                     {"CancelTask", "POST", "/tasks/{id}:cancel", false, func() proto.Message { return &a2av1.CancelTaskRequest{} }},
	"subscribe_to_task":               {"SubscribeToTask", "POST", "/tasks/{id}:subscribe", true, func() proto.Message { return &a2av1.SubscribeToTaskRequest{} }},
	"set_push_notification_config":    {"CreateTaskPushNotificationConfig", "POST", "/tasks/{taskId}/pushNotificationConfigs", false, func() proto.Message { return &a2av1.TaskPushNotificationConfig{} }},
	"get_push_notification_config":    {"GetTaskPushNotificationConfig", "GET", "/tasks/{taskId}/pushNotificationConfigs/{id}", false, func() proto.Message { return &a2av1.GetTaskPushNotificationConfigRequest{} }},
	"list_push_notification_configs":  {"ListTaskPushNotificationConfigs", "GET", "/tasks/{taskId}/pushNotificationConfigs", false, func() proto.Message { return &a2av1.ListTaskPushNotificationConfigsRequest{} }},
	"delete_push_notification_config": {"DeleteTaskPushNotificationConfig", "DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}", false, func() proto.Message { return &a2av1.DeleteTaskPushNotificationConfigRequest{} }},
	"get_extended_agent_card":         {"GetExtendedAgentCard", "GET", "/extendedAgentCard", false, func() proto.Message { return &a2av1.GetExtendedAgentCardRequest{} }},
}

// call carries out an operation over a binding: jsonrpc, rest or grpc.
func (s *sut) call(ctx context.Context, binding, name string, params map[string]any) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if name == "get_agent_card" && params["extended"] == nil {
		return s.do(ctx, http.MethodGet, "/.well-known/agent-card.json", nil, nil)
	}
	if name == "get_agent_card" {
		name, params = "get_extended_agent_card", map[string]any{}
	}
	op, ok := operations[name]
	if !ok {
		return nil, fmt.Errorf("unknown operation %q", name)
	}
	switch binding {
	case "rest":
		return s.rest(ctx, op, params)
	case "grpc":
		return s.overGRPC(ctx, op, params)
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": op.method, "params": params})
	if err != nil {
		return nil, err
	}
	r, err := s.do(ctx, http.MethodPost, "/", map[string]string{"Content-Type": "application/json"}, body)
	if err != nil || r.fault != nil {
		return r, err
	}
	for i, e := range r.events {
		r.events[i] = field(e, "result")
		if e := field(e, "error"); e != (missing{}) {
			r.fault = faultOf(e)
		}
	}
	if r.body = field(r.body, "result"); r.body == (missing{}) {
		r.body = nil
	}
	return r, nil
}

// rest carries out an operation over HTTP+JSON.
func (s *sut) rest(ctx context.Context, op operation, params map[string]any) (*result, error) {
	path, rest := op.path, map[string]any{}
	for name, v := range params {
		if strings.Contains(path, "{"+name+"}") {
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(fmt.Sprint(v)))
		} else {
			rest[name] = v
		}
	}
	if op.verb != http.MethodPost {
		query := url.Values{}
		for name, v := range rest {
			query.Set(name, fmt.Sprint(v))
		}
		return s.do(ctx, op.verb, path+"?"+query.Encode(), nil, nil)
	}
	body, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	return s.do(ctx, op.verb, path, map[string]string{"Content-Type": "application/a2a+json"}, body)
}

// do makes an HTTP request. Without headers it has those of an operation; with headers of a raw step, only these.
func (s *sut) do(ctx context.Context, method, path string, header map[string]string, body []byte) (*result, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.http+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if raw := header["X-Raw"] != ""; !raw {
		req.Header.Set("A2A-Version", "1.0")
		if s.token != "" {
			req.Header.Set("Authorization", "Bearer "+s.token)
		}
	}
	for k, v := range header {
		if k != "X-Raw" {
			req.Header.Set(k, v)
		}
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // the answer has been read
	r := &result{status: resp.StatusCode}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		r.events, err = readEvents(resp.Body)
		return r, err
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	_ = json.Unmarshal(data, &r.body) // a body that is not JSON stays nil
	if e := field(r.body, "error"); e != (missing{}) {
		r.fault = faultOf(e)
	}
	return r, nil
}

// readEvents reads the JSON of a stream of events until it ends.
func readEvents(body io.Reader) ([]any, error) {
	var events []any
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return events, fmt.Errorf("the event %q is not JSON: %w", data, err)
		}
		events = append(events, v)
	}
	return events, lines.Err()
}

// faultOf reads an error of JSON-RPC or REST.
func faultOf(e any) *fault {
	f := &fault{data: field(e, "data")}
	f.message, _ = field(e, "message").(string)
	details := field(e, "details")
	if details == (missing{}) {
		details = f.data
	}
	list, _ := details.([]any)
	for _, d := range list {
		if reason, ok := field(d, "reason").(string); ok {
			f.name = errorNames[reason]
		}
	}
	return f
}

func field(v any, name string) any {
	object, _ := v.(map[string]any)
	if f, ok := object[name]; ok {
		return f
	}
	return missing{}
}

// overGRPC carries out an operation over gRPC.
func (s *sut) overGRPC(ctx context.Context, op operation, params map[string]any) (*result, error) {
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // of a test
	ctx = metadata.AppendToOutgoingContext(ctx, "a2a-version", "1.0")
	if s.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
	}
	data, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	in := op.request()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, in); err != nil {
		return &result{fault: &fault{name: "InvalidParamsError", message: err.Error()}}, nil
	}
	r := &result{status: http.StatusOK}
	c := a2av1.NewA2AServiceClient(conn)
	switch in := in.(type) {
	case *a2av1.SendMessageRequest:
		if op.stream {
			stream, err := c.SendStreamingMessage(ctx, in)
			return r.stream(stream, err)
		}
		return r.unary(c.SendMessage(ctx, in))
	case *a2av1.SubscribeToTaskRequest:
		stream, err := c.SubscribeToTask(ctx, in)
		return r.stream(stream, err)
	case *a2av1.GetTaskRequest:
		return r.unary(c.GetTask(ctx, in))
	case *a2av1.ListTasksRequest:
		return r.unary(c.ListTasks(ctx, in))
	case *a2av1.CancelTaskRequest:
		return r.unary(c.CancelTask(ctx, in))
	case *a2av1.TaskPushNotificationConfig:
		return r.unary(c.CreateTaskPushNotificationConfig(ctx, in))
	case *a2av1.GetTaskPushNotificationConfigRequest:
		return r.unary(c.GetTaskPushNotificationConfig(ctx, in))
	case *a2av1.ListTaskPushNotificationConfigsRequest:
		return r.unary(c.ListTaskPushNotificationConfigs(ctx, in))
	case *a2av1.DeleteTaskPushNotificationConfigRequest:
		return r.unary(c.DeleteTaskPushNotificationConfig(ctx, in))
	case *a2av1.GetExtendedAgentCardRequest:
		return r.unary(c.GetExtendedAgentCard(ctx, in))
	}
	return nil, fmt.Errorf("no call for %T", in)
}

func (r *result) unary(m proto.Message, err error) (*result, error) {
	if err != nil {
		return r.refused(err), nil
	}
	r.body, err = toAny(m)
	return r, err
}

func (r *result) stream(stream grpc.ServerStreamingClient[a2av1.StreamResponse], err error) (*result, error) {
	for err == nil {
		var m *a2av1.StreamResponse
		if m, err = stream.Recv(); err == nil {
			var v any
			if v, err = toAny(m); err == nil {
				r.events = append(r.events, v)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return r, nil
	}
	return r.refused(err), nil
}

// refused sets the error of a call over gRPC. ACTS asks for an HTTP status, which gRPC has not.
func (r *result) refused(err error) *result {
	st := wire.Status(err)
	r.fault = &fault{name: errorNames[wire.InfoOf(st).GetReason()], message: st.Message()}
	return r
}

// toAny returns a message as its JSON is decoded.
func toAny(m proto.Message) (v any, err error) {
	data, err := wire.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}
