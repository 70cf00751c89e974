package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// lines is a log of JSON lines. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// requests returns the lines about requests with a method and a code.
func (l *lines) requests(t testing.TB, method, code string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(l.text.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if fields["msg"] == "request" && fields["code"] == code && (method == "" && fields["method"] == nil || fields["method"] == method) {
			found = append(found, fields)
		}
	}
	return found
}

func (l *lines) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// wait waits until there are n lines about requests with a method and a code: a request is logged after its caller
// has its answer.
func (l *lines) wait(t testing.TB, method, code string, n int) []map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if found := l.requests(t, method, code); len(found) >= n {
			return found
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s %s: %v lines, want %d", method, code, len(l.requests(t, method, code)), n)
		}
	}
}

// logged serves an agent that answers with a text, and logs at the level info.
func logged(t *testing.T, answer string) (*lines, rig.Target) {
	t.Helper()
	a, err := scripted.New(scripted.Config{ID: "parrot", Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: answer}}}})
	if err != nil {
		t.Fatal(err)
	}
	l := &lines{}
	target := rig.Serve(t, server.Config{
		Agents:   rig.Manager(t, a),
		Log:      logs.New(l, zapcore.InfoLevel, true),
		Settings: rig.Keys(rig.Key("acme", "ann")),
	})
	return l, target.As("acme", "ann")
}

// TestT_42_Requests: each request has a line that says who has called what, over each binding, without what the
// caller has sent.
func TestT_42_Requests(t *testing.T) {
	t.Parallel()
	l, target := logged(t, "canary-answer")
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		of := func(all []map[string]any) map[string]any {
			t.Helper()
			for _, line := range all {
				if line["binding"] == c.Binding() {
					return line
				}
			}
			t.Fatalf("no line of %s among %v", c.Binding(), all)
			return nil
		}
		seen := map[string]int{"grpc": 1, "rest": 2, "jsonrpc": 3}[c.Binding()]
		resp, err := c.Send(t.Context(), rig.Text("parrot", c.Binding(), "canary-content"))
		if err != nil {
			t.Fatal(err)
		}
		line := of(l.wait(t, "SendMessage", "OK", seen))
		for key, want := range map[string]any{"level": "info", "account": "acme", "principal": "ann", "agent": "parrot", "task": resp.GetTask().GetId()} {
			if line[key] != want {
				t.Errorf("%s is %v, want %v: %v", key, line[key], want, line)
			}
		}
		for _, key := range []string{"bytes_in", "bytes_out", "duration"} {
			if n, ok := line[key].(float64); !ok || n <= 0 {
				t.Errorf("%s is %v", key, line[key])
			}
		}
		if id, _ := line["request_id"].(string); len(id) != 36 {
			t.Errorf("request_id is %v", line["request_id"])
		}
		var task string
		for u, err := range c.Stream(t.Context(), rig.Text("parrot", "s"+c.Binding(), "canary-content")) {
			if err != nil {
				t.Fatal(err)
			}
			if id := u.GetTask().GetId(); id != "" {
				task = id
			}
		}
		if line := of(l.wait(t, "SendStreamingMessage", "OK", seen)); line["task"] != task || task == "" || line["bytes_out"].(float64) <= 0 {
			t.Errorf("the stream of %s has the line %v", task, line)
		}
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "canary-id"}); rig.Fault(err).Code != "NotFound" {
			t.Error(err)
		}
		if line := of(l.wait(t, "GetTask", "NotFound", seen)); line["reason"] != "TASK_NOT_FOUND" || line["task"] != nil || line["error"] != nil {
			t.Errorf("a wrong id has the line %v", line)
		}
		stranger := rig.Target{GRPC: target.GRPC, HTTP: target.HTTP, Key: "canary-key"}
		for _, c := range rig.Clients(t, stranger) {
			if c.Binding() == of(l.requests(t, "SendMessage", "OK"))["binding"] {
				_, _ = c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "x"})
			}
		}
		if line := of(l.wait(t, "", "Unauthenticated", seen)); line["account"] != nil || line["bytes_in"].(float64) != 0 {
			t.Errorf("a refused caller has the line %v", line)
		}
	})
	if l.contains("canary") {
		t.Error("the log has content of requests, or a key")
	}
}

