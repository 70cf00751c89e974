package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// post sends a body as it is and returns the status and the decoded answer.
func post(t *testing.T, url, contentType, body string) (*http.Response, map[string]any) {
	t.Helper()
	return request(t, http.MethodPost, url, body, map[string]string{"Content-Type": contentType})
}

func request(t *testing.T, method, url, body string, headers map[string]string) (*http.Response, map[string]any) {
	t.Helper()
	resp, answer := exchange(t, method, url, body, headers)
	var m map[string]any
	if json.Unmarshal([]byte(answer), &m) != nil {
		t.Logf("%s %s: %d %q", method, url, resp.StatusCode, answer)
	}
	return resp, m
}

// exchange makes a request and returns the answer with its body as it is.
func exchange(t *testing.T, method, url, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// field walks into decoded JSON.
func field(m any, path ...string) any {
	for _, p := range path {
		o, _ := m.(map[string]any)
		m = o[p]
	}
	return m
}

func TestA_04_RESTInput(t *testing.T) {
	p := &probe{send: echo, get: task}
	target := start(t, server.Config{Handler: p})
	const part = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`
	for _, c := range []struct {
		name, method, path, contentType, body string
		status                                int
		code, field                           string
	}{
		{"malformed JSON", "POST", "/message:send", "application/json", `{"message":`, 400, "INVALID_ARGUMENT", ""},
		{"an array", "POST", "/message:send", "application/json", `[]`, 400, "INVALID_ARGUMENT", ""},
		{"unknown role", "POST", "/message:send", "application/a2a+json", `{"message":{"role":"user"}}`, 400, "INVALID_ARGUMENT", "message.role"},
		{"unknown role number", "POST", "/message:send", "application/a2a+json", `{"message":{"role":7}}`, 400, "INVALID_ARGUMENT", "message.role"},
		{"two contents", "POST", "/message:send", "application/json", `{"message":{"parts":[{"text":"a","url":"b"}]}}`, 400, "INVALID_ARGUMENT", "message.parts[0]"},
		{"unknown state in the query", "GET", "/tasks?status=BOGUS", "", "", 400, "INVALID_ARGUMENT", "status"},
		{"an invalid page size", "GET", "/tasks?pageSize=x", "", "", 400, "INVALID_ARGUMENT", "pageSize"},
		{"page size that is no whole number", "GET", "/tasks?page_size=1.5", "", "", 400, "INVALID_ARGUMENT", "pageSize"},
		{"page size twice", "GET", "/tasks?pageSize=1&pageSize=2", "", "", 400, "INVALID_ARGUMENT", "pageSize"},
		{"artifacts or not", "GET", "/tasks?includeArtifacts=maybe", "", "", 400, "INVALID_ARGUMENT", "includeArtifacts"},
		{"an unknown state, by number", "GET", "/tasks?status=99", "", "", 400, "INVALID_ARGUMENT", "status"},
		{"bad time", "GET", "/tasks?statusTimestampAfter=yesterday", "", "", 400, "INVALID_ARGUMENT", "statusTimestampAfter"},
		{"wrong content type", "POST", "/message:send", "text/plain", part, 415, "UNIMPLEMENTED", ""},
		{"no content type", "POST", "/message:send", "", part, 415, "UNIMPLEMENTED", ""},
		{"a form", "POST", "/tasks/t1:cancel", "application/x-www-form-urlencoded", "a=b", 415, "UNIMPLEMENTED", ""},
		{"unknown path", "GET", "/nothing/here", "", "", 404, "UNIMPLEMENTED", ""},
		{"the root", "GET", "/", "", "", 404, "UNIMPLEMENTED", ""},
		{"wrong verb", "PUT", "/message:send", "", "", 405, "UNIMPLEMENTED", ""},
		{"wrong verb on a stream", "GET", "/message:stream", "", "", 405, "UNIMPLEMENTED", ""},
		{"wrong verb on cancel", "GET", "/tasks/t1:cancel", "", "", 405, "UNIMPLEMENTED", ""},
		{"wrong verb on process", "GET", "/team/v1/agents/a:process", "", "", 405, "UNIMPLEMENTED", ""},
		{"too large", "POST", "/message:send", "application/json", `"` + strings.Repeat("x", 4<<20) + `"`, 413, "RESOURCE_EXHAUSTED", ""},
		{"too deep", "POST", "/message:send", "application/json", strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70), 400, "INVALID_ARGUMENT", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			headers := map[string]string{}
			if c.contentType != "" {
				headers["Content-Type"] = c.contentType
			}
			resp, body := request(t, c.method, target.HTTP+c.path, c.body, headers)
			if resp.StatusCode != c.status {
				t.Fatalf("status %d, want %d: %v", resp.StatusCode, c.status, body)
			}
			if got := field(body, "error", "status"); got != c.code {
				t.Errorf("code %v, want %s", got, c.code)
			}
			if got := field(body, "error", "code"); got != float64(c.status) {
				t.Errorf("error.code %v, want %d", got, c.status)
			}
			if got := violation(body); got != c.field {
				t.Errorf("field %q, want %q: %v", got, c.field, body)
			}
		})
	}
}

// violation is the field that a REST error names.
func violation(body map[string]any) string {
	details, _ := field(body, "error", "details").([]any)
	for _, d := range details {
		if list, ok := field(d, "fieldViolations").([]any); ok {
			name, _ := field(list[0], "field").(string)
			return name
		}
	}
	return ""
}

func TestA_04_SnakeCaseAndUnknownFields(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{send: echo}})
	resp, body := post(t, target.HTTP+"/message:send", "application/json; charset=utf-8",
		`{"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"x","unknown":1}]},"more":{"a":[1]}}`)
	if resp.StatusCode != 200 || field(body, "message", "messageId") != "reply" {
		t.Fatalf("%d %v", resp.StatusCode, body)
	}
}

func TestA_01_T_39_RPCEnvelope(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{send: echo, get: task}})
	const get = `"method":"GetTask","params":{"id":"t1"}`
	for _, c := range []struct {
		name, contentType, body string
		status                  int
		code                    float64
		id                      any
	}{
		{"a string id", "application/json", `{"jsonrpc":"2.0","id":"a",` + get + `}`, 200, 0, "a"},
		{"a number id", "application/json", `{"jsonrpc":"2.0","id":7,` + get + `}`, 200, 0, 7.0},
		{"a null id", "application/json", `{"jsonrpc":"2.0","id":null,` + get + `}`, 200, 0, nil},
		{"no JSON", "application/json", `{"jsonrpc"`, 200, -32700, nil},
		{"empty", "application/json", ``, 200, -32700, nil},
		{"a batch", "application/json", `[{"jsonrpc":"2.0","id":1,` + get + `}]`, 200, -32600, nil},
		{"an object as id", "application/json", `{"jsonrpc":"2.0","id":{},` + get + `}`, 200, -32600, nil},
		{"wrong version", "application/json", `{"jsonrpc":"1.0","id":1,` + get + `}`, 200, -32600, 1.0},
		{"other case", "application/json", `{"JSONRPC":"2.0","id":1,` + get + `}`, 200, -32600, 1.0},
		{"no method", "application/json", `{"jsonrpc":"2.0","id":1}`, 200, -32600, 1.0},
		{"unknown method", "application/json", `{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{}}`, 200, -32601, 1.0},
		{"params as array", "application/json", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}`, 200, -32602, 1.0},
		{"unknown state", "application/json", `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"status":"BOGUS"}}`, 200, -32602, 1.0},
		{"wrong content type", "text/plain", `{"jsonrpc":"2.0","id":1,` + get + `}`, 415, -32600, nil},
		{"too large", "application/json", `"` + strings.Repeat("x", 4<<20) + `"`, 413, -32020, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := post(t, target.HTTP+"/rpc", c.contentType, c.body)
			if resp.StatusCode != c.status {
				t.Fatalf("status %d, want %d: %v", resp.StatusCode, c.status, body)
			}
			if id, ok := body["id"]; !ok || id != c.id || body["jsonrpc"] != "2.0" {
				t.Errorf("id %v, want %v: %v", id, c.id, body)
			}
			if code, _ := field(body, "error", "code").(float64); code != c.code {
				t.Errorf("code %v, want %v: %v", code, c.code, body)
			}
			if reason := rpcReason(body); c.code != 0 && c.status != 413 && reason != "INVALID_REQUEST" {
				t.Errorf("reason %q: %v", reason, body)
			}
		})
	}
}

// rpcReason is the reason of a JSON-RPC error.
func rpcReason(body map[string]any) string {
	data, _ := field(body, "error", "data").([]any)
	for _, d := range data {
		if reason, ok := field(d, "reason").(string); ok {
			return reason
		}
	}
	return ""
}

// TestA_22_OwnWords: errors about a request do not contain texts of Go or of libraries, on
// both JSON bindings.
func TestA_22_OwnWords(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{send: echo}})
	for name, c := range map[string]struct{ params, want string }{
		"ends early":   {`{"message":`, "the request is not JSON: it ends early, after 11 bytes"},
		"a mark":       {"\ufeff{}", "the request is not JSON, at byte 1"},
		"two contents": {`{"message":{"parts":[{"text":"a","data":null,"url":"b"}]}}`, "message.parts[0] has more than one of text, raw, url, data"},
		"wrong kind":   {`{"message":{"parts":[{"text":1}]}}`, "message.parts[0].text must be a string"},
		"no list":      {`{"message":{"parts":{}}}`, "message.parts must be an array"},
	} {
		t.Run("REST "+name, func(t *testing.T) {
			_, body := post(t, target.HTTP+"/message:send", "application/json", c.params)
			if got := field(body, "error", "message"); got != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
		t.Run("JSON-RPC "+name, func(t *testing.T) {
			text, want := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":`+c.params+`}`, c.want
			if strings.Contains(want, "not JSON") {
				text = c.params // the whole request is invalid
			}
			_, body := post(t, target.HTTP+"/rpc", "application/json", text)
			if got := field(body, "error", "message"); got != want {
				t.Errorf("%v, want %s", got, want)
			}
		})
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}
func (rawCodec) Name() string { return "proto" }

