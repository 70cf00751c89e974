package a2a_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestA_04_Validation: every fault is named by the path of its field, all at once.
func TestA_04_Validation(t *testing.T) {
	r := start(t, echo("echo"))
	long := strings.Repeat("x", 129)
	type change func(*a2av1.SendMessageRequest)
	for name, c := range map[string]struct {
		change change
		fields []string
	}{
		"no message":       {func(req *a2av1.SendMessageRequest) { req.Message = nil }, []string{"message"}},
		"no id":            {func(req *a2av1.SendMessageRequest) { req.Message.MessageId = "" }, []string{"message.messageId"}},
		"long id":          {func(req *a2av1.SendMessageRequest) { req.Message.MessageId = long }, []string{"message.messageId"}},
		"slash in id":      {func(req *a2av1.SendMessageRequest) { req.Message.MessageId = "a/b" }, []string{"message.messageId"}},
		"NUL in id":        {func(req *a2av1.SendMessageRequest) { req.Message.TaskId = "a\x00" }, []string{"message.taskId"}},
		"context":          {func(req *a2av1.SendMessageRequest) { req.Message.ContextId = "ä" }, []string{"message.contextId"}},
		"tenant":           {func(req *a2av1.SendMessageRequest) { req.Tenant = "a b" }, []string{"tenant"}},
		"no role":          {func(req *a2av1.SendMessageRequest) { req.Message.Role = 0 }, []string{"message.role"}},
		"agent's role":     {func(req *a2av1.SendMessageRequest) { req.Message.Role = a2av1.Role_ROLE_AGENT }, []string{"message.role"}},
		"unknown role":     {func(req *a2av1.SendMessageRequest) { req.Message.Role = 7 }, []string{"message.role"}},
		"no parts":         {func(req *a2av1.SendMessageRequest) { req.Message.Parts = nil }, []string{"message.parts"}},
		"empty part":       {func(req *a2av1.SendMessageRequest) { req.Message.Parts[0].Content = nil }, []string{"message.parts[0]"}},
		"empty text":       {func(req *a2av1.SendMessageRequest) { req.Message.Parts = agent.TextParts("") }, []string{"message.parts"}},
		"empty url":        {func(req *a2av1.SendMessageRequest) { req.Message.Parts = []*a2av1.Part{{Content: &a2av1.Part_Url{}}} }, []string{"message.parts"}},
		"empty raw":        {func(req *a2av1.SendMessageRequest) { req.Message.Parts = []*a2av1.Part{{Content: &a2av1.Part_Raw{}}} }, []string{"message.parts"}},
		"many parts":       {func(req *a2av1.SendMessageRequest) { req.Message.Parts = many(101, agent.TextParts("x")[0]) }, []string{"message.parts"}},
		"many references":  {func(req *a2av1.SendMessageRequest) { req.Message.ReferenceTaskIds = many(33, "x") }, []string{"message.referenceTaskIds"}},
		"bad reference":    {func(req *a2av1.SendMessageRequest) { req.Message.ReferenceTaskIds = []string{"x", "/"} }, []string{"message.referenceTaskIds[1]"}},
		"many extensions":  {func(req *a2av1.SendMessageRequest) { req.Message.Extensions = many(33, "x") }, []string{"message.extensions"}},
		"negative history": {func(req *a2av1.SendMessageRequest) { conf(req).HistoryLength = proto.Int32(-1) }, []string{"configuration.historyLength"}},
		"many modes":       {func(req *a2av1.SendMessageRequest) { conf(req).AcceptedOutputModes = many(33, "x") }, []string{"configuration.acceptedOutputModes"}},
		"long mode": {func(req *a2av1.SendMessageRequest) {
			conf(req).AcceptedOutputModes = []string{"text/plain", strings.Repeat("x", 257)}
		}, []string{"configuration.acceptedOutputModes[1]"}},
		"long extension":   {func(req *a2av1.SendMessageRequest) { req.Message.Extensions = []string{strings.Repeat("x", 257)} }, []string{"message.extensions[0]"}},
		"many keys":        {func(req *a2av1.SendMessageRequest) { req.Message.Metadata = keys(257, 1) }, []string{"message.metadata"}},
		"large metadata":   {func(req *a2av1.SendMessageRequest) { req.Message.Metadata = keys(1, 65<<10) }, []string{"message.metadata"}},
		"request metadata": {func(req *a2av1.SendMessageRequest) { req.Metadata = keys(257, 1) }, []string{"metadata"}},
		"part metadata":    {func(req *a2av1.SendMessageRequest) { req.Message.Parts[0].Metadata = keys(1, 65<<10) }, []string{"message.parts[0].metadata"}},
		"deep data": {func(req *a2av1.SendMessageRequest) {
			req.Message.Parts = append(req.Message.Parts, dataPart(lists(49)))
		}, []string{"message.parts[1].data"}},
		"deep metadata": {func(req *a2av1.SendMessageRequest) {
			req.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": lists(48)}}
		}, []string{"metadata"}},
		"extension": {func(req *a2av1.SendMessageRequest) { about(req, "depth", "deep") }, []string{`metadata["` + project.TeamRunURI + `"]`}},
		"all at once": {func(req *a2av1.SendMessageRequest) {
			req.Tenant, req.Message = "/", &a2av1.Message{ContextId: "/"}
			conf(req).HistoryLength = proto.Int32(-1)
		}, []string{"tenant", "message.messageId", "message.contextId", "message.role", "message.parts", "configuration.historyLength"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := message("echo", "x")
			c.change(req)
			_, err := r.SendMessage(ann(t), req)
			wantFields(t, err, c.fields...)
			_, err = r.SendStreamingMessage(ann(t), req)
			wantFields(t, err, c.fields...)
		})
	}
	t.Run("list", func(t *testing.T) {
		for field, req := range map[string]*a2av1.ListTasksRequest{
			"pageSize":             {PageSize: proto.Int32(0)},
			"status":               {Status: 99},
			"statusTimestampAfter": {StatusTimestampAfter: &timestamppb.Timestamp{Nanos: -1}},
			"historyLength":        {HistoryLength: proto.Int32(-1)},
			"contextId":            {ContextId: "/"},
			"tenant":               {Tenant: "/"},
			"pageToken":            {PageToken: "bogus"},
		} {
			_, err := r.ListTasks(ann(t), req)
			wantFields(t, err, field)
		}
		_, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{PageSize: proto.Int32(101), Status: -1})
		wantFields(t, err, "pageSize", "status")
	})
	t.Run("tasks", func(t *testing.T) {
		_, err := r.GetTask(ann(t), &a2av1.GetTaskRequest{})
		wantFields(t, err, "id")
		_, err = r.GetTask(ann(t), &a2av1.GetTaskRequest{Tenant: "/", HistoryLength: proto.Int32(-1)})
		wantFields(t, err, "historyLength", "id", "tenant")
		_, err = r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: "a/b"})
		wantFields(t, err, "id")
		_, err = r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: long}, 0)
		wantFields(t, err, "id")
	})
	t.Run("a message that no journal takes", func(t *testing.T) {
		_, err := r.SendMessage(ann(t), message("echo", strings.Repeat("x", 2<<20)))
		wantError(t, err, agent.ReasonInsufficientResources)
		if e := agent.AsError(err); e.Code != agent.CodeResourceExhausted || e.Details["max_bytes"] == "" {
			t.Errorf("%+v", e)
		}
		wantState(t, r.send(t, ann(t), message("echo", strings.Repeat("x", 1<<20))), completed)
		req := message("echo", strings.Repeat("x", 2<<20-30_000))
		req.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"more": structpb.NewStringValue(strings.Repeat("x", 60_000))}}
		_, err = r.SendMessage(ann(t), req) // its metadata counts
		wantError(t, err, agent.ReasonInsufficientResources)
		req = message("echo", strings.Repeat("x", 2<<20-1000))
		conf(req).AcceptedOutputModes = many(32, "text/plain;x="+strings.Repeat("x", 200)) // and these do
		_, err = r.SendMessage(ann(t), req)
		wantError(t, err, agent.ReasonInsufficientResources)
	})
}

