package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/collab"
	"github.com/agentteams/team-server/internal/server"
)

func TestA_01_AllowedMethods(t *testing.T) {
	p := &probe{}
	target := start(t, server.Config{Handler: p, Monitor: &watchers{}, Collaborations: collab.New(collab.Config{})})
	for _, c := range []struct{ method, path, want string }{
		{"PUT", "/message:send", "POST"},
		{"GET", "/message:stream", "POST"},
		{"HEAD", "/message:stream", "POST"},
		{"DELETE", "/tasks", "GET, HEAD"},
		{"POST", "/news/tasks/t1", "GET, HEAD"},
		{"GET", "/tasks/t1:cancel", "POST"},
		{"PUT", "/tasks/t1:cancel", "POST"},
		{"PUT", "/tasks/t1:subscribe", "GET, POST"},
		{"HEAD", "/tasks/t1:subscribe", "GET, POST"},
		{"PUT", "/tasks/t1/pushNotificationConfigs/c", "GET, HEAD, DELETE"},
		{"GET", "/rpc", "POST"},
		{"POST", "/.well-known/agent-card.json", "GET, HEAD, OPTIONS"},
		{"POST", "/healthz", "GET, HEAD"},
		{"PUT", "/team/v1/agents/a:process", "POST"},
		{"PUT", "/team/v1/agents/a:health", "GET, HEAD"},
		{"POST", "/team/v1/monitor/teams/a:watch", "GET"},
		{"HEAD", "/team/v1/monitor/tasks/t1~1.2:watch", "GET"},
		{"POST", "/team/v1/monitor/tasks/t1:trace", "GET, HEAD"},
		{"POST", "/team/v1/monitor/tasks", "GET, HEAD"},
		{"GET", "/team/v1/monitor/tasks/t1:retry", "POST"},
		{"DELETE", "/team/v1/monitor/questions", "GET, HEAD"},
		{"POST", "/team/v1/monitor/costs", "GET, HEAD"},
		{"GET", "/team/v1/monitor/tasks/t1:answer", "POST"},
		{"PUT", "/team/v1/collaborations", "GET, HEAD, POST"},
		{"DELETE", "/team/v1/collaborations/c", "GET, HEAD"},
		{"GET", "/team/v1/collaborations/c:stop", "POST"},
		{"PUT", "/team/v1/collaborations/c:pause", "POST"},
		{"GET", "/team/v1/contract/start_collaboration", "POST"},
	} {
		resp, body := request(t, c.method, target.HTTP+c.path, "", nil)
		text, ok := field(body, "error", "message").(string)
		if !ok { // of the contract
			text, _ = field(body, "error_message").(string)
		}
		if c.method != "HEAD" && text != "method "+c.method+" is not supported here; use "+c.want {
			t.Errorf("%s %s: %q", c.method, c.path, text)
		}
		if got := resp.Header.Get("Allow"); resp.StatusCode != http.StatusMethodNotAllowed || got != c.want {
			t.Errorf("%s %s: %d, allowed is %q, want %q", c.method, c.path, resp.StatusCode, got, c.want)
		}
	}
	if resp, _ := request(t, http.MethodGet, target.HTTP+"/nothing/here", "", nil); resp.Header.Get("Allow") != "" {
		t.Errorf("nothing is there, but allowed is %q", resp.Header.Get("Allow"))
	}
	if n := p.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
}

// TestA_01_OptionsOfTheServer: OPTIONS * is answered like any other path that is not served.
func TestA_01_OptionsOfTheServer(t *testing.T) {
	options := func(config server.Config, key string) (*http.Response, string) {
		t.Helper()
		target := start(t, config)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, target.HTTP, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = "*"
		req.Header.Set("Authorization", "Bearer "+key)
		return do(t, req)
	}
	keyed := server.Config{Handler: &probe{}, Auth: byKeys(key("ann", "", "secret"))}
	if resp, body := options(keyed, ""); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `"reason"`) {
		t.Errorf("without a key: %d %v", resp.StatusCode, body)
	}
	if resp, body := options(keyed, "secret"); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, `"reason"`) {
		t.Errorf("with a key: %d %v", resp.StatusCode, body)
	}
	if resp, body := options(server.Config{Handler: &probe{}}, ""); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, `"reason"`) {
		t.Errorf("without keys: %d %v", resp.StatusCode, body)
	}
}

func TestA_01_HeadIsGetWithoutBody(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{
		get: task,
		list: func(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
			return &a2av1.ListTasksResponse{}, nil
		},
		card: func(context.Context, string) (*a2av1.AgentCard, error) { return &a2av1.AgentCard{Name: "n"}, nil },
	}})
	for _, path := range []string{
		"/tasks", "/tasks/t1", "/news/tasks/t1", "/tasks/none", "/nothing/here",
		"/.well-known/agent-card.json", "/news/.well-known/agent-card.json", "/healthz", "/readyz",
	} {
		get, _ := exchange(t, http.MethodGet, target.HTTP+path, "", nil)
		head, body := exchange(t, http.MethodHead, target.HTTP+path, "", nil)
		if head.StatusCode != get.StatusCode || len(body) > 0 {
			t.Errorf("%s: %d with %d bytes, GET is %d", path, head.StatusCode, len(body), get.StatusCode)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Vary", "ETag"} {
			if head.Header.Get(name) != get.Header.Get(name) {
				t.Errorf("%s: %s is %q, with GET %q", path, name, head.Header.Get(name), get.Header.Get(name))
			}
		}
	}
}