func TestA_04_GRPCInput(t *testing.T) {
	p := &probe{send: echo}
	target := start(t, server.Config{Handler: p})
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, c := range []struct {
		name, method string
		body         []byte
		code, reason string
	}{
		{"malformed", "/lf.a2a.v1.A2AService/SendMessage", []byte{0x0a, 0xff}, "InvalidArgument", "INVALID_REQUEST"},
		{"malformed stream", "/lf.a2a.v1.A2AService/SendStreamingMessage", []byte{0x0a, 0xff}, "InvalidArgument", "INVALID_REQUEST"},
		{"bad UTF-8", "/lf.a2a.v1.A2AService/SendMessage", []byte{0x0a, 0x01, 0xff}, "InvalidArgument", "INVALID_REQUEST"},
		{"empty values", "/lf.a2a.v1.A2AService/SendMessage", manyEmpty(), "InvalidArgument", "INVALID_REQUEST"},
		{"too large", "/lf.a2a.v1.A2AService/SendMessage", make([]byte, 4<<20+1), "ResourceExhausted", ""},
		{"unknown method", "/lf.a2a.v1.A2AService/Nothing", nil, "Unimplemented", "INVALID_REQUEST"},
		{"unknown service", "/lf.a2a.v1.Nothing/Nothing", nil, "Unimplemented", "INVALID_REQUEST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out []byte
			err := g.Conn.Invoke(g.Context(t.Context()), c.method, c.body, &out, grpc.ForceCodec(rawCodec{}))
			f := rig.Fault(rig.FromGRPC(err))
			if f == nil || f.Code != c.code || f.Reason != c.reason {
				t.Fatalf("got %v, want %s %s", f, c.code, c.reason)
			}
		})
	}
	if n := p.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
}

