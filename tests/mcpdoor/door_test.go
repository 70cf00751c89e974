// Package mcpdoor tests the door MCP over the wire: with the client of the Go SDK in both versions of the protocol, and with
// plain requests where clients do what that one does not.
package mcpdoor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const file = `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}", price: {input: "1", output: "1"}}, b: {provider: openai, name: b, base_url: "${LLM}"}}
agents:
  writer: {description: Writes., model: m}
  twice: {description: Asks twice., scripted: {steps: [{ask: "Go on?"}, {ask: "Really?"}, {text: "went on"}]}}
  asker: {description: Asks., scripted: {steps: [{ask: "Go on?"}, {text: "went on"}]}}
  broken: {description: Fails., model: b}
server:
  mcp: {}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`

// protocols are those that the door serves.
var protocols = []string{"2025-11-25", "2026-07-28"}

type withKey struct{ key string }

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return http.DefaultTransport.RoundTrip(r)
}

// connect returns a client of a version.
func connect(t *testing.T, s *whole.Server, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.HTTP + "/mcp", HTTPClient: &http.Client{Transport: withKey{s.Key}}, MaxRetries: -1, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// each runs a test with a client of each version.
func each(t *testing.T, test func(t *testing.T, version string)) {
	for _, v := range protocols {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

func call(ctx context.Context, t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) *mcp.CallToolResult {
	t.Helper()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func textOf(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func tasksOf(t *testing.T, c rig.Client) []*a2av1.Task {
	t.Helper()
	list, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetTasks()
}

func TestSend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, version string) {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "about " + r.Last()} })
		s := whole.Open(t, rig.Memory(t), file, llm)
		c := connect(t, s, version, nil)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if got := strings.Join(names, " "); got != "asker broken twice writer" {
			t.Errorf("tools %s", got)
		}
		if r := call(t.Context(), t, c, "writer", map[string]any{"message": "tides"}); r.IsError || textOf(r) != "about tides" {
			t.Errorf("%+v", r)
		}
		if r := call(t.Context(), t, c, "broken", map[string]any{"message": "tides"}); !r.IsError || !strings.Contains(textOf(r), "was") {
			t.Errorf("%+v %s", r, textOf(r))
		}
		if r := call(t.Context(), t, c, "writer", map[string]any{"message": ""}); !r.IsError || !strings.Contains(textOf(r), "message") {
			t.Errorf("%+v %s", r, textOf(r))
		}
		if r := call(t.Context(), t, c, "nobody", map[string]any{"message": "tides"}); !r.IsError || !strings.Contains(textOf(r), "AGENT_NOT_FOUND") {
			t.Errorf("%+v %s", r, textOf(r))
		}
		// An intended repetition is a task of its own.
		if r := call(t.Context(), t, c, "writer", map[string]any{"message": "tides"}); r.IsError {
			t.Errorf("%+v", r)
		}
		if n := len(llm.Requests("m")); n != 2 {
			t.Errorf("%d calls of the provider, want 2", n)
		}
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, version string) {
		llm := fakellm.New(t)
		llm.Script("m", fakellm.Turn{Text: "done", Forever: true})
		s := whole.Open(t, rig.Memory(t), file, llm)
		seen := make(chan struct{}, 10)
		c := connect(t, s, version, &mcp.ClientOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { seen <- struct{}{} }})
		p := &mcp.CallToolParams{Name: "writer", Arguments: map[string]any{"message": "tides"}}
		p.SetProgressToken("p1")
		r, err := c.CallTool(t.Context(), p)
		if err != nil || textOf(r) != "done" {
			t.Fatal(r, err)
		}
		<-seen
	})
}

