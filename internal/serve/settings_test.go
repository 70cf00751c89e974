package serve_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/tests/rig"
)

// reloadRow matches a row of the table of what a reload applies.
var reloadRow = regexp.MustCompile("(?m)^\\| ((?:`[a-z_.]+`(?:, )?)+) \\| (at once|next start)")

// TestReloadTable: docs/configuration-server.md says of every key of server: whether a reload applies it, as the code does.
func TestReloadTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration-server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "\n## Reload\n")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]string{}
	for _, m := range reloadRow.FindAllStringSubmatch(table, -1) {
		for key := range strings.SplitSeq(m[1], ", ") {
			documented[strings.Trim(key, "`")] = m[2]
		}
	}
	coded := map[string]string{}
	for i := range (&teamv1.ServerSettings{}).ProtoReflect().Descriptor().Fields().Len() {
		coded[(&teamv1.ServerSettings{}).ProtoReflect().Descriptor().Fields().Get(i).TextName()] = "at once"
	}
	for _, key := range settings.AtStart() {
		coded[key] = "next start"
	}
	if diff := cmp.Diff(coded, documented); diff != "" {
		t.Errorf("the table below Reload in docs/configuration-server.md (-code +table):\n%s", diff)
	}
}

// probe asks a server something and returns the answer in a few words.
type probe func(t *testing.T, s *site) string

