package managed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// httpOnly are the routes that no service definition has, with their methods.
var httpOnly = map[string]string{
	"GET /tasks/x/parts/0": "GetPart", "POST /tasks/x:subscribe": "SubscribeToTask",
	"POST /team/v1/contract/create_team": "CreateTeam", "POST /team/v1/contract/start_collaboration": "StartCollaboration",
	"POST /team/v1/contract/get_collaboration_status": "GetCollaborationStatus", "POST /team/v1/contract/stop_collaboration": "StopCollaboration",
	"POST /v1/message:send": "SendMessage", "POST /v1/message:stream": "SendStreamingMessage", "GET /v1/tasks/x": "GetTask", "POST /v1/tasks/x:cancel": "CancelTask",
	"GET /v1/card": "GetExtendedAgentCard",
}

// oldMethods are the JSON-RPC methods of A2A 0.3.
var oldMethods = map[string]string{
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/get": "GetTask", "tasks/list": "ListTasks", "tasks/cancel": "CancelTask", "tasks/resubscribe": "SubscribeToTask",
	"tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
	"tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
	"agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}

// doorRoute is a route of a door for clients of another protocol. It calls several methods, so that a caller needs the
// permission of each.
type doorRoute struct{ verb, path, body, needs string }

// doorRoutes are the routes of the doors.
var doorRoutes = []doorRoute{
	{"GET", "/v1/models", "", "ListAgents"}, {"GET", "/v1/models/x", "", "GetAgent"},
	{"POST", "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"hello"}]}`, "ListTasks SendMessage"},
	{"POST", "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"hello"}],"stream":true}`, "ListTasks SendStreamingMessage"},
	{"POST", "/v1/responses", `{"model":"x","input":"hello"}`, "ListTasks SendMessage"},
	{"POST", "/v1/responses", `{"model":"x","input":"hello","stream":true,"background":true}`, "ListTasks SendStreamingMessage"},
	{"POST", "/v1/responses", `{"model":"x","input":"hello","previous_response_id":"$RESPONSE"}`, "GetTask SendMessage"},
	{"GET", "/v1/responses/$RESPONSE", "", "GetTask"}, {"GET", "/v1/responses/$RESPONSE?stream=true", "", "GetTask SubscribeToTask"},
	{"POST", "/v1/responses/$RESPONSE/cancel", "", "GetTask CancelTask"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "ListAgents"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"message":"hello"}}}`, "SendMessage"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"message":"","task":"$TASK"}}}`, "GetTask"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"message":"more","task":"$TASK"}}}`, "SendMessage"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"$TASK"}}`, "GetTask"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tasks/cancel","params":{"taskId":"$TASK"}}`, "CancelTask"},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{"taskId":"$TASK","inputResponses":{"q":{"action":"accept","content":{"answer":"yes"}}}}}`, "SendMessage"},
}

