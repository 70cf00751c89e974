package server_test

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
)

// TestA_21_PagesOfOtherOrigins: a page of an origin in server.cors can call over REST, JSON-RPC
// and as a stream, and read errors; a page of another origin cannot.
func TestA_21_PagesOfOtherOrigins(t *testing.T) {
	const app, other = "https://app.example", "https://app.example.evil.example"
	p := &probe{
		get: task, send: echo,
		card: func(context.Context, string) (*a2av1.AgentCard, error) { return &a2av1.AgentCard{Name: "a"}, nil },
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
			return func(yield func(feed.Update, error) bool) {
				yield(feed.Update{Seq: 1, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: &a2av1.Task{Id: "t1"}}}}, nil)
			}, nil
		},
	}
	from := func(origins ...string) *settings.Live {
		return settings.Of(&teamv1.ServerSettings{Cors: &teamv1.CorsSettings{Origins: origins, Headers: []string{"X-Mine"}}})
	}
	plain := server.Config{Handler: p, Settings: from(app, "http://localhost:5173")}
	keyed, all, allKeyless, off := plain, plain, plain, plain
	keyed.Auth = byKeys(key("ann", "", "secret"))
	all.Settings, all.Auth = from("*"), keyed.Auth
	allKeyless.Settings = from("*")
	off.Settings, off.Auth = nil, keyed.Auth
	targets := map[string]string{}
	for name, c := range map[string]server.Config{"plain": plain, "keyed": keyed, "all": all, "allKeyless": allKeyless, "off": off} {
		targets[name] = start(t, c).HTTP
	}
	const message = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`
	calls := []struct{ name, method, path, body string }{
		{"REST", "GET", "/tasks/t1", ""},
		{"a send over REST", "POST", "/message:send", message},
		{"JSON-RPC", "POST", "/news/rpc", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`},
		{"JSON-RPC at the agent", "POST", "/news", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t1"}}`},
		{"a stream over REST", "POST", "/message:stream", message},
		{"a stream over JSON-RPC", "POST", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":` + message + `}`},
		{"a card", "GET", "/.well-known/agent-card.json", ""},
	}
	for name, c := range map[string]struct {
		target, origin, key string
		status              int    // of the call
		allowed             string // Access-Control-Allow-Origin; empty: a browser lets the page do nothing
	}{
		"with a key": {"keyed", app, "secret", 200, app},
		"the error for a missing key can be read":       {"keyed", app, "", 401, app},
		"another origin is sent no permission":          {"keyed", other, "secret", 200, ""},
		"an origin is compared as a whole":              {"keyed", "https://app.example:8443", "secret", 200, ""},
		"a hidden origin":                               {"keyed", "null", "secret", 200, ""},
		"every origin, with a key":                      {"all", other, "secret", 200, "*"},
		"without keys":                                  {"plain", app, "", 200, app},
		"another one of the list":                       {"plain", "http://localhost:5173", "", 200, "http://localhost:5173"},
		"without keys another origin is refused":        {"plain", other, "", 403, ""},
		"no keys: \"*\" allows no origin":               {"allKeyless", other, "", 403, ""},
		"where it is off":                               {"off", app, "secret", 200, ""},
		"where it is off, an asterisk is not an origin": {"plain", "*", "", 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, call := range calls {
				url := targets[c.target] + call.path
				card := call.path == "/.well-known/agent-card.json" // open to every page
				resp, body := exchange(t, call.method, url, call.body, map[string]string{
					"Origin": c.origin, "Content-Type": "application/json", "Authorization": strings.TrimSpace("Bearer " + c.key),
				})
				want, status := c.allowed, c.status
				if card {
					want, status = "*", 200
				}
				if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want || resp.StatusCode != status {
					t.Errorf("%s: %s, for %q, want %d for %q: %s", call.name, resp.Status, got, status, want, body)
				}
				if resp.Header.Get("Access-Control-Allow-Credentials") != "" {
					t.Errorf("%s: with credentials", call.name)
				}
				vary := strings.Join(resp.Header.Values("Vary"), ", ")
				if exposed := resp.Header.Get("Access-Control-Expose-Headers"); !card && want != "" && (!strings.Contains(exposed, "X-Request-Id") || !strings.Contains(exposed, "A2A-Extensions")) {
					t.Errorf("%s: exposed are %q", call.name, exposed)
				}
				if !card && want != "" && want != "*" && !strings.Contains(vary, "Origin") {
					t.Errorf("%s: varies with %q", call.name, vary)
				}
				resp, _ = exchange(t, http.MethodOptions, url, "", map[string]string{ // has no key
					"Origin": c.origin, "Access-Control-Request-Method": call.method, "Access-Control-Request-Headers": "authorization, content-type, x-mine",
				})
				h := resp.Header
				can := resp.StatusCode == http.StatusNoContent && h.Get("Access-Control-Allow-Origin") == want &&
					strings.Contains(h.Get("Access-Control-Allow-Methods"), call.method) && strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") &&
					strings.Contains(h.Get("Access-Control-Allow-Headers"), "A2A-Version") && strings.HasSuffix(h.Get("Access-Control-Allow-Headers"), ", X-Mine")
				if !card && can != (want != "") {
					t.Errorf("%s: the preflight is answered with %s %v", call.name, resp.Status, h)
				}
			}
		})
	}
	t.Run("a page reads a part in ranges", func(t *testing.T) {
		const url = "/tasks/t1/parts/d"
		resp, _ := exchange(t, http.MethodOptions, targets["keyed"]+url, "", map[string]string{
			"Origin": app, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization, if-range, range",
		})
		allowed := strings.Split(resp.Header.Get("Access-Control-Allow-Headers"), ", ")
		resp, _ = exchange(t, http.MethodGet, targets["keyed"]+url, "", map[string]string{"Origin": app, "Range": "bytes=0-1"})
		exposed := strings.Split(resp.Header.Get("Access-Control-Expose-Headers"), ", ")
		for name, list := range map[string][]string{"Range": allowed, "If-Range": allowed, "Content-Range": exposed, "Accept-Ranges": exposed, "ETag": exposed} {
			if !slices.Contains(list, name) {
				t.Errorf("%s is not in %q", name, list)
			}
		}
	})
	t.Run("a preflight waits for no body", func(t *testing.T) {
		if got := begun(t, targets["keyed"], http.MethodOptions, "/message:send"); got != http.StatusUnauthorized {
			t.Errorf("without an origin: %d", got)
		}
	})
}