// manyEmpty is a message of 150,000 empty parts.
func manyEmpty() []byte {
	parts := bytes.Repeat([]byte{0x2a, 0x00}, 150_000)
	message := append([]byte{0x12}, appendVarint(nil, uint64(len(parts)))...)
	return append(message, parts...)
}

func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b, v = append(b, byte(v)|0x80), v>>7
	}
	return append(b, byte(v))
}

func TestA_01_T_33_PoisonValues(t *testing.T) {
	p := &probe{send: echo}
	target := start(t, server.Config{Handler: p})
	deep := structpb.NewStringValue("x")
	for range 70 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	wide := &structpb.ListValue{}
	for range 20_001 {
		wide.Values = append(wide.Values, structpb.NewBoolValue(true))
	}
	g := rig.Clients(t, target)[0]
	for name, part := range map[string]*a2av1.Part{
		"NaN":         data(structpb.NewNumberValue(math.NaN())),
		"infinite":    data(structpb.NewNumberValue(math.Inf(1))),
		"no kind":     data(&structpb.Value{}),
		"deep":        data(deep),
		"wide":        data(structpb.NewListValue(wide)),
		"in metadata": {Content: &a2av1.Part_Text{Text: "x"}, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": {}}}},
	} {
		t.Run(name, func(t *testing.T) {
			req := rig.Text("", "m", "x")
			req.Message.Parts = append(req.Message.Parts, part)
			_, err := g.Send(t.Context(), req)
			f := rig.Fault(err)
			if f == nil || f.Code != "InvalidArgument" || f.Reason != "INVALID_REQUEST" {
				t.Fatalf("got %v", f)
			}
			if len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0], "message.parts[1].") {
				t.Errorf("fields %v", f.Fields)
			}
		})
	}
	t.Run("unknown enum", func(t *testing.T) {
		req := rig.Text("", "m", "x")
		req.Message.Role = 9
		rig.Each(t, target, func(t *testing.T, c rig.Client) {
			_, err := c.Send(t.Context(), req)
			if f := rig.Fault(err); f == nil || f.Reason != "INVALID_REQUEST" || len(f.Fields) != 1 || f.Fields[0] != "message.role" {
				t.Fatalf("got %v", f)
			}
		})
	})
	t.Run("time out of range", func(t *testing.T) {
		_, err := g.List(t.Context(), &a2av1.ListTasksRequest{StatusTimestampAfter: &timestamppb.Timestamp{Seconds: math.MaxInt64}})
		if f := rig.Fault(err); f == nil || len(f.Fields) != 1 || f.Fields[0] != "statusTimestampAfter" {
			t.Fatalf("got %v", f)
		}
	})
	if n := p.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
}