// ask calls the route with the ids of a task, and returns the status and the answer.
func (r doorRoute) ask(t *testing.T, as rig.Target, task string) (int, string) {
	t.Helper()
	ids := strings.NewReplacer("$TASK", task, "$RESPONSE", "resp_"+task)
	resp, err := as.Do(t.Context(), r.verb, ids.Replace(r.path), []byte(ids.Replace(r.body)), map[string]string{"Content-Type": "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := resp.Body()
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status, string(b)
}

// TestDoors_PermissionMatrix is TestT_6_PermissionMatrix for the routes of the doors: a caller that lacks one of the permissions
// of a route is refused and begins no task.
func TestDoors_PermissionMatrix(t *testing.T) {
	t.Parallel()
	needs := call.MethodPermissions()
	h := open(t, rig.Memory(t), matrixFile("server: {openai: {}, mcp: {}, auth: {api_keys: [KEYS]}}"), fakellm.New(t))
	for _, r := range doorRoutes {
		var all identity.Permissions
		for _, method := range strings.Fields(r.needs) {
			all |= needs[method]
		}
		if code, body := r.ask(t, keyless(h.Target), "x"); code != http.StatusUnauthorized {
			t.Errorf("%s %s without a key: %d %s", r.path, r.body, code, body)
		}
		for _, name := range all.Names() {
			as := h.As("acme", "without-"+name)
			sent, err := rig.NewREST(h.As("acme", "all")).Send(t.Context(), rig.Text("x", "m-"+name, "hello"))
			if err != nil {
				t.Fatal(err)
			}
			code, body := r.ask(t, as, sent.GetTask().GetId())
			foreign := strings.Contains(body, "exist") && strings.Contains(r.path+r.body, "$RESPONSE") // it has no task of its own
			if code >= http.StatusInternalServerError || !foreign && !strings.Contains(body, "PERMISSION_DENIED") {
				t.Errorf("%s %s without %s: %d %s", r.path, r.body, name, code, body)
			}
		}
		sent, err := rig.NewREST(h.As("acme", "all")).Send(t.Context(), rig.Text("x", "m", "hello"))
		if err != nil {
			t.Fatal(err)
		}
		if code, body := r.ask(t, h.As("acme", "all"), sent.GetTask().GetId()); code == http.StatusUnauthorized || strings.Contains(body, "PERMISSION_DENIED") {
			t.Errorf("%s %s with all: %d %s", r.path, r.body, code, body)
		}
	}
}

// TestDoors_Apart: by no route of a door does a caller see or change the task of another one, of its account or of another one,
// and each is answered like one about a task that does not exist.
func TestDoors_Apart(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := open(t, at, strings.Replace(strings.Replace(apartFile, `{text: "parrot: {{input}}"}`, `{ask: "Sure, pearl?"}, {text: "parrot: {{input}}"}`, 1), "server:\n", "server:\n  openai: {}\n  mcp: {}\n", 1), fakellm.New(t))
		ann := rig.NewREST(h.Target)
		sent, err := ann.Send(t.Context(), rig.Text("parrot", "m-1", "pearl"))
		if err != nil {
			t.Fatal(err)
		}
		before, err := ann.Get(t.Context(), &a2av1.GetTaskRequest{Id: sent.GetTask().GetId()})
		if err != nil {
			t.Fatal(err)
		}
		const random = "01a21505-0000-7000-8000-000000000000"
		for _, r := range doorRoutes {
			if !strings.Contains(r.path+r.body, "$") {
				continue
			}
			r.body = strings.ReplaceAll(r.body, `"x"`, `"parrot"`)
			code, body := r.ask(t, h.As("other", "eve"), before.GetId())
			wantCode, want := r.ask(t, h.As("other", "eve"), random)
			if code != wantCode || strings.ReplaceAll(body, before.GetId(), random) != want || strings.Contains(body, "pearl") {
				t.Errorf("%s %s: %d %s, of an unknown task %d %s", r.path, r.body, code, body, wantCode, want)
			}
		}
		after, err := ann.Get(t.Context(), &a2av1.GetTaskRequest{Id: before.GetId()})
		if err != nil || !proto.Equal(before, after) {
			t.Errorf("the task was %v and is %v, %v", before, after, err)
		}
	})
}

// bodies are those of routes that convert the body before they check the permission.
var bodies = map[string]string{
	"StartCollaboration":               `{"team_id":"x","task_description":"Write about the tides.","expected_output":"A sentence."}`,
	"GetCollaborationStatus":           `{"collaboration_id":"x"}`,
	"StopCollaboration":                `{"collaboration_id":"x"}`,
	"tasks/pushNotificationConfig/set": `{"taskId":"x","pushNotificationConfig":{"url":"https://push.example"}}`,
}

// route is one way to call a method. It returns the code of the answer, as over gRPC, and its reason.
type route struct {
	name, method string
	call         func(ctx context.Context, target rig.Target) (codes.Code, string)
}

// routes returns every way to call a method on a server.
func routes(t *testing.T, conn *grpc.ClientConn) (all []route) {
	t.Helper()
	for _, pkg := range []protoreflect.FullName{"lf.a2a.v1", "team.v1"} {
		protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				methods := f.Services().Get(i).Methods()
				for j := range methods.Len() {
					all = append(all, routesOf(methods.Get(j), conn)...)
				}
			}
			return true
		})
	}
	for at, method := range httpOnly {
		verb, path, _ := strings.Cut(at, " ")
		all = append(all, overHTTP(at, method, verb, path, cmp.Or(bodies[method], "{}")))
	}
	for old, method := range oldMethods {
		params := cmp.Or(bodies[old], `{"id":"x"}`)
		all = append(all, overHTTP("JSON-RPC "+old, method, "POST", "/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, old, params)))
	}
	return all
}

var variable = regexp.MustCompile(`\{[^}]*\}`)

func routesOf(m protoreflect.MethodDescriptor, conn *grpc.ClientConn) []route {
	name := string(m.Name())
	all := []route{overGRPC(m, conn)}
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		for verb, path := range map[string]string{"GET": r.GetGet(), "POST": r.GetPost(), "PUT": r.GetPut(), "PATCH": r.GetPatch(), "DELETE": r.GetDelete()} {
			if path == "" {
				continue
			}
			body := ""
			if r.GetBody() != "" {
				body = "{}"
			}
			all = append(all, overHTTP(verb+" "+path, name, verb, variable.ReplaceAllString(strings.Replace(path, "{account}", "-", 1), "x"), body))
		}
	}
	if m.Parent().FullName() == "lf.a2a.v1.A2AService" {
		all = append(all, overHTTP("JSON-RPC "+name, name, "POST", "/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`, name)))
	}
	return all
}

func overGRPC(m protoreflect.MethodDescriptor, conn *grpc.ClientConn) route {
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	return route{"gRPC " + path, string(m.Name()), func(ctx context.Context, target rig.Target) (codes.Code, string) {
		if target.Key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+target.Key, "a2a-version", "1.0")
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer()}, path)
		if err == nil {
			err = stream.SendMsg(dynamicpb.NewMessage(m.Input()))
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err == nil || err == io.EOF { //nolint:errorlint // the client returns EOF itself
			err = stream.RecvMsg(&emptypb.Empty{})
		}
		return status.Code(err), reasonOf(err)
	}}
}

