package a2av03_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// update is a status update with a part of each kind.
func update(state a2av1.TaskState) *a2av1.StreamResponse {
	data, _ := structpb.NewValue(map[string]any{"k": 1.0})
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_StatusUpdate{StatusUpdate: &a2av1.TaskStatusUpdateEvent{
		TaskId: "t1", ContextId: "c1",
		Status: &a2av1.TaskStatus{State: state, Timestamp: timestamppb.New(time.Unix(0, 0)), Message: &a2av1.Message{
			MessageId: "m1", Role: a2av1.Role_ROLE_AGENT, Parts: []*a2av1.Part{
				{Content: &a2av1.Part_Text{Text: "x"}},
				{Content: &a2av1.Part_Raw{Raw: []byte("hello")}, Filename: "a.txt", MediaType: "text/plain"},
				{Content: &a2av1.Part_Url{Url: "https://example.com/a"}},
				{Content: &a2av1.Part_Data{Data: data}},
				{Content: &a2av1.Part_Data{Data: structpb.NewNumberValue(7)}},
			},
		}},
	}}}
}

// TestA_25_Forms compares encoded messages with the exact JSON of 0.3.
func TestA_25_Forms(t *testing.T) {
	for name, c := range map[string]struct {
		form  a2av03.Form
		state a2av1.TaskState
		want  string
	}{
		"JSON-RPC": {a2av03.RPC, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, `{"kind":"status-update","taskId":"t1","contextId":"c1","final":true,
			"status":{"state":"input-required","timestamp":"1970-01-01T00:00:00Z","message":{"kind":"message","messageId":"m1","role":"agent","parts":[
			{"kind":"text","text":"x"},
			{"kind":"file","file":{"bytes":"aGVsbG8=","name":"a.txt","mimeType":"text/plain"}},
			{"kind":"file","file":{"uri":"https://example.com/a"}},
			{"kind":"data","data":{"k":1}},
			{"kind":"data","data":{"value":7},"metadata":{"data_part_compat":true}}]}}}`},
		"REST": {a2av03.REST, a2av1.TaskState_TASK_STATE_CANCELED, `{"statusUpdate":{"taskId":"t1","contextId":"c1","final":true,
			"status":{"state":"TASK_STATE_CANCELLED","timestamp":"1970-01-01T00:00:00Z","message":{"messageId":"m1","role":"ROLE_AGENT","content":[
			{"text":"x"},
			{"file":{"fileWithBytes":"aGVsbG8=","name":"a.txt","mimeType":"text/plain"}},
			{"file":{"fileWithUri":"https://example.com/a"}},
			{"data":{"data":{"k":1}}},
			{"data":{"data":{"value":7}},"metadata":{"data_part_compat":true}}]}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := c.form.WriteEvent(update(c.state), true)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, c.want, b)
		})
	}
}

func sameJSON(t *testing.T, want string, got []byte) {
	t.Helper()
	var w, g any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestA_25_WhatIsRefused(t *testing.T) {
	for _, c := range []struct {
		form         a2av03.Form
		params, want string
	}{
		{a2av03.RPC, `{"message":{"role":"robot"}}`, "message.role must be user or agent"},
		{a2av03.RPC, `{"message":{"role":"ROLE_USER"}}`, "message.role must be user or agent"},
		{a2av03.REST, `{"message":{"role":"user"}}`, "message.role must be ROLE_USER or ROLE_AGENT"},
		{a2av03.RPC, `{"message":{"role":"user","messageId":7}}`, "message.messageId must be a string"},
		{a2av03.RPC, `{"message":{"role":"user","kind":"task"}}`, `message.kind must be "message"`},
		{a2av03.RPC, `{"message":{"role":"user","parts":{}}}`, "message.parts must be an array"},
		{a2av03.RPC, `{"message":{"role":"user","parts":["x"]}}`, "message.parts[0] must be an object"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"text":"x"}]}}`, "message.parts[0].kind must be text, file or data"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"kind":"text"}]}}`, "message.parts[0].text is required"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"kind":"file"}]}}`, "message.parts[0].file is required"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"kind":"file","file":{}}]}}`, "message.parts[0].file has no content; set one of bytes, uri"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"kind":"file","file":{"bytes":"","uri":"x"}}]}}`, "message.parts[0].file has more than one of bytes, uri"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"kind":"file","file":{"bytes":"?"}}]}}`, "message.parts[0].file.bytes must be a base64 string"},
		{a2av03.RPC, `{"message":{"role":"user","parts":[{"kind":"data","data":[1]}]}}`, "message.parts[0].data must be an object"},
		{a2av03.REST, `{"message":{"role":"ROLE_USER","content":[{"text":"x","data":{"data":{}}}]}}`, "message.content[0] has more than one of text, file, data"},
		{a2av03.REST, `{"message":{"role":"ROLE_USER","content":[{}]}}`, "message.content[0] has no content; set one of text, file, data"},
		{a2av03.RPC, `{"message":{"role":"user"},"configuration":{"blocking":"yes"}}`, "configuration.blocking must be true or false"},
		{a2av03.RPC, `{"message":{"role":"user"},"configuration":{"historyLength":1.5}}`, "configuration.historyLength must be a whole number"},
		{a2av03.RPC, `{"message":{"role":"user"},"configuration":{"pushNotificationConfig":{"url":"x","authentication":{}}}}`,
			"configuration.pushNotificationConfig.authentication.schemes must name a scheme"},
		{a2av03.RPC, `{"message":{"role":"user"},"metadata":[]}`, "metadata must be an object"},
		{a2av03.RPC, `{"message":{"role":"user"},"message":{}}`, `has "message" twice`},
		{a2av03.RPC, `[]`, "must be an object"},
		{a2av03.RPC, `{"message":`, "is not JSON"},
	} {
		_, err := c.form.ReadSend([]byte(c.params))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "INVALID_REQUEST") {
			t.Errorf("%s: %v, want %q", c.params, err, c.want)
		}
	}
}

// What clients find out of an answer below /v1, whichever of three places they look at.
func TestA_25_RESTError(t *testing.T) {
	for _, c := range []struct {
		err  error
		code float64
		kind any
	}{
		{a2aerror.TaskNotFound("t1"), -32001, "TaskNotFoundError"},
		{wire.Invalid("message", "is required"), -32602, nil},
	} {
		st := wire.Status(c.err)
		b, err := a2av03.RESTError(st, wire.HTTPStatus(st))
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		if err := json.Unmarshal(b, &body); err != nil {
			t.Fatal(err)
		}
		inner, _ := body["error"].(map[string]any)
		if body["code"] != c.code || body["type"] != c.kind || inner["code"] != float64(wire.HTTPStatus(st)) {
			t.Errorf("%v: %s", c.err, b)
		}
	}
}

// Errors below /v1, as other servers say them, as answers and as events.
func TestA_25_RESTErrorsOfOthers(t *testing.T) {
	for body, want := range map[string]string{
		`{"code":-32001,"message":"no such task"}`:                                  "NotFound no such task",
		`{"error":{"code":-32001,"message":"no such task"}}`:                        "NotFound no such task",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}`: "NotFound no such task",
		`{"error":{"code":404,"message":"no such task"}}`:                           "NotFound no such task",
		`{"error":"no such task","message":"gone"}`:                                 "Internal gone",
		`{"error":{"code":404,"status":"NOT_FOUND","message":"no such task"}}`:      "NotFound no such task",
		`{"message":"out of order"}`:                                                "Internal out of order",
		`{"detail":"Not Found"}`:                                                    "Internal Internal Server Error",
	} {
		st := a2av03.ReadRESTError(500, []byte(body))
		if got := st.Code().String() + " " + st.Message(); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestA_25_RESTBase(t *testing.T) {
	for address, want := range map[string]string{
		"http://h": "http://h/v1", "http://h/a/": "http://h/a/v1", "http://h/a/v1": "http://h/a/v1", "http://h/v1/": "http://h/v1",
	} {
		if got := a2av03.RESTBase(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestA_25_WhatIsTaken decodes valid JSON that differs from what this package encodes.
func TestA_25_WhatIsTaken(t *testing.T) {
	want := &a2av1.SendMessageRequest{Message: &a2av1.Message{MessageId: "m", Role: a2av1.Role_ROLE_USER, Parts: []*a2av1.Part{
		{Content: &a2av1.Part_Raw{Raw: []byte{0xfb, 0xff}}},
	}}}
	for _, c := range []struct {
		form        a2av03.Form
		params      string
		returnsSoon bool
	}{
		{a2av03.RPC, `{"message":{"messageId":"m","role":"user","unknown":1,"taskId":null,"parts":[{"kind":"file","file":{"bytes":"-_8"}}]}}`, false},
		{a2av03.RPC, `{"message":{"messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"+/8="}}]},"configuration":{}}`, false},
		{a2av03.RPC, `{"message":{"messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"+/8="}}]},"configuration":{"blocking":false}}`, true},
		{a2av03.REST, `{"message":{"message_id":"m","role":"ROLE_USER","content":[{"file":{"file_with_bytes":"+/8="}}]}}`, false},
		{a2av03.REST, `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"file":{"fileWithBytes":"+/8="}}]},"configuration":{}}`, true},
		{a2av03.REST, `{"request":{"message_id":"m","role":"ROLE_USER","content":[{"file":{"file_with_bytes":"+/8="}}]},"configuration":{"blocking":true}}`, false},
	} {
		got, err := c.form.ReadSend([]byte(c.params))
		if err != nil {
			t.Errorf("%s: %v", c.params, err)
			continue
		}
		if got.GetConfiguration().GetReturnImmediately() != c.returnsSoon {
			t.Errorf("%s: returnImmediately is %v", c.params, !c.returnsSoon)
		}
		got.Configuration = nil
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.params, diff)
		}
	}
}

func TestA_25_UnionCard(t *testing.T) {
	card := &a2av1.AgentCard{
		Name: "n", Description: "d", Version: "1", Capabilities: &a2av1.AgentCapabilities{Streaming: proto.Bool(true), ExtendedAgentCard: proto.Bool(true)},
		SupportedInterfaces: []*a2av1.AgentInterface{
			{Url: "h:1", ProtocolBinding: "GRPC", Tenant: "a", ProtocolVersion: "1.0"},
			{Url: "https://h/a/rpc", ProtocolBinding: "JSONRPC", Tenant: "a", ProtocolVersion: "1.0"},
			{Url: "https://h/a", ProtocolBinding: "HTTP+JSON", ProtocolVersion: "1.0"},
		},
		SecuritySchemes: map[string]*a2av1.SecurityScheme{"key": {Scheme: &a2av1.SecurityScheme_HttpAuthSecurityScheme{
			HttpAuthSecurityScheme: &a2av1.HTTPAuthSecurityScheme{Scheme: "Bearer"},
		}}},
		SecurityRequirements: []*a2av1.SecurityRequirement{{Schemes: map[string]*a2av1.StringList{"key": {List: []string{"s"}}}}},
		Skills:               []*a2av1.AgentSkill{{Id: "s", Name: "s", Description: "s", Tags: []string{"s"}}},
	}
	b, err := a2av03.WriteCard(card)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"url": `"https://h/a/rpc"`, "preferredTransport": `"JSONRPC"`, "protocolVersion": `"0.3.0"`, "supportsAuthenticatedExtendedCard": `true`,
		"additionalInterfaces": `[{"url":"https://h/a/rpc","transport":"JSONRPC"},{"url":"https://h/a","transport":"HTTP+JSON"}]`,
		"security":             `[{"key":["s"]}]`,
		"securitySchemes":      `{"key":{"type":"http","scheme":"Bearer","httpAuthSecurityScheme":{"scheme":"Bearer"}}}`,
	} {
		part, err := json.Marshal(got[field])
		if err != nil {
			t.Fatal(err)
		}
		t.Run(field, func(t *testing.T) { sameJSON(t, want, part) })
	}
	t.Run("readers of 1.0 see theirs", func(t *testing.T) {
		read := &a2av1.AgentCard{}
		if err := wire.Unmarshal(b, read); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(card, read, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("we see both", func(t *testing.T) {
		read, err := a2av03.ReadCard(b)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(read.GetSupportedInterfaces()); n != 5 {
			t.Errorf("%d interfaces, want 3 of 1.0 and 2 of 0.3", n)
		}
	})
	t.Run("nothing over HTTP", func(t *testing.T) {
		card.SupportedInterfaces = card.GetSupportedInterfaces()[:1]
		b, err := a2av03.WriteCard(card)
		if err != nil || strings.Contains(string(b), "preferredTransport") {
			t.Errorf("%s %v", b, err)
		}
	})
}

func TestA_25_ErrorsRoundTrip(t *testing.T) {
	for _, err := range []error{
		a2aerror.TaskNotFound("t"), a2aerror.TaskNotCancelable("t", a2av1.TaskState_TASK_STATE_FAILED), a2aerror.PushNotificationNotSupported(),
		a2aerror.UnsupportedOperation("no"), a2aerror.Invalid(agent.Violation{Field: "f", Description: "d"}),
	} {
		st := wire.Status(err)
		e := a2av03.Error(st)
		if e.Data[0] != '{' {
			t.Errorf("data is %s; clients of 0.3 read objects only", e.Data)
		}
		if diff := cmp.Diff(st.Proto(), a2av03.ReadError(e).Proto(), protocmp.Transform()); diff != "" {
			t.Errorf("%v:\n%s", err, diff)
		}
		bare := a2av03.ReadError(&wire.RPCError{Code: e.Code, Message: e.Message})
		if bare.Code() != st.Code() {
			t.Errorf("%v without data is %v", err, bare.Code())
		}
	}
}

func FuzzP17_Read(f *testing.F) {
	f.Add([]byte(`{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}`))
	f.Add([]byte(`{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"value":1},"metadata":{"data_part_compat":true}}]}}`))
	f.Add([]byte(`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_CANCELLED","message":{"role":"ROLE_USER","content":[{"file":{"fileWithUri":"u"}}]}}}}`))
	f.Add([]byte(`{"url":"http://h","protocolVersion":"0.3.0","additionalInterfaces":[{"url":"x","transport":"GRPC"}]}`))
	f.Add([]byte(`{"tasks":[{"kind":"task","id":"t","status":{"state":"working"}}],"next_page_token":"x","total_size":2}`))
	f.Add([]byte(`{"configs":[{"name":"tasks/t/pushNotificationConfigs/p","pushNotificationConfig":{"url":"http://h"}}]}`))
	f.Add([]byte(`[{"taskId":"t","pushNotificationConfig":{"id":"p","url":"http://h"}}]`))
	f.Add([]byte(`{"code":-32001,"message":"m","error":{"code":0,"status":"OK"}}`))
	f.Add([]byte(`{"error":{"code":0,"status":"OK"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = a2av03.ReadCard(b)
		if a2av03.ReadRESTError(500, b).Code() == codes.OK {
			t.Error("an error is read as none")
		}
		for _, form := range []a2av03.Form{a2av03.RPC, a2av03.REST} {
			_, _ = form.ReadPush(b)
			_, _ = form.ReadTaskPush(b)
			_, _ = form.ReadPushes(b)
			if page, err := form.ReadTasks(b); err == nil {
				if _, err := form.WriteTasks(page); err != nil {
					t.Errorf("read, but not written: %v", err)
				}
			}
			if req, err := form.ReadSend(b); err == nil {
				if _, err := form.WriteSend(req); err != nil {
					t.Errorf("read, but not written: %v", err)
				}
			}
			if r, err := form.ReadEvent(b); err == nil {
				if _, err := form.WriteEvent(r, false); err != nil {
					t.Errorf("read, but not written: %v", err)
				}
			}
		}
	})
}