func conf(req *a2av1.SendMessageRequest) *a2av1.SendMessageConfiguration {
	if req.GetConfiguration() == nil {
		req.Configuration = &a2av1.SendMessageConfiguration{}
	}
	return req.GetConfiguration()
}

func many[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// keys is metadata of n entries of a size.
func keys(n, size int) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range n {
		s.Fields[fmt.Sprint(i)] = structpb.NewStringValue(strings.Repeat("x", size))
	}
	return s
}

// FuzzP17_Send: whatever can be decoded is answered with a task or with faults that
// name fields, and what is accepted can be read again.
func FuzzP17_Send(f *testing.F) {
	for _, seed := range []string{
		`{"tenant":"echo","message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}`,
		`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{}]}}`,
		`{"message":{"messageId":"m","taskId":"t~1","contextId":"c","role":"ROLE_USER","parts":[{"data":{"a":[1,null]}}],"referenceTaskIds":["x"]}}`,
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"AAAA","mediaType":"image/png"}]},"configuration":{"historyLength":-1}}`,
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"url":"https://example.com"}]},"metadata":{"` + project.TeamRunURI + `":{"question":"q","depth":3}}}`,
		`{"metadata":{"` + project.TeamRunURI + `":[]}}`,
	} {
		req := &a2av1.SendMessageRequest{}
		if err := protojson.Unmarshal([]byte(seed), req); err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	r := start(f, echo("echo"))
	f.Fuzz(func(t *testing.T, b []byte) {
		req := &a2av1.SendMessageRequest{}
		if proto.Unmarshal(b, req) != nil {
			return
		}
		resp, err := r.SendMessage(ann(t), req)
		if err != nil {
			var pe *a2aerror.Error
			var ae *agent.Error
			if !errors.As(err, &pe) && !errors.As(err, &ae) {
				t.Fatalf("internal error: %v", err)
			}
			if pe != nil && pe.Reason == agent.ReasonInvalidRequest && len(pe.Violations) == 0 {
				t.Fatalf("no fault is named: %v", err)
			}
			return
		}
		r.get(t, resp.GetTask().GetId())
	})
}

// lists returns a value of n lists, one in the other.
func lists(n int) *structpb.Value {
	v := structpb.NewStringValue("core")
	for range n {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	return v
}

func dataPart(v *structpb.Value) *a2av1.Part { return &a2av1.Part{Content: &a2av1.Part_Data{Data: v}} }
