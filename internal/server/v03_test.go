package server_test

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

const (
	sendV03 = `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`
	getV03  = `{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"id":"none"}}`
	get10   = `{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":"t1"}}`
)

// exchangeJSON makes a request with a JSON body.
func exchangeJSON(t *testing.T, method, url, body string, headers map[string]string) (*http.Response, string) {
	t.Helper()
	all := map[string]string{"Content-Type": "application/json"}
	maps.Copy(all, headers)
	return exchange(t, method, url, body, all)
}

// spoken returns a handler that records the version of a call.
func spoken(version *string) *probe {
	return &probe{
		get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
			*version = a2a.VersionOf(ctx)
			return task(ctx, req)
		},
		send: func(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
			*version = a2a.VersionOf(ctx)
			return echo(ctx, req)
		},
		card: func(context.Context, string) (*a2av1.AgentCard, error) {
			return &a2av1.AgentCard{Name: "n", SupportedInterfaces: []*a2av1.AgentInterface{
				{Url: "http://h/a/rpc", ProtocolBinding: "JSONRPC", ProtocolVersion: "1.0"},
			}}, nil
		},
	}
}

// The version that a call names, or its method does, decides.
func TestA_25_WhoSpeaksWhat_A_03(t *testing.T) {
	var version string
	target := start(t, server.Config{Handler: spoken(&version)})
	strict := start(t, server.Config{Handler: spoken(&version), Settings: settings.Of(&teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{StrictVersion: true}})})
	for _, c := range []struct {
		name, base, path, body, says string
		status                       int
		version, want                string
	}{
		{"a method of 0.3", target.HTTP, "/rpc", sendV03, "", 200, "0.3", `"kind":"message"`},
		{"a method of 0.3 to a strict server", strict.HTTP, "/rpc", sendV03, "", 200, "0.3", `"kind":"message"`},
		{"a method of 0.3, said", target.HTTP, "/a/rpc", sendV03, "0.3", 200, "0.3", `"kind":"message"`},
		{"a method of 0.3, said with a patch", target.HTTP, "/rpc", sendV03, "0.3.0", 200, "0.3", `"kind":"message"`},
		{"a method of 0.3 in a call of 1.0", target.HTTP, "/rpc", sendV03, "1.0", 200, "", `"code":-32601`},
		{"a method of 1.0", target.HTTP, "/rpc", get10, "", 200, "1.0", `"TASK_STATE_WORKING"`},
		{"a method of 1.0 to a strict server", strict.HTTP, "/rpc", get10, "", 200, "", `VERSION_NOT_SUPPORTED`},
		{"a method of 1.0 in a call of 0.3", target.HTTP, "/rpc", get10, "0.3", 200, "", `"code":-32601`},
		{"another version", target.HTTP, "/rpc", get10, "0.5", 200, "", `VERSION_NOT_SUPPORTED`},
		{"another version is told of both", target.HTTP, "/tasks/t1", "", "0.5", 400, "", `use 1.0, or 0.3`},
		{"below /v1", target.HTTP, "/v1/tasks/t1", "", "", 200, "0.3", `"TASK_STATE_WORKING"`},
		{"below /v1 of an agent", target.HTTP, "/a/v1/tasks/t1", "", "0.3", 200, "0.3", `"TASK_STATE_WORKING"`},
		{"below /v1 in a call of 1.0", target.HTTP, "/v1/tasks/t1", "", "1.0", 404, "", `omit the header`},
		{"REST of 1.0", target.HTTP, "/tasks/t1", "", "", 200, "1.0", `"TASK_STATE_WORKING"`},
		{"REST of 1.0 in a call of 0.3", target.HTTP, "/tasks/t1", "", "0.3", 200, "0.3", `"TASK_STATE_WORKING"`},
		{"REST of 1.0 of an agent in a call of 0.3", target.HTTP, "/a/tasks/none", "", "0.3", 404, "0.3", `"code":-32602`},
		{"version in the query", target.HTTP, "/tasks/t1?A2A-Version=0.3", "", "", 200, "0.3", `"TASK_STATE_WORKING"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			version = ""
			method := http.MethodPost
			if c.body == "" {
				method = http.MethodGet
			}
			headers := map[string]string{}
			if c.says != "" {
				headers["A2A-Version"] = c.says
			}
			resp, body := exchangeJSON(t, method, c.base+c.path, c.body, headers)
			if resp.StatusCode != c.status || version != c.version || !strings.Contains(strings.ReplaceAll(body, `": `, `":`), c.want) {
				t.Errorf("%d in %q: %s", resp.StatusCode, version, body)
			}
		})
	}
}

func TestA_25_TurnedOff(t *testing.T) {
	var version string
	target := start(t, server.Config{Handler: spoken(&version), Settings: settings.Of(&teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{V0_3: proto.Bool(false)}})})
	for _, c := range []struct {
		name, method, path, body, says, want string
		status                               int
	}{
		{"a method", "POST", "/rpc", sendV03, "", `"code":-32601`, 200},
		{"a method, said", "POST", "/rpc", sendV03, "0.3", `VERSION_NOT_SUPPORTED`, 200},
		{"REST", "GET", "/v1/tasks/t1", "", "", "is disabled on this server", 404},
		{"REST, said", "GET", "/v1/tasks/t1", "", "0.3", "VERSION_NOT_SUPPORTED", 400},
	} {
		headers := map[string]string{}
		if c.says != "" {
			headers["A2A-Version"] = c.says
		}
		resp, body := exchangeJSON(t, c.method, target.HTTP+c.path, c.body, headers)
		if resp.StatusCode != c.status || !strings.Contains(body, c.want) || !strings.Contains(body, "server.protocol.v0_3") {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, body)
		}
	}
	if _, body := exchangeJSON(t, "GET", target.HTTP+"/tasks/t1", "", map[string]string{"A2A-Version": "9.9"}); !strings.Contains(body, `is not supported; use 1.0"`) {
		t.Errorf("0.3 is not there, and offered: %s", body)
	}
	if _, body := exchangeJSON(t, "GET", target.HTTP+"/.well-known/agent-card.json", "", nil); strings.Contains(body, "preferredTransport") {
		t.Errorf("the card offers 0.3: %s", body)
	}
	if resp, _ := exchangeJSON(t, "GET", target.HTTP+"/.well-known/agent.json", "", nil); resp.StatusCode != 404 {
		t.Errorf("the old place of the card: %d", resp.StatusCode)
	}
	if resp, body := exchangeJSON(t, "POST", target.HTTP+"/rpc", get10, nil); resp.StatusCode != 200 || version != "1.0" {
		t.Errorf("1.0: %d %s", resp.StatusCode, body)
	}
}