func data(v *structpb.Value) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Data{Data: v}}
}

// TestA_05_PageSizeZero: over gRPC a page size of 0 means the default, because the official Go client
// sends it where its caller set nothing; elsewhere it is refused as the protocol has it.
func TestA_05_PageSizeZero(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{list: func(_ context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
		if req.PageSize != nil {
			return nil, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "page size %d", req.GetPageSize())
		}
		return &a2av1.ListTasksResponse{}, nil
	}}})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		_, err := c.List(t.Context(), &a2av1.ListTasksRequest{PageSize: proto.Int32(0)})
		if f := rig.Fault(err); (f == nil) != (c.Binding() == "grpc") {
			t.Errorf("got %v", f)
		}
	})
}

func TestA_01_T_9_GatewayTraps(t *testing.T) {
	var seen []string
	p := &probe{get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
		deadline, ok := ctx.Deadline()
		if !ok || deadline.Year() > 3000 {
			seen = append(seen, "deadline")
		}
		return task(ctx, &a2av1.GetTaskRequest{Id: "t1"})
	}}
	target := start(t, server.Config{Handler: p})
	get := func(t *testing.T, headers map[string]string) (*http.Response, map[string]any) {
		return request(t, http.MethodGet, target.HTTP+"/tasks/t1", "", headers)
	}
	t.Run("method override does nothing", func(t *testing.T) {
		resp, _ := request(t, http.MethodPost, target.HTTP+"/tasks/t1/pushNotificationConfigs/c", "a=b", map[string]string{
			"X-HTTP-Method-Override": "DELETE", "Content-Type": "application/x-www-form-urlencoded",
		})
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Run("Grpc-Metadata reaches nothing", func(t *testing.T) {
		resp, _ := get(t, map[string]string{"Grpc-Metadata-A2a-Version": "9.9", "Grpc-Metadata-Authorization": "Bearer x", "Grpc-Metadata-Team-Path": "x"})
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Run("Grpc-Timeout is bounded", func(t *testing.T) {
		for _, long := range []string{"8760H", "31536000S", "99999999m"} {
			if resp, _ := get(t, map[string]string{"Grpc-Timeout": long}); resp.StatusCode != http.StatusOK || len(seen) > 0 {
				t.Errorf("%s: status %d, %v", long, resp.StatusCode, seen)
			}
		}
	})
	t.Run("a bad Grpc-Timeout is refused", func(t *testing.T) {
		for _, bad := range []string{"1", "x", "-1S", "123456789S", "S", "0S", "00000000n", "8761H", "99999999H", "31536001S", "99999999M"} {
			if resp, body := get(t, map[string]string{"Grpc-Timeout": bad}); resp.StatusCode != http.StatusBadRequest || violation(body) != "Grpc-Timeout" {
				t.Errorf("%q: status %d", bad, resp.StatusCode)
			}
		}
	})
	t.Run("over gRPC a timeout makes sense too", func(t *testing.T) {
		g, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		within := func(d time.Duration) *rig.Error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := a2av1.NewA2AServiceClient(g.Conn).GetTask(ctx, &a2av1.GetTaskRequest{Id: "t1"})
			return rig.Fault(rig.FromGRPC(err))
		}
		if f := within(8759 * time.Hour); f != nil {
			t.Errorf("a year: %v", f)
		}
		if f := within(8770 * time.Hour); f == nil || f.Reason != "INVALID_REQUEST" || len(f.Fields) != 1 || f.Fields[0] != "Grpc-Timeout" {
			t.Errorf("more than a year: %v", f)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+target.GRPC+a2av1.A2AService_GetTask_FullMethodName, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Grpc-Timeout", "0S") // no client sends it
		resp, err := unencrypted(t).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("Grpc-Status"); got != "4" {
			t.Errorf("none: status %q", got)
		}
	})
	t.Run("the answer has the asked type", func(t *testing.T) {
		for accept, want := range map[string]string{
			"": "application/a2a+json", "*/*": "application/a2a+json", "application/json": "application/json",
			"application/json, text/plain, */*": "application/json", "application/a2a+json": "application/a2a+json",
			"text/event-stream": "application/json",
		} {
			resp, _ := get(t, map[string]string{"Accept": accept})
			if got := resp.Header.Get("Content-Type"); got != want {
				t.Errorf("%q: %s, want %s", accept, got, want)
			}
		}
	})
}