// TestGivenUp: a client of version 2025-11-25 that goes away leaves its task running, and the same call finds it.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	llm, gate := fakellm.New(t), fakellm.NewGate()
	llm.Script("m", fakellm.Turn{Text: "late", Gate: gate})
	s := whole.Open(t, rig.Memory(t), file, llm)
	a2a := rig.Clients(t, s.Target)[0]
	const body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"writer","arguments":{"message":"tides"}}}`
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = post(ctx, s, body, nil)
	}()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	giveUp()
	<-gone
	gate.Open()
	answer, err := post(t.Context(), s, strings.Replace(body, "7", "8", 1), nil)
	if err != nil || !strings.Contains(answer, "late") {
		t.Fatal(answer, err)
	}
	if n := len(tasksOf(t, a2a)); n != 1 || len(llm.Requests("m")) != 1 {
		t.Errorf("%d tasks, %d calls of the provider", n, len(llm.Requests("m")))
	}
}

// TestSameCallAtTheSameTime: the same call of two clients with the same key, which both wait, is two tasks, and the cancel of
// one leaves the other.
func TestSameCallAtTheSameTime(t *testing.T) {
	t.Parallel()
	llm, gate := fakellm.New(t), fakellm.NewGate()
	llm.Script("m", fakellm.Turn{Text: "one", Gate: gate}, fakellm.Turn{Text: "two", Gate: gate})
	s := whole.Open(t, rig.Memory(t), file, llm)
	a2a := rig.Clients(t, s.Target)[0]
	params := &mcp.CallToolParams{Name: "writer", Arguments: map[string]any{"message": "tides"}}
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	one, two := connect(t, s, protocols[1], nil), connect(t, s, protocols[1], nil)
	go func() {
		_, err := one.CallTool(ctx, params)
		first <- err
	}()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	go func() {
		r, err := two.CallTool(t.Context(), params)
		if err == nil && textOf(r) != "two" {
			err = fmt.Errorf("the answer is %q", textOf(r))
		}
		second <- err
	}()
	if err := gate.Wait(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("the first call was not canceled")
	}
	gate.Open()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if n := len(tasksOf(t, a2a)); n != 2 || len(llm.Requests("m")) != 2 {
		t.Errorf("%d tasks, %d calls of the provider", n, len(llm.Requests("m")))
	}
}

// modern has the headers and the metadata of version 2026-07-28.
func modern(method, name, params, extensions string) (string, http.Header) {
	h := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}}
	if name != "" {
		h.Set("Mcp-Name", name)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{%s}},%s}}`, method, extensions, params), h
}

func post(ctx context.Context, s *whole.Server, body string, h http.Header) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.HTTP+"/mcp", bytes.NewBufferString(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, v := range h {
		r.Header[name] = v
	}
	resp, err := (&http.Client{Transport: withKey{s.Key}}).Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// TestCancelled: closing the stream cancels a call of version 2026-07-28, and a notification one of version 2025-11-25.
func TestCancelled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, version string) {
		llm, gate := fakellm.New(t), fakellm.NewGate()
		llm.Script("m", fakellm.Turn{Text: "late", Gate: gate})
		s := whole.Open(t, rig.Memory(t), file, llm)
		c, a2a := connect(t, s, version, nil), rig.Clients(t, s.Target)[0]
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if gate.Wait(t.Context(), 1) == nil {
				cancel()
			}
		}()
		if r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "writer", Arguments: map[string]any{"message": "tides"}}); err == nil {
			t.Fatal(r)
		}
		for deadline := time.Now().Add(10 * time.Second); ; {
			tasks := tasksOf(t, a2a)
			if len(tasks) == 1 && tasks[0].GetStatus().GetState() == a2av1.TaskState_TASK_STATE_CANCELED {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the tasks are %v", tasks)
			}
		}
		gate.Open()
	})
}

// TestQuestions: a client that shows forms is asked; another one is told how to answer.
func TestQuestions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, version string) {
		s := whole.Open(t, rig.Memory(t), file, fakellm.New(t))
		asked := ""
		c := connect(t, s, version, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked = r.Params.Message
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, nil
		}})
		if r := call(t.Context(), t, c, "asker", map[string]any{"message": "tides"}); textOf(r) != "went on" || asked != "Go on?" {
			t.Errorf("%+v %q, asked %q", r, textOf(r), asked)
		}
		plain := connect(t, s, version, nil)
		r := call(t.Context(), t, plain, "asker", map[string]any{"message": "waves"})
		if r.IsError || !strings.Contains(textOf(r), "Go on?") {
			t.Fatalf("%+v %s", r, textOf(r))
		}
		about, _ := r.Meta["team-server/task"].(map[string]any)
		r = call(t.Context(), t, plain, "asker", map[string]any{"message": "yes", "task": about["id"]})
		if textOf(r) != "went on" {
			t.Errorf("%+v %s", r, textOf(r))
		}
		if n := len(tasksOf(t, rig.Clients(t, s.Target)[0])); n != 2 {
			t.Errorf("%d tasks, want 2", n)
		}
	})
}