// Who says 1.0 gets the card of 1.0 alone; both have tags of their own.
func TestA_25_WhoGetsWhichCard_A_10(t *testing.T) {
	var version string
	target := start(t, server.Config{Handler: spoken(&version), Auth: byKeys(key("ann", "", "secret"))})
	tags := map[string]string{}
	for _, c := range []struct {
		name, path, says, accept string
		union                    bool
	}{
		{"nothing said", "/.well-known/agent-card.json", "", "application/json, */*", true},
		{"0.3 said", "/.well-known/agent-card.json", "0.3", "application/a2a+json", true},
		{"1.0 said", "/.well-known/agent-card.json", "1.0", "", false},
		{"1.0 said in the query", "/.well-known/agent-card.json?A2A-Version=1.0", "", "", false},
		{"the media type of 1.0", "/.well-known/agent-card.json", "", "application/a2a+json, application/json", false},
		{"the old place", "/.well-known/agent.json", "", "", true},
		{"of an agent", "/a/.well-known/agent.json", "", "", true},
	} {
		headers := map[string]string{}
		if c.accept != "" {
			headers["Accept"] = c.accept
		}
		if c.says != "" {
			headers["A2A-Version"] = c.says
		}
		resp, body := exchangeJSON(t, "GET", target.HTTP+c.path, "", headers)
		if resp.StatusCode != 200 || strings.Contains(body, `"protocolVersion":"0.3.0"`) != c.union || !strings.Contains(body, "supportedInterfaces") {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, body)
		}
		if resp.Header.Get("Vary") != "Accept, A2A-Version" {
			t.Errorf("%s: varies with %q", c.name, resp.Header.Get("Vary"))
		}
		tags[c.name] = resp.Header.Get("ETag")
	}
	if tags["nothing said"] == tags["1.0 said"] || tags["nothing said"] != tags["0.3 said"] || tags["1.0 said"] != tags["1.0 said in the query"] || tags["1.0 said"] != tags["the media type of 1.0"] {
		t.Errorf("tags %v", tags)
	}
}

