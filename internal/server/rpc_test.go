package server_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
)

// named is a probe that remembers for which agent a call was.
func named(tenant *string) *probe {
	return &probe{
		get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
			*tenant = "<" + req.GetTenant() + ">"
			return task(ctx, req)
		},
		send: func(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
			*tenant = "<" + req.GetTenant() + ">"
			return echo(ctx, req)
		},
		cancel: func(_ context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
			*tenant = "<" + req.GetTenant() + ">"
			return &a2av1.Task{Id: req.GetId()}, nil
		},
	}
}

// TestA_01_RPCAtTheAddressOfAnAgent: JSON-RPC is taken at the addresses to which clients
// post it that know no /rpc, in both versions, as application/json alone, and from no page
// of another site.
func TestA_01_RPCAtTheAddressOfAnAgent(t *testing.T) {
	var tenant string
	open := start(t, server.Config{Handler: named(&tenant), Monitor: struct{ service.Monitor }{}})
	keyed := start(t, server.Config{Handler: named(&tenant), Auth: byKeys(key("ann", "", "secret"))})
	const one, old = `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t1"}}`
	for path, want := range map[string]string{
		"/": "<>", "": "<>", "/rpc": "<>", "/rpc/": "<>", "/news": "<news>", "/news/": "<news>", "/news/rpc": "<news>", "/news/rpc/": "<news>",
		"/news/rpc/news": "<news>", "/news/rpc/news/": "<news>", "/rpc/news": "<news>",
	} {
		t.Run("at "+path, func(t *testing.T) {
			for _, body := range []string{one, old} {
				tenant = ""
				resp, answer := post(t, open.HTTP+path, "application/json; charset=utf-8", body)
				if resp.StatusCode != http.StatusOK || field(answer, "result", "id") != "t1" || tenant != want {
					t.Errorf("%s: %d %v, for %s", body, resp.StatusCode, answer, tenant)
				}
			}
			if resp, answer := post(t, open.HTTP+path, "application/json", `{"jsonrpc":"2.0","id":7,"method":"nothing"}`); field(answer, "error", "code") != float64(-32601) || field(answer, "id") != float64(7) {
				t.Errorf("an unknown method: %d %v", resp.StatusCode, answer)
			}
			for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
				if resp, answer := post(t, open.HTTP+path, media, one); resp.StatusCode != http.StatusUnsupportedMediaType || field(answer, "error", "code") != float64(-32600) {
					t.Errorf("as %q: %d %v", media, resp.StatusCode, answer)
				}
			}
			if resp, answer := request(t, http.MethodPost, open.HTTP+path, one, map[string]string{"Content-Type": "application/json", "Origin": "https://evil.example"}); resp.StatusCode != http.StatusForbidden ||
				field(answer, "error", "code") != float64(-32025) {
				t.Errorf("from another site: %d %v", resp.StatusCode, answer)
			}
			if resp, answer := post(t, keyed.HTTP+path, "application/json", one); resp.StatusCode != http.StatusUnauthorized || field(answer, "error", "code") != float64(-32024) {
				t.Errorf("without a key: %d %v", resp.StatusCode, answer)
			}
			if resp, _ := request(t, http.MethodPost, keyed.HTTP+path, one, map[string]string{"Content-Type": "application/json", "Authorization": "Bearer secret"}); resp.StatusCode != http.StatusOK {
				t.Errorf("with a key: %d", resp.StatusCode)
			}
		})
	}
	t.Run("elsewhere all is as it was", func(t *testing.T) {
		for path, want := range map[string]int{
			"/tasks": 405, "/healthz": 405, "/extendedAgentCard": 405, "/docs": 405, "/openapi.json": 405, "/readyz": 405,
			"/a/b": 404, "/news/rpc/sport": 404, "/news/rpc/news/news": 404, "/news/tasks": 405, "/v1": 404, "/team": 404, "/assets/": 405,
		} {
			if resp, answer := post(t, open.HTTP+path, "application/json", one); resp.StatusCode != want {
				t.Errorf("%s: %d, want %d: %v", path, resp.StatusCode, want, answer)
			}
		}
		if resp, _ := post(t, open.HTTP+"/news", "application/a2a+json", one); resp.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("as application/a2a+json: %d", resp.StatusCode)
		}
		if resp, _ := post(t, open.HTTP+"/news/rpc", "application/a2a+json", one); resp.StatusCode != http.StatusOK {
			t.Errorf("as application/a2a+json at /rpc: %d", resp.StatusCode)
		}
		if resp, _ := request(t, http.MethodGet, open.HTTP+"/", "", nil); resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("the page: %v", resp.Header)
		}
	})
}