// reasonOf returns the reason in the details of an error.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(interface{ GetReason() string }); ok {
			return info.GetReason()
		}
	}
	return ""
}

var reasonPattern = regexp.MustCompile(`"(?:reason|error_code)":\s*"(\w+)"`)

func overHTTP(name, method, verb, path, body string) route {
	return route{name, method, func(ctx context.Context, target rig.Target) (codes.Code, string) {
		var sent []byte
		if body != "" {
			sent = []byte(body)
		}
		if strings.Contains(path, "/v1/") && !strings.Contains(path, "/team/") {
			target.Version = "0.3"
		}
		if strings.Contains(body, "/") {
			target.Version = "0.3"
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := target.Do(ctx, verb, path, sent, map[string]string{"Content-Type": "application/json"})
		if err != nil {
			return codes.Unknown, err.Error()
		}
		if strings.Contains(resp.Header.Get("Content-Type"), "event-stream") {
			cancel()
			_, _ = resp.Body() // closes it
			return codes.OK, ""
		}
		b, err := resp.Body()
		if err != nil {
			return codes.Unknown, err.Error()
		}
		var reason string
		if m := reasonPattern.FindSubmatch(b); m != nil {
			reason = strings.ToUpper(string(m[1]))
		}
		var rpc struct {
			Error *struct{ Code int }
		}
		switch {
		case resp.Status == http.StatusUnauthorized:
			return codes.Unauthenticated, reason
		case resp.Status == http.StatusForbidden:
			return codes.PermissionDenied, reason
		case json.Unmarshal(b, &rpc) == nil && rpc.Error != nil || resp.Status >= 400:
			return codes.Unknown, reason
		}
		return codes.OK, ""
	}}
}

// matrixFile returns a file with an agent x that echoes, and keys that have one permission, all but one, and all.
func matrixFile(server string) string {
	var keys []string
	key := func(name string, p identity.Permissions) {
		keys = append(keys, fmt.Sprintf("{name: %s, account: acme, sha256: %q, permissions: [%s]}", name, rig.Key("acme", name).GetSha256(), p))
	}
	key("all", identity.EveryPermission)
	for _, name := range identity.EveryPermission.Names() {
		p, _ := identity.ParsePermission(name)
		key("only-"+name, p)
		key("without-"+name, identity.EveryPermission&^p)
	}
	return "version: v1\nagents: {x: {scripted: {steps: [{echo: true}]}}}\n" + strings.Replace(server, "KEYS", strings.Join(keys, ", "), 1) + "\n"
}

// TestT_6_PermissionMatrix calls every method on every binding without a key, with a key that lacks each
// permission that the method needs, and with a key that has only these permissions.
func TestT_6_PermissionMatrix(t *testing.T) {
	t.Parallel()
	needs := call.MethodPermissions()
	h := open(t, rig.Memory(t), matrixFile("server: {auth: {api_keys: [KEYS]}}"), fakellm.New(t))
	conn, err := grpc.NewClient(h.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	seen, cases := map[string]bool{"AgentCard": true}, 0
	for _, r := range routes(t, conn) {
		need, declared := needs[r.method]
		if !declared || need == 0 {
			t.Errorf("%s: %s declares no permission", r.name, r.method)
			continue
		}
		seen[r.method] = true
		cases++
		if code, reason := r.call(t.Context(), keyless(h.Target)); code != codes.Unauthenticated {
			t.Errorf("%s without a key: %s %s", r.name, code, reason)
		}
		for _, name := range need.Names() {
			cases += 2
			if code, reason := r.call(t.Context(), h.As("acme", "without-"+name)); code != codes.PermissionDenied || reason != "PERMISSION_DENIED" {
				t.Errorf("%s without %s: %s %s", r.name, name, code, reason)
			}
			if code, reason := r.call(t.Context(), h.As("acme", "only-"+name)); code == codes.PermissionDenied || code == codes.Unauthenticated || reason == "PERMISSION_DENIED" {
				t.Errorf("%s with only %s: %s %s", r.name, name, code, reason)
			}
		}
	}
	for method := range needs {
		if !seen[method] {
			t.Errorf("%s has a permission and is never called", method)
		}
	}
	t.Logf("%d routes of %d methods, %d cases", len(routes(t, conn)), len(seen), cases)
}