// TestA_25_RefusedStreams: if a stream is rejected, clients of 0.3 that accept only events
// get the error as an event, others as JSON. Errors of HTTP itself remain HTTP errors.
func TestA_25_RefusedStreams(t *testing.T) {
	p := &probe{stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		return nil, a2aerror.TaskNotFound("t")
	}}
	target := start(t, server.Config{Handler: p})
	locked := start(t, server.Config{Handler: p, Auth: byKeys(key("ann", "", "secret"))})
	stream := strings.Replace(sendV03, "message/send", "message/stream", 1)
	rest := `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}}`
	for _, c := range []struct {
		name, url, body, accept string
		status                  int
		media, want             string
	}{
		{"events alone", target.HTTP + "/rpc", stream, "text/event-stream", 200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32001"},
		{"events, and anything", target.HTTP + "/rpc", stream, "*/*, text/event-stream", 200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32001"},
		{"JSON too", target.HTTP + "/rpc", stream, "text/event-stream, application/json", 200, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32001`},
		{"anything", target.HTTP + "/rpc", stream, "*/*", 200, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32001`},
		{"bad parameters", target.HTTP + "/rpc", strings.Replace(stream, "user", "robot", 1), "text/event-stream", 200, "text/event-stream", "message.role"},
		{"REST", target.HTTP + "/v1/message:stream", rest, "text/event-stream", 404, "application/json", `{"code":-32001`},
		{"without a key", locked.HTTP + "/rpc", stream, "text/event-stream", 401, "application/json", "UNAUTHENTICATED"},
		{"REST without a key", locked.HTTP + "/v1/message:stream", rest, "text/event-stream", 401, "application/json", `{"code":-32024`},
	} {
		resp, body := exchangeJSON(t, "POST", c.url, c.body, map[string]string{"Accept": c.accept})
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.media || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s\n%s", c.name, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
	}
}

// Only the last update of a stream is final, and none follows it.
func TestA_25_FinalIsTheLast(t *testing.T) {
	p := &probe{stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		update := func(state a2av1.TaskState) *a2av1.StreamResponse {
			return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_StatusUpdate{StatusUpdate: &a2av1.TaskStatusUpdateEvent{
				TaskId: "t", ContextId: "c", Status: &a2av1.TaskStatus{State: state},
			}}}
		}
		return func(yield func(feed.Update, error) bool) {
			_ = yield(feed.Update{Seq: 1, Response: update(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)}, nil) &&
				yield(feed.Update{Seq: 2, Response: update(a2av1.TaskState_TASK_STATE_AUTH_REQUIRED)}, nil) &&
				yield(feed.Update{Seq: 3, Response: update(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED), Last: true}, nil)
		}, nil
	}}
	target := start(t, server.Config{Handler: p})
	_, body := exchangeJSON(t, "POST", target.HTTP+"/rpc", strings.Replace(sendV03, "message/send", "message/stream", 1), nil)
	var finals []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "data:") {
			finals = append(finals, map[bool]string{true: "final", false: "not"}[strings.Contains(line, `"final":true`)])
		}
	}
	if strings.Join(finals, " ") != "not not final" || !strings.Contains(body, "id: 2\n") {
		t.Errorf("%v in\n%s", finals, body)
	}
}