// TestA_01_OneTenant: a call that names two agents is refused, wherever it names them.
func TestA_01_OneTenant(t *testing.T) {
	var tenant string
	p := named(&tenant)
	note := func(of string) { tenant = "<" + of + ">" }
	p.list = func(_ context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
		note(req.GetTenant())
		return &a2av1.ListTasksResponse{}, nil
	}
	p.card = func(_ context.Context, of string) (*a2av1.AgentCard, error) {
		note(of)
		return &a2av1.AgentCard{Name: "a"}, nil
	}
	p.extended = func(_ context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
		note(req.GetTenant())
		return &a2av1.AgentCard{Name: "a"}, nil
	}
	none := func(func(feed.Update, error) bool) {}
	p.stream = func(_ context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		note(req.GetTenant())
		return none, nil
	}
	p.subscribe = func(_ context.Context, req *a2av1.SubscribeToTaskRequest, _ int64) (iter.Seq2[feed.Update, error], error) {
		note(req.GetTenant())
		return none, nil
	}
	target := start(t, server.Config{Handler: p})
	rpc := func(method, rest string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"tenant":%%q,%s}}`, method, rest)
	}
	const message = `"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`
	for name, c := range map[string]struct{ path, body string }{
		"JSON-RPC":                         {"/news/rpc", rpc("GetTask", `"id":"t1"`)},
		"JSON-RPC at the agent":            {"/news", rpc("SendMessage", message)},
		"a stream over JSON-RPC":           {"/news/", rpc("SendStreamingMessage", message)},
		"a subscription over JSON-RPC":     {"/news/rpc", rpc("SubscribeToTask", `"id":"t1"`)},
		"a send over REST":                 {"/news/message:send", `{"tenant":%q,` + message + `}`},
		"a stream over REST":               {"/news/message:stream", `{"tenant":%q,` + message + `}`},
		"a subscription over REST":         {"/news/tasks/t1:subscribe", `{"tenant":%q}`},
		"a cancel over REST":               {"/news/tasks/t1:cancel", `{"tenant":%q}`},
		"a push configuration over REST":   {"/news/tasks/t1/pushNotificationConfigs", `{"tenant":%q,"url":"http://x.example"}`},
		"a push configuration in JSON-RPC": {"/news", rpc("CreateTaskPushNotificationConfig", `"taskId":"t1","url":"http://x.example"`)},
	} {
		t.Run(name, func(t *testing.T) {
			_, answer := post(t, target.HTTP+c.path, "application/json", fmt.Sprintf(c.body, "other"))
			text, _ := field(answer, "error", "message").(string)
			if violation(answer) != "tenant" && !strings.Contains(fmt.Sprint(answer), "tenant") || !strings.Contains(text, `"other"`) || !strings.Contains(text, `"news"`) {
				t.Errorf("got %v", answer)
			}
		})
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/news/tasks/t1?tenant=other", ""},
		{"GET", "/news/tasks?tenant=news&tenant=other", ""},
		{"GET", "/news/news/tasks/t1?tenant=other", ""},
		{"GET", "/news/extendedAgentCard?tenant=other", ""},
		{"GET", "/news/tasks/t1:subscribe?tenant=other", ""},
		{"GET", "/news/tasks/t1/parts/d?tenant=other", ""},
		{"POST", "/news/message:send?tenant=other", `{` + message + `}`},
		{"POST", "/news/message:stream?tenant=other", `{` + message + `}`},
		{"DELETE", "/news/tasks/t1/pushNotificationConfigs/c?tenant=other", ""},
	} {
		resp, answer := request(t, c.method, target.HTTP+c.path, c.body, map[string]string{"Content-Type": "application/json"})
		text, _ := field(answer, "error", "message").(string)
		if resp.StatusCode != http.StatusBadRequest || violation(answer) != "tenant" || !strings.Contains(text, `"other" in the query and "news" in the path`) {
			t.Errorf("%s %s: %d %v", c.method, c.path, resp.StatusCode, answer)
		}
	}
	if n := p.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
	for _, c := range []struct{ method, path, body, version string }{
		{"GET", "/tasks/t1", "", "1.0"},
		{"GET", "/tasks", "", "1.0"},
		{"GET", "/extendedAgentCard", "", "1.0"},
		{"GET", "/.well-known/agent-card.json", "", "1.0"},
		{"GET", "/tasks/t1:subscribe", "", "1.0"},
		{"POST", "/message:send", `{` + message + `}`, "1.0"},
		{"POST", "/message:stream", `{` + message + `}`, "1.0"},
		{"POST", "/tasks/t1:cancel", "", "1.0"},
		{"POST", "/tasks/t1:cancel", "{}", "1.0"},
		{"POST", "/tasks/t1:subscribe", "", "1.0"},
		{"POST", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`, "1.0"},
		{"POST", "/", `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{` + message + `}}`, "1.0"},
		{"POST", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t1"}}`, "0.3"},
		{"GET", "/v1/tasks/t1", "", "0.3"},
		{"POST", "/v1/tasks/t1:cancel", "", "0.3"},
		{"POST", "/v1/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]}}`, "0.3"},
	} {
		tenant = ""
		exchange(t, c.method, target.HTTP+c.path+"?tenant=news", c.body, map[string]string{"Content-Type": "application/json", "A2A-Version": c.version})
		if tenant != "<news>" {
			t.Errorf("%s %s: the tenant of the query reached %q", c.method, c.path, tenant)
		}
		tenant = ""
		if resp, answer := request(t, c.method, target.HTTP+c.path+"?tenant=news&tenant=other", c.body, map[string]string{"Content-Type": "application/json", "A2A-Version": c.version}); resp.StatusCode != http.StatusBadRequest || tenant != "" {
			t.Errorf("%s %s: two tenants in the query: %d %v", c.method, c.path, resp.StatusCode, answer)
		}
	}
	for _, query := range []string{"tenant=news;x", "tenant=%zz", "tenant=new%"} {
		for _, c := range []struct{ method, path string }{{"POST", "/message:send"}, {"POST", "/rpc"}, {"GET", "/tasks/t1"}, {"GET", "/.well-known/agent-card.json"}} {
			before := p.calls.Load()
			resp, answer := request(t, c.method, target.HTTP+c.path+"?"+query, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"},`+message+`}`, map[string]string{"Content-Type": "application/json"})
			if text := fmt.Sprint(answer); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "malformed query") || p.calls.Load() != before {
				t.Errorf("%s %s?%s: %d %v", c.method, c.path, query, resp.StatusCode, answer)
			}
		}
	}
	for _, path := range []string{"/news/message:send", "/message:send", "/news/message:send?tenant=news", "/message:send?tenant=news"} {
		if resp, answer := post(t, target.HTTP+path, "application/json", `{"tenant":"news",`+message+`}`); resp.StatusCode != http.StatusOK || tenant != "<news>" {
			t.Errorf("%s: the same duplicateParameter: %d %v, for %s", path, resp.StatusCode, answer, tenant)
		}
	}
}