// TestT_42_Sampled: of many requests that are alike some are logged, and others are counted on their own.
func TestT_42_Sampled(t *testing.T) {
	l, target := logged(t, "x")
	const many = 1000
	c := rig.Clients(t, target)[0]
	begin := time.Now()
	for range many {
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "x"}); rig.Fault(err).Code != "NotFound" {
			t.Fatal(err)
		}
	}
	seconds := int(time.Since(begin).Seconds()) + 2
	l.wait(t, "GetTask", "NotFound", 20)
	if n := len(l.requests(t, "GetTask", "NotFound")); n > 20*seconds+many/100 {
		t.Errorf("%d lines for %d requests", n, many)
	}
	if _, err := c.Send(t.Context(), rig.Text("parrot", "m", "x")); err != nil {
		t.Fatal(err)
	}
	l.wait(t, "SendMessage", "OK", 1)
}

// TestT_42_RESTFaults: a request that reaches no method has a line with the code and the reason of its answer.
func TestT_42_RESTFaults(t *testing.T) {
	t.Parallel()
	l, target := logged(t, "x")
	seen := map[string]int{}
	for name, c := range map[string]struct{ path, media, body, code string }{
		"unknown path":      {"/nothing/is/here", "application/json", `{}`, "Unimplemented"},
		"another method":    {"/tasks", "application/json", `{}`, "Unimplemented"},
		"another media":     {"/message:send", "text/plain", `{}`, "Unimplemented"},
		"no JSON":           {"/message:send", "application/json", `{bad`, "InvalidArgument"},
		"a malformed query": {"/message:send?a=%zz", "application/json", `{}`, "InvalidArgument"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+target.Key)
		req.Header.Set("Content-Type", c.media)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		seen[c.code]++
		lines := l.wait(t, "", c.code, seen[c.code])
		if line := lines[len(lines)-1]; resp.StatusCode < 400 || line["binding"] != "rest" || line["reason"] != "INVALID_REQUEST" || line["account"] != "acme" {
			t.Errorf("%s, %d, has the line %v", name, resp.StatusCode, line)
		}
	}
}

// TestT_42_RPCFaults: a JSON-RPC request that fails before its method has a line at the level info with the code of its
// error, although its HTTP status is 200, and is counted so.
func TestT_42_RPCFaults(t *testing.T) {
	t.Parallel()
	l, target := logged(t, "x")
	seen := map[string]int{}
	for name, c := range map[string]struct{ version, accept, body, code string }{
		"unknown method":        {"1.0", "", `{"jsonrpc":"2.0","id":1,"method":"NoMethod"}`, "Unimplemented"},
		"no JSON":               {"1.0", "", `{bad`, "InvalidArgument"},
		"a batch":               {"1.0", "", `[]`, "InvalidArgument"},
		"another JSON-RPC":      {"1.0", "", `{"jsonrpc":"1.0","id":1,"method":"GetTask"}`, "InvalidArgument"},
		"no body":               {"1.0", "", ``, "InvalidArgument"},
		"0.3 in 1.0":            {"1.0", "", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, "Unimplemented"},
		"0.3 in 1.0, as events": {"1.0", "text/event-stream", `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{}}`, "Unimplemented"},
		"wrong parameters":      {"1.0", "", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}`, "InvalidArgument"},
		"a stream of nothing":   {"1.0", "", `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":7}}`, "InvalidArgument"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+"/rpc", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+target.Key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("A2A-Version", c.version)
		if c.accept != "" {
			req.Header.Set("Accept", c.accept)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), `"error"`) {
			t.Errorf("%s: %d, %s, %v", name, resp.StatusCode, b, err)
		}
		seen[c.code]++
		lines := l.wait(t, "", c.code, seen[c.code])
		if line := lines[len(lines)-1]; line["level"] != "info" || line["binding"] != "jsonrpc" || line["reason"] != "INVALID_REQUEST" || line["account"] != "acme" {
			t.Errorf("%s has the line %v", name, line)
		}
	}
}