// The header for extensions that clients of 0.3 send is heeded, and answered.
func TestA_25_ExtensionsByTheOldHeader(t *testing.T) {
	var uris []string
	target := start(t, server.Config{Handler: &probe{send: func(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
		uris = a2a.ExtensionsOf(ctx)
		return echo(ctx, req)
	}}})
	resp, body := exchangeJSON(t, "POST", target.HTTP+"/rpc", sendV03, map[string]string{"X-A2A-Extensions": project.TeamRunURI + ", https://example.com/x"})
	if len(uris) != 2 || resp.Header.Get("X-A2A-Extensions") != project.TeamRunURI {
		t.Errorf("heeded %v, answered %q: %s", uris, resp.Header.Get("X-A2A-Extensions"), body)
	}
}

// The extended card over 0.3 has the signatures of the one of 1.0; it is served with and
// without /v1.
func TestA_25_ExtendedCardIsSigned_A_10(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{extended: func(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
		return &a2av1.AgentCard{
			Name: "n", Signatures: []*a2av1.AgentCardSignature{{Protected: "e30", Signature: "c2ln"}},
			SupportedInterfaces: []*a2av1.AgentInterface{{Url: "http://h/a/rpc", ProtocolBinding: "JSONRPC", ProtocolVersion: "1.0"}},
		}, nil
	}}})
	const rpc = `{"jsonrpc":"2.0","id":7,"method":"agent/getAuthenticatedExtendedCard"}`
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/rpc", rpc, ""},
		{"GET", "/v1/card", "", ""},
		{"GET", "/a/v1/card", "", "0.3"},
		{"GET", "/card", "", "0.3"},
		{"GET", "/a/card", "", "0.3"},
	} {
		resp, body := exchangeJSON(t, c.method, target.HTTP+c.path, c.body, map[string]string{"A2A-Version": c.says})
		if resp.StatusCode != 200 || !strings.Contains(body, `"protocolVersion":"0.3.0"`) || !strings.Contains(body, `"signature":"c2ln"`) {
			t.Errorf("%s: %d %s", c.path, resp.StatusCode, body)
		}
	}
	if _, body := exchangeJSON(t, "GET", target.HTTP+"/extendedAgentCard", "", nil); !strings.Contains(body, "signatures") {
		t.Errorf("of 1.0: %s", body)
	}
}

// REST has the filters of a list that JSON-RPC has.
func TestA_25_ListOverREST_A_05(t *testing.T) {
	var got *a2av1.ListTasksRequest
	target := start(t, server.Config{Handler: &probe{list: func(_ context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
		got = req
		return &a2av1.ListTasksResponse{}, nil
	}}})
	for _, at := range []string{"2026-11-22T10:00:00Z", "2026-11-22T10:00:00", "2026-11-22T11:00:00%2B01:00"} {
		resp, body := exchangeJSON(t, "GET", target.HTTP+"/v1/tasks?lastUpdatedAfter="+at, "", nil)
		if after := got.GetStatusTimestampAfter(); resp.StatusCode != 200 || after.AsTime().Format(time.RFC3339) != "2026-11-22T10:00:00Z" {
			t.Errorf("%s: after %v, %d %s", at, after, resp.StatusCode, body)
		}
	}
	if resp, body := exchangeJSON(t, "GET", target.HTTP+"/v1/tasks?lastUpdatedAfter=now", "", nil); resp.StatusCode != 400 || !strings.Contains(body, "lastUpdatedAfter") {
		t.Errorf("no time: %d %s", resp.StatusCode, body)
	}
}