// TestQuestions_SameAnswer: the same answer to two questions of a task is given to both.
func TestQuestions_SameAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, version string) {
		s := whole.Open(t, rig.Memory(t), file, fakellm.New(t))
		c := connect(t, s, version, nil)
		r := call(t.Context(), t, c, "twice", map[string]any{"message": "waves"})
		about, _ := r.Meta["team-server/task"].(map[string]any)
		for _, want := range []string{"Really?", "went on"} {
			if r = call(t.Context(), t, c, "twice", map[string]any{"message": "yes", "task": about["id"]}); !strings.Contains(textOf(r), want) {
				t.Errorf("%q, want %q", textOf(r), want)
			}
		}
	})
}

// TestProgress_LongToken: a progressToken that each notification would repeat has a limit.
func TestProgress_LongToken(t *testing.T) {
	t.Parallel()
	s := whole.Open(t, rig.Memory(t), file, fakellm.New(t))
	body, h := modern("tools/call", "asker", `"name":"asker","arguments":{"message":"x"}`, "")
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"`+strings.Repeat("t", 300)+`",`, 1)
	got, err := post(t.Context(), s, body, h)
	if err != nil || !strings.Contains(got, "progressToken has 302 bytes") {
		t.Errorf("%s %v", got, err)
	}
}

// TestTasks: a client that declares the extension gets a task, which it asks for, answers and cancels.
func TestTasks(t *testing.T) {
	t.Parallel()
	s := whole.Open(t, rig.Memory(t), file, fakellm.New(t))
	const declares = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	do := func(method, name, params string) map[string]any {
		t.Helper()
		body, h := modern(method, name, params, declares)
		answer, err := post(t.Context(), s, body, h)
		var m struct {
			Result map[string]any `json:"result"`
		}
		if err != nil || json.Unmarshal([]byte(answer), &m) != nil || m.Result == nil {
			t.Fatal(answer, err)
		}
		return m.Result
	}
	given := do("tools/call", "asker", `"name":"asker","arguments":{"message":"tides"}`)
	id := fmt.Sprint(given["taskId"])
	if given["resultType"] != "task" || given["createdAt"] == nil || given["pollIntervalMs"] == nil {
		t.Errorf("%v", given)
	}
	if ttl, ok := given["ttlMs"]; !ok || ttl != nil {
		t.Errorf("ttlMs is %v", ttl)
	}
	until := func(status string) map[string]any {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			task := do("tasks/get", id, fmt.Sprintf(`"taskId":%q`, id))
			if task["status"] == status {
				return task
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v, want %s", task, status)
			}
		}
	}
	questions, _ := until("input_required")["inputRequests"].(map[string]any)
	if len(questions) != 1 {
		t.Fatalf("%v", questions)
	}
	for q := range questions {
		do("tasks/update", id, fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:{"action":"accept","content":{"answer":"yes"}}}`, id, q))
	}
	if got := fmt.Sprint(until("completed")["result"]); !strings.Contains(got, "went on") {
		t.Errorf("%s", got)
	}
	again := do("tools/call", "asker", `"name":"asker","arguments":{"message":"tides"}`)
	if again["taskId"] == id {
		t.Error("an intended repetition got the first task")
	}
	id = fmt.Sprint(again["taskId"])
	until("input_required")
	do("tasks/cancel", id, fmt.Sprintf(`"taskId":%q`, id))
	until("cancelled")
}

// TestQuestions_Counted: what waits for the answer to a form is a call that is worked on, so that a server has no more of them
// than of other calls.
func TestQuestions_Counted(t *testing.T) {
	t.Parallel()
	s := whole.Open(t, rig.Memory(t), strings.Replace(file, "mcp: {}", "mcp: {}\n  limits: {max_calls: 16}", 1), fakellm.New(t))
	asked, answer := make(chan struct{}, 20), make(chan struct{})
	c := connect(t, s, "2025-11-25", &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked <- struct{}{}
		<-answer
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, nil
	}})
	const free = 14 // one more is for the answers, and the rest for other accounts
	texts := make(chan string, free)
	for i := range free {
		go func() {
			r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "asker", Arguments: map[string]any{"message": fmt.Sprint("tides ", i)}})
			if err != nil {
				texts <- err.Error()
				return
			}
			texts <- textOf(r)
		}()
		<-asked
	}
	if r := call(t.Context(), t, c, "asker", map[string]any{"message": "one more"}); !r.IsError || !strings.Contains(textOf(r), "INSUFFICIENT_RESOURCES") {
		t.Errorf("a further question: %+v %s", r, textOf(r))
	}
	close(answer)
	for range free {
		if text := <-texts; text != "went on" {
			t.Error(text)
		}
	}
	if n := len(tasksOf(t, rig.Clients(t, s.Target)[0])); n != free+1 {
		t.Errorf("%d tasks", n)
	}
}