// request makes a request over HTTP and returns the status and what part returns of the answer.
func request(method, path, body string, headers map[string]string, part func(*http.Response, string) string) probe {
	return func(t *testing.T, s *site) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("A2A-Version", "1.0")
		req.Header.Set("Authorization", "Bearer one")
		req.Header.Set("Content-Type", "application/json")
		for name, value := range headers {
			req.Header.Set(name, value)
			if value == "" {
				req.Header.Del(name)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if part == nil {
			return resp.Status
		}
		return resp.Status + " " + part(resp, string(b))
	}
}

// has returns a function that reports whether an answer contains a text.
func has(text string) func(*http.Response, string) string {
	return func(_ *http.Response, body string) string { return fmt.Sprint(strings.Contains(body, text)) }
}

const message = `{"message": {"messageId": "%s", "role": "ROLE_USER", "parts": [{"text": "x"}]}, "configuration": {"returnImmediately": true%s}}`

// TestReloadApplies: each setting that a reload applies has its effect on the next request.
func TestReloadApplies(t *testing.T) {
	card := func(part func(*http.Response, string) string) probe {
		return request("GET", "/desk/.well-known/agent-card.json", "", nil, part)
	}
	push := fmt.Sprintf(message, "push", `, "taskPushNotificationConfig": {"url": "https://10.1.2.3/hook"}`)
	for _, c := range []struct {
		key, from, to string
		ask           probe
		before, after string
	}{
		{"default_agent", "", "default_agent: other", request("POST", "/message:send", fmt.Sprintf(message, "d", ""), nil, nil), "400 Bad Request", "200 OK"},
		{"auth.api_keys", "", "", request("POST", "/desk/message:send", fmt.Sprintf(message, "k", ""), map[string]string{"Authorization": "Bearer two"}, nil), "401 Unauthorized", "200 OK"},
		{"protocol.strict_version", "", "protocol: {strict_version: true}", request("POST", "/desk/message:send", fmt.Sprintf(message, "v", ""), map[string]string{"A2A-Version": ""}, nil), "200 OK", "400 Bad Request"},
		{"protocol.v0_3", "", "protocol: {v0_3: false}", request("GET", "/.well-known/agent.json", "", nil, has("unknown path")), "404 Not Found false", "404 Not Found true"},
		{"protocol.require_team_run", "", "protocol: {require_team_run: true}", request("POST", "/desk/message:send", fmt.Sprintf(message, "r", ""), nil, has("EXTENSION_SUPPORT_REQUIRED")), "200 OK false", "400 Bad Request true"},
		{"public_url", "", "public_url: https://team.example", card(has("https://team.example/desk")), "200 OK false", "200 OK true"},
		{"public_grpc", "", "public_grpc: team.example:443", card(has("team.example:443")), "200 OK false", "200 OK true"},
		{"card.interfaces", "", "card: {interfaces: [GRPC]}", card(has("HTTP+JSON")), "200 OK true", "200 OK false"},
		{"push.enabled", "", "push: {enabled: false}", card(has(`"pushNotifications":true`)), "200 OK true", "200 OK false"},
		{"egress.allow", "", "egress: {allow: [10.1.0.0/16]}", request("POST", "/desk/message:send", push, nil, nil), "400 Bad Request", "200 OK"},
		{"signing", "", "signing: {keys: [{kid: k, file: key.pem}]}", request("GET", "/.well-known/jwks.json", "", nil, nil), "404 Not Found", "200 OK"},
		{"signing", "", "signing: {keys: [{kid: k, file: key.pem}]}", card(has("signatures")), "200 OK false", "200 OK true"},
		{"trusted_proxies", "", "trusted_proxies: [127.0.0.1]", request("GET", "/desk/.well-known/agent-card.json", "", map[string]string{"X-Forwarded-Host": "front.example", "X-Forwarded-Proto": "https"}, has("https://front.example")), "200 OK false", "200 OK true"},
		{"streams.per_caller", "", "streams: {per_caller: 1}", twoStreams, "open", "INSUFFICIENT_RESOURCES"},
		{"cors.origins", "", "cors: {origins: [https://app.example]}", request("GET", "/desk/tasks", "", map[string]string{"Origin": "https://app.example"}, func(r *http.Response, _ string) string { return r.Header.Get("Access-Control-Allow-Origin") }), "200 OK ", "200 OK https://app.example"},
		{"accounts", "", "accounts: {default: {requests_per_second: 0.001, burst: 1}}", twice, "", "INSUFFICIENT_RESOURCES"},
		{"limits.account", "", "limits: {account: {requests_per_second: 0.001, burst: 1}}", twice, "", "INSUFFICIENT_RESOURCES"},
		{"log.level", "", "log: {level: debug}", func(_ *testing.T, s *site) string { return s.level.String() }, "info", "debug"},
	} {
		t.Run(c.key, func(t *testing.T) {
			s := &site{t: t, dir: t.TempDir(), signal: make(chan os.Signal, 1), level: zap.NewAtomicLevel()}
			s.write("key.pem", string(privateKey(t)))
			text := func(settings, key string) string {
				return "version: v1\nagents: {p: {scripted: {steps: [{text: x}]}}, slow: {scripted: {steps: [{delay_ms: 600000}, {text: x}]}}}\nteams:\n  desk: {workflow: {steps: [{id: ask, human: {question: \"Go on?\"}}]}}\n  other: {workflow: {steps: [{id: say, agent: p}]}}\n  busy: {workflow: {steps: [{id: wait, agent: slow}]}}\n" +
					"server: {" + settings + map[bool]string{true: ", "}[settings != ""] + "auth: {api_keys: [{name: ann, sha256: " + hashOf("one") + "}" + key + "]}}\n"
			}
			second := ""
			if c.key == "auth.api_keys" {
				second = ", {name: bob, sha256: " + hashOf("two") + "}"
			}
			s.start(text(c.from, ""), false)
			if got := c.ask(t, s); got != c.before {
				t.Errorf("before: %q, want %q", got, c.before)
			}
			s.reload(text(c.to, second))
			if got := c.ask(t, s); got != c.after {
				t.Errorf("after the reload: %q, want %q", got, c.after)
			}
			s.reload(text(c.from, ""))
			if got := c.ask(t, s); got != c.before {
				t.Errorf("after the reload of the first file: %q, want %q", got, c.before)
			}
		})
	}
}

// twice makes two requests and returns the reason of the refusal of the second one, "" if it is not refused.
func twice(t *testing.T, s *site) (why string) {
	t.Helper()
	c := rig.Clients(t, s.target("one"))[1]
	for range 2 {
		_, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
		if why = ""; err != nil {
			why = rig.Fault(err).Reason
		}
	}
	return why
}

// twoStreams opens a second stream and returns the reason of its refusal, or "open".
func twoStreams(t *testing.T, s *site) string {
	t.Helper()
	c := rig.Clients(t, s.target("one"))[1]
	task := func(id string) *a2av1.Task {
		req := rig.Text("busy", id, "x") // its stream is open as long as it works
		req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
		resp, err := c.Send(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetTask()
	}
	first := task(fmt.Sprintf("s%d", len(s.log.All())))
	for _, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: first.GetId()}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: first.GetId()}, 0) {
			if err != nil {
				return rig.Fault(err).Reason
			}
			break
		}
		break
	}
	return "open"
}