// TestA_01_Notifications: a request of JSON-RPC without an id is carried out and gets no
// response; the status says whether it failed. Nothing waits for the end of its task.
func TestA_01_Notifications(t *testing.T) {
	var tenant string
	var chunkSize bool
	p := named(&tenant)
	send := p.send
	p.send = func(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
		chunkSize = req.GetConfiguration().GetReturnImmediately()
		return send(ctx, req)
	}
	target := start(t, server.Config{Handler: p})
	const message = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`
	const old = `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`
	for name, c := range map[string]struct {
		method, params string
		want           int
		calls          int64
	}{
		"a send":                     {"SendMessage", message, 202, 1},
		"a stream is a send":         {"SendStreamingMessage", message, 202, 1},
		"a subscription is a look":   {"SubscribeToTask", `{"id":"t1"}`, 202, 1},
		"a cancel":                   {"CancelTask", `{"id":"t1"}`, 202, 1},
		"0.3: a send":                {"message/send", old, 202, 1},
		"0.3: a stream is a send":    {"message/stream", old, 202, 1},
		"0.3: a subscription":        {"tasks/resubscribe", `{"id":"t1"}`, 202, 1},
		"what fails":                 {"GetTask", `{"id":"t2"}`, 404, 1},
		"0.3: what fails":            {"tasks/get", `{"id":"t2"}`, 404, 1},
		"a method that is not there": {"notifications/initialized", `{}`, 404, 0},
		"parameters that are wrong":  {"SendMessage", `{"message":5}`, 400, 0},
		"parameters by position":     {"SendMessage", `["x"]`, 400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			chunkSize = false
			before := p.calls.Load()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+"/news/rpc",
				strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, c.method, c.params)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || len(b) > 0 || resp.StatusCode != c.want || p.calls.Load()-before != c.calls {
				t.Errorf("%s, %d calls: %q %v", resp.Status, p.calls.Load()-before, b, err)
			}
			if sends := strings.Contains(strings.ToLower(c.method), "message"); c.want == 202 && sends != chunkSize {
				t.Errorf("it waits for the end of the task: %v", !chunkSize)
			}
		})
	}
	t.Run("an id that is null is one", func(t *testing.T) {
		if resp, answer := post(t, target.HTTP+"/rpc", "application/json", `{"jsonrpc":"2.0","id":null,"method":"GetTask","params":{"id":"t1"}}`); resp.StatusCode != 200 || field(answer, "result", "id") != "t1" {
			t.Errorf("%d %v", resp.StatusCode, answer)
		}
		if resp, answer := post(t, target.HTTP+"/rpc", "application/json", `{"jsonrpc":"2.0"}`); resp.StatusCode != 200 || field(answer, "error", "code") != float64(-32600) {
			t.Errorf("what is no request: %d %v", resp.StatusCode, answer)
		}
	})
}

// TestA_25_SnakeCaseQueries: 0.3 over REST takes parameters in both spellings.
func TestA_25_SnakeCaseQueries(t *testing.T) {
	var list *a2av1.ListTasksRequest
	var history *int32
	target := start(t, server.Config{Handler: &probe{
		list: func(_ context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
			list = req
			return &a2av1.ListTasksResponse{}, nil
		},
		get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
			history = req.HistoryLength
			return task(ctx, req)
		},
	}})
	for _, query := range []string{
		"contextId=c&pageSize=7&pageToken=p&historyLength=3&includeArtifacts=true&lastUpdatedAfter=2026-01-02T03:04:05Z",
		"context_id=c&page_size=7&page_token=p&history_length=3&include_artifacts=true&last_updated_after=2026-01-02T03:04:05Z",
	} {
		list, history = nil, nil
		if resp, body := request(t, http.MethodGet, target.HTTP+"/v1/tasks?"+query, "", nil); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", query, resp.StatusCode, body)
		}
		if list.GetContextId() != "c" || list.GetPageSize() != 7 || list.GetPageToken() != "p" || list.GetHistoryLength() != 3 || !list.GetIncludeArtifacts() || list.GetStatusTimestampAfter() == nil {
			t.Errorf("%s: %v", query, list)
		}
	}
	for _, name := range []string{"historyLength", "history_length"} {
		if resp, _ := request(t, http.MethodGet, target.HTTP+"/v1/tasks/t1?"+name+"=2", "", nil); resp.StatusCode != http.StatusOK || history == nil || *history != 2 {
			t.Errorf("%s: %d %v", name, resp.StatusCode, history)
		}
		if resp, body := request(t, http.MethodGet, target.HTTP+"/v1/tasks/t1?"+name+"=x", "", nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(fmt.Sprint(body), "historyLength") {
			t.Errorf("%s=x: %d %v", name, resp.StatusCode, body)
		}
	}
}