// TestRefused_BudgetAndHalt: what a budget or a halt refuses is a result with the reason, and no client asks again by itself.
func TestRefused_BudgetAndHalt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, version string) {
		text := strings.Replace(file, "  broken:", "  poor: {description: Has nothing., model: m, limits: {max_tokens: 1}}\n  broken:", 1)
		text = strings.Replace(text, `account: acme, sha256: "${ANN}"`, `account: acme, sha256: "${ANN}", permissions: [READ, CALL, HALT, ADMIN]`, 1)
		llm := fakellm.New(t)
		s := whole.Open(t, rig.Memory(t), text, llm)
		c, a2a := connect(t, s, version, nil), rig.Clients(t, s.Target)[0]
		if r := call(t.Context(), t, c, "poor", map[string]any{"message": "tides"}); !r.IsError || !strings.Contains(textOf(r), "BUDGET_EXCEEDED") {
			t.Errorf("%+v %s", r, textOf(r))
		}
		before := len(tasksOf(t, a2a))
		resp, err := s.Do(t.Context(), http.MethodPost, "/team/v1/halts", []byte(`{"kind": "HALT_KIND_SERVER", "reason": "maintenance"}`), map[string]string{"Content-Type": "application/json"})
		if err != nil || resp.Status != http.StatusOK {
			t.Fatal(resp, err)
		}
		if r := call(t.Context(), t, c, "writer", map[string]any{"message": "tides"}); !r.IsError || !strings.Contains(textOf(r), "HALTED") || !strings.Contains(textOf(r), "maintenance") {
			t.Errorf("%+v %s", r, textOf(r))
		}
		if n := len(tasksOf(t, a2a)); n != before || len(llm.Requests()) != 0 {
			t.Errorf("%d tasks, %d before; %d calls of the provider", n, before, len(llm.Requests()))
		}
	})
}

// TestFiles: files of a call reach the model, and those of an answer the client.
func TestFiles(t *testing.T) {
	t.Parallel()
	png, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, version string) {
		llm := fakellm.New(t)
		llm.Answer("m", func(*fakellm.Request) fakellm.Turn {
			return fakellm.Turn{Text: "drawn", Files: []fakellm.File{{Type: "image/png", Data: png}}}
		})
		s := whole.Open(t, rig.Memory(t), strings.Replace(file, "m: {provider", `m: {accepts: ["image/*", application/pdf], provider`, 1), llm)
		c := connect(t, s, version, nil)
		r := call(t.Context(), t, c, "writer", map[string]any{"message": "look", "files": []any{
			map[string]any{"name": "a.png", "media_type": "image/png", "data": base64.StdEncoding.EncodeToString(png)},
			map[string]any{"name": "a.pdf", "media_type": "application/pdf", "data": "JVBERi0xLjQK"},
		}})
		if got := llm.Requests("m")[0].Files(); len(got) != 2 || !bytes.Equal(got[0].Data, png) {
			t.Errorf("the model got %v", got)
		}
		drawn := slices.ContainsFunc(r.Content, func(c mcp.Content) bool {
			image, ok := c.(*mcp.ImageContent)
			return ok && image.MIMEType == "image/png" && bytes.Equal(image.Data, png)
		})
		if r.IsError || !drawn || !strings.Contains(textOf(r), "drawn") {
			t.Errorf("%+v %s", r, textOf(r))
		}
	})
}