// privateKey returns a key that signs cards, in PEM.
func privateKey(t *testing.T) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TestShutdownSettings: server.drain_delay and server.shutdown_timeout have bounds, and a server that stops is not ready
// during the delay, while it still accepts requests.
func TestShutdownSettings(t *testing.T) {
	s := newSite(t, desk("x", "{drain_delay: 10m, shutdown_timeout: 5s}"), false)
	s.reload(desk("x", "{drain_delay: 1s}"))
	ready := request("GET", "/readyz", "", nil, nil)
	if got := ready(t, s); got != "200 OK" {
		t.Errorf("ready: %s", got)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	line := s.until("shutting down: not ready")
	t.Log(line)
	if !strings.Contains(line, "drain_delay:1s") || !strings.Contains(line, "shutdown_timeout:20s") {
		t.Errorf("the log has %q", line)
	}
	if got := ready(t, s); got != "503 Service Unavailable" {
		t.Errorf("ready during the delay: %s", got)
	}
	if task, why := send(t, rig.Clients(t, s.target(""))[1], "desk", "m"); textOf(task) != "x" {
		t.Errorf("a message during the delay: %q %s", textOf(task), why)
	}
	<-stopped
	t.Log(s.until("stopped: all requests have ended"))
}

// TestRunsAreHandedOver: the log says which runs a server that stops hands over, and which the next one continues, with
// the ids of task, context and agent, and nothing of their content.
func TestRunsAreHandedOver(t *testing.T) {
	text := "version: v1\nagents: {sloth: {scripted: {steps: [{delay_ms: 2000}, {text: canary-answer}]}}}\nserver: {default_agent: sloth, store: \"sqlite:" + t.TempDir() + "/team.db\", log: {level: debug}}\n"
	s := newSite(t, text, false)
	req := rig.Text("", "m", "canary-question")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := rig.Clients(t, s.target(""))[1].Send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	task := resp.GetTask()
	for end := time.Now().Add(30 * time.Second); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING; time.Sleep(5 * time.Millisecond) {
		if task, err = rig.Clients(t, s.target(""))[1].Get(t.Context(), &a2av1.GetTaskRequest{Id: task.GetId()}); err != nil || time.Now().After(end) {
			t.Fatalf("%v %v", task, err)
		}
	}
	s.stop()
	over, before := s.until("run handed over"), s.log.All()
	s.taken = 0
	s.start(text, false)
	taken := s.until("run continues; another process drove it before")
	for _, line := range []string{over, taken} {
		t.Log(line)
		for _, id := range []string{"task:" + task.GetId(), "context:" + task.GetContextId(), "agent:sloth"} {
			if !strings.Contains(line, id) {
				t.Errorf("%q lacks %q", line, id)
			}
		}
	}
	if all := fmt.Sprint(before, s.log.All()); strings.Contains(all, "canary") {
		t.Errorf("the log has content: %s", all)
	}
}