// TestReplacedServer: a call whose server has gone finds its task on the next one, also in another session: some clients cannot
// go on in the one that broke.
func TestReplacedServer(t *testing.T) {
	t.Parallel()
	llm, gate := fakellm.New(t), fakellm.NewGate()
	llm.Script("m", fakellm.Turn{Text: "early", Gate: gate}, fakellm.Turn{Text: "late"})
	at := rig.SQLite(t)
	s := whole.Open(t, at, file, llm)
	const body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"writer","arguments":{"message":"tides"}}}`
	session := http.Header{"Mcp-Session-Id": {"n-1"}}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = post(t.Context(), s, body, session)
	}()
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	<-gone
	s = whole.Open(t, at, file, llm)
	session.Set("Mcp-Session-Id", "n-2")
	answer, err := post(t.Context(), s, body, session)
	if err != nil || !strings.Contains(answer, "late") {
		t.Fatal(answer, err)
	}
	gate.Open()
	if n := len(tasksOf(t, rig.Clients(t, s.Target)[0])); n != 1 || len(llm.Requests("m")) != 2 {
		t.Errorf("%d tasks, %d calls of the provider", n, len(llm.Requests("m")))
	}
}

// TestMetadata: with issuers of tokens a request without one is told where the metadata are, which name them.
func TestMetadata(t *testing.T) {
	t.Parallel()
	for _, issuers := range []bool{true, false} {
		text := file
		if issuers {
			text = strings.Replace(file, "auth: {", `auth: {jwt: [{name: corp, issuer: "https://id.example", audiences: [team], jwks_url: "https://id.example/keys"}], `, 1)
		}
		s := whole.Open(t, rig.Memory(t), text, fakellm.New(t))
		resp, err := http.Post(s.HTTP+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)) //nolint:noctx // a local server
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		const path = "/.well-known/oauth-protected-resource/mcp"
		challenge := resp.Header.Get("WWW-Authenticate")
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(challenge, `resource_metadata="`+s.HTTP+path+`"`) != issuers {
			t.Errorf("%d %q", resp.StatusCode, challenge)
		}
		if resp, err = http.Get(s.HTTP + path); err != nil { //nolint:noctx // a local server
			t.Fatal(err)
		}
		var got struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
		}
		_ = json.NewDecoder(resp.Body).Decode(&got) // the status says whether it is JSON
		_ = resp.Body.Close()
		if issuers != (resp.StatusCode == http.StatusOK) || issuers && (got.Resource != s.HTTP+"/mcp" || len(got.Servers) != 1 || got.Servers[0] != "https://id.example") {
			t.Errorf("%d %+v", resp.StatusCode, got)
		}
	}
}

// TestRefused: what waiting does not mend is a result with isError, so that no client repeats the call.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := whole.Open(t, rig.Memory(t), file, fakellm.New(t))
	c := connect(t, s, "2025-11-25", nil)
	other := *s
	other.Target = s.As("other", "eve")
	foreign := connect(t, &other, "2025-11-25", nil)
	r := call(t.Context(), t, c, "asker", map[string]any{"message": "tides"})
	about, _ := r.Meta["team-server/task"].(map[string]any)
	r = call(t.Context(), t, foreign, "asker", map[string]any{"message": "yes", "task": about["id"]})
	if !r.IsError || !strings.Contains(textOf(r), "TASK_NOT_FOUND") {
		t.Errorf("%+v %s", r, textOf(r))
	}
}

// TestInputs: the tool of a team with inputs has them, with their schemas, and what is wrong with them is said.
func TestInputs(t *testing.T) {
	t.Parallel()
	const visits = `version: v1
agents: {teller: {description: Tells., scripted: {steps: [{echo: true}]}}}
teams:
  visit: {description: Visits., inputs: {company_id: {type: integer, description: Its number.}, tone: {type: string, default: kind}}, workflow: {steps: [{id: a, agent: teller, task: "{{inputs.tone}} {{inputs.company_id}}"}]}}
server:
  mcp: {}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`
	s := whole.Open(t, rig.Memory(t), visits, fakellm.New(t))
	c := connect(t, s, protocols[1], nil)
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		b, err := json.Marshal(tool.InputSchema)
		has := strings.Contains(string(b), `"inputs":{"description":"Values that the agent wants by name.","properties":{"company_id":{"description":"Its number.","type":"integer"},"tone":{`) &&
			strings.Contains(string(b), `"required":["message","inputs"]`)
		if err != nil || has != (tool.Name == "visit") {
			t.Errorf("%s: %s, %v", tool.Name, b, err)
		}
	}
	if r := call(t.Context(), t, c, "visit", map[string]any{"message": "", "inputs": map[string]any{"company_id": 7}}); r.IsError || textOf(r) != "kind 7" {
		t.Errorf("%+v %s", r, textOf(r))
	}
	for want, args := range map[string]map[string]any{
		`lacks the input "company_id"`: {"message": "go"},
		"wrong value for the input":    {"message": "go", "inputs": map[string]any{"company_id": "x"}},
	} {
		if r := call(t.Context(), t, c, "visit", args); !r.IsError || !strings.Contains(textOf(r), want) {
			t.Errorf("%v: %+v %s", args, r, textOf(r))
		}
	}
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "visit", Arguments: map[string]any{"message": "go", "company_id": 7}}); err == nil || !strings.Contains(err.Error(), "the arguments are message, inputs, files, context and task") {
		t.Error(err)
	}
}
