// Package openai_test calls the door for clients of OpenAI's API over the wire.
package openai_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

const file = `version: v1
models:
  small: {provider: openai, name: small, base_url: "${LLM}/v1", api_key: none, price: {input: 1, output: 2}, accepts: ["image/*", application/pdf]}
  tiny: {provider: openai, name: tiny, base_url: "${LLM}/v1", api_key: none}
agents:
  writer: {description: Writes., model: small}
  titles: {description: Makes titles., model: tiny}
  forgetful: {description: Forgets., model: small, memory: false}
  sure: {scripted: {steps: [{ask: "Sure?"}, {text: "painted"}]}}
teams:
  broken: {members: [{agent: writer}], workflow: {steps: [{id: a, agent: writer}]}, limits: {max_tokens: 1}}
  short: {members: [{agent: forgetful}], workflow: {steps: [{id: a, agent: forgetful}]}}
  asker: {members: [{agent: sure}], workflow: {steps: [{id: ask, human: {question: "Which colour?", options: [red, green]}}, {id: do, agent: sure, after: [ask]}]}}
  crew: {members: [{agent: writer}], workflow: {steps: [{id: a, agent: writer}]}}
server:
  openai: {title_model: titles}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`

// door is a server with a door.
type door struct {
	*whole.Server
	t   *testing.T
	llm *fakellm.Server
}

func open(t *testing.T, text string) *door {
	t.Helper()
	llm := fakellm.New(t)
	llm.Answer("small", func(r *fakellm.Request) fakellm.Turn {
		return fakellm.Turn{Text: fmt.Sprintf("%d: %s", len(r.Messages), r.Last()), Usage: &fakellm.Usage{PromptTokens: 7, CompletionTokens: 3, TotalTokens: 10}}
	})
	llm.Answer("tiny", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "A title"} })
	return &door{whole.Open(t, rig.Memory(t), text, llm), t, llm}
}

// post posts a body, as a client with headers.
func (d *door) post(as rig.Target, path, body string, headers ...string) (*http.Response, string) {
	d.t.Helper()
	resp := d.begin(d.t.Context(), as, http.MethodPost, path, body, headers...)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, string(b)
}

func (d *door) begin(ctx context.Context, as rig.Target, method, path, body string, headers ...string) *http.Response {
	d.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, d.HTTP+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if as.Key != "" {
		req.Header.Set("Authorization", "Bearer "+as.Key)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp
}

// chat returns the request of a chat. Each message begins with its role and a colon.
func chat(model string, more string, messages ...string) string {
	var list []any
	for _, m := range messages {
		role, text, _ := strings.Cut(m, ":")
		list = append(list, map[string]any{"role": role, "content": text})
	}
	b, _ := json.Marshal(list)
	return fmt.Sprintf(`{"model": %q, "messages": %s%s}`, model, b, more)
}

// completion is what tests read of an answer.
type completion struct {
	ID, Object, Model string
	Created           int64
	TaskID            string `json:"task_id"`
	Choices           []struct {
		Index   int
		Message struct{ Role, Content string }
		Delta   struct{ Role, Content string }
		Finish  *string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	Error struct{ Message, Type, Code string }
}

// ask posts a chat and returns its answer.
func (d *door) ask(as rig.Target, body string, headers ...string) (text, task string) {
	d.t.Helper()
	resp, b := d.post(as, "/v1/chat/completions", body, headers...)
	var c completion
	if err := json.Unmarshal([]byte(b), &c); err != nil || resp.StatusCode != http.StatusOK || len(c.Choices) != 1 {
		d.t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
	}
	return c.Choices[0].Message.Content, c.TaskID
}

// tasks returns how many tasks a caller has.
func (d *door) tasks(as rig.Target) int {
	d.t.Helper()
	page, err := rig.Clients(d.t, as)[0].List(d.t.Context(), &a2av1.ListTasksRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	return int(page.GetTotalSize())
}

// TestChat: an answer has all fields that some client needs, with what the run has spent.
func TestChat(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for _, model := range []string{"writer", "crew", "team/crew"} {
		resp, body := d.post(d.Target, "/v1/chat/completions", chat(model, `, "temperature": 0.3, "tools": [{"type": "namespace", "x": 1}], "unknown": {}`, "developer:Be brief.", "user:hello"))
		var c completion
		if err := json.Unmarshal([]byte(body), &c); err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %s, %v", resp.StatusCode, body, err)
		}
		if c.ID == "" || c.Object != "chat.completion" || c.Model != model || c.Created == 0 || len(c.Choices) != 1 {
			t.Fatalf("got %s", body)
		}
		if m := c.Choices[0]; m.Index != 0 || m.Message.Role != "assistant" || !strings.Contains(m.Message.Content, "hello") || *m.Finish != "stop" {
			t.Errorf("got %s", body)
		}
		if c.Usage.Prompt != 7 || c.Usage.Completion != 3 || c.Usage.Total != 10 {
			t.Errorf("usage in %s", body)
		}
	}
	if last := d.llm.Requests("small"); !strings.Contains(fmt.Sprint(last[0].Messages), "Be brief.") {
		t.Errorf("the model got %v", last[0].Messages)
	}
}

// events returns the data of a stream.
func events(t *testing.T, resp *http.Response) (list []completion, done bool) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var c completion
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		list = append(list, c)
	}
	return list, done
}

// TestChatStream: chunks have all that some client needs: the role first, an index, and a reason at the end.
func TestChatStream(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for _, model := range []string{"writer", "crew"} {
		resp := d.begin(t.Context(), d.Target, http.MethodPost, "/v1/chat/completions", chat(model, `, "stream": true, "stream_options": {"include_usage": true}`, "user:hello"))
		list, done := events(t, resp)
		if len(list) < 4 || !done {
			t.Fatalf("%d %v", resp.StatusCode, list)
		}
		var text string
		for i, c := range list[:len(list)-1] {
			if len(c.Choices) != 1 || c.ID != list[0].ID || c.Object != "chat.completion.chunk" || c.Model != model || c.Created == 0 {
				t.Fatalf("chunk %d is %+v", i, c)
			}
			text += c.Choices[0].Delta.Content
		}
		if list[0].Choices[0].Delta.Role != "assistant" || !strings.HasSuffix(text, "hello") {
			t.Errorf("%q of %+v", text, list)
		}
		if end := list[len(list)-2].Choices[0].Finish; end == nil || *end != "stop" {
			t.Errorf("the last chunk is %+v", list[len(list)-2])
		}
		if last := list[len(list)-1]; len(last.Choices) != 0 || last.Usage.Total != 10 {
			t.Errorf("the usage is %+v", last)
		}
	}
}

// TestModels: the models are the agents and teams that the caller sees.
func TestModels(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	get := func(as rig.Target, path string) (int, string) {
		resp := d.begin(t.Context(), as, http.MethodGet, path, "")
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if code, body := get(d.Target, "/v1/models"); code != http.StatusOK || !strings.Contains(body, `"id":"crew","object":"model","created":0`) || !strings.Contains(body, `"id":"writer"`) {
		t.Errorf("%d %s", code, body)
	}
	for _, id := range []string{"crew", "team/crew", "team%2Fcrew"} {
		if code, body := get(d.Target, "/v1/models/"+id); code != http.StatusOK || !strings.Contains(body, strings.ReplaceAll(id, "%2F", "/")+`"`) {
			t.Errorf("%s: %d %s", id, code, body)
		}
	}
	if code, body := get(d.Target, "/v1/models/none"); code != http.StatusNotFound || !strings.Contains(body, `"code":"model_not_found"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(rig.Target{}, "/v1/models"); code != http.StatusUnauthorized || !strings.Contains(body, `"type":"authentication_error"`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestClosedDoor: without openai there is no door.
func TestClosedDoor(t *testing.T) {
	t.Parallel()
	d := open(t, strings.Replace(file, "  openai: {title_model: titles}\n", "", 1))
	if resp, body := d.post(d.Target, "/v1/chat/completions", chat("writer", "", "user:hello")); resp.StatusCode != http.StatusNotFound {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestRefusals: no client repeats what is refused, because the status is 400 and the header says so.
func TestRefusals(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for name, c := range map[string]struct {
		body       string
		code       int
		text, kind string
	}{
		"no model":      {`{"messages": [{"role": "user", "content": "x"}]}`, 400, "model is required", "INVALID_REQUEST"},
		"no message":    {`{"model": "writer"}`, 400, "at least one message", "INVALID_REQUEST"},
		"no text":       {chat("writer", "", "user:"), 400, "has content", "INVALID_REQUEST"},
		"no user":       {chat("writer", "", "user:x", "assistant:y"), 400, "must end with", "INVALID_REQUEST"},
		"no JSON":       {`{"model": `, 400, "cannot be read", "INVALID_REQUEST"},
		"a number":      {`{"model": 3}`, 400, "model has the wrong type: number", "INVALID_REQUEST"},
		"unknown model": {chat("none", "", "user:x"), 404, "none", "model_not_found"},
		"failed":        {chat("broken", "", "user:x"), 400, "max_tokens", "BUDGET_EXCEEDED"},
	} {
		for _, more := range []string{"", `, "stream": true`} {
			body := strings.TrimSuffix(c.body, "}") + more + "}"
			if more != "" && (name == "no JSON" || name == "a number") {
				continue
			}
			if name == "no JSON" {
				body = c.body
			}
			resp, b := d.post(d.Target, "/v1/chat/completions", body)
			var got completion
			_ = json.Unmarshal([]byte(b), &got)
			if resp.StatusCode != c.code || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(got.Error.Message, c.text) || got.Error.Code != c.kind || got.Error.Type == "" {
				t.Errorf("%s%s: %d %v %s", name, more, resp.StatusCode, resp.Header, b)
			}
		}
	}
}

// TestQuestions: a question is the text of the assistant, and the next message of the conversation answers it, whether a key
// or only the history tells which conversation it is.
func TestQuestions(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for name, keyed := range map[string]bool{"history": false, "key": true} {
		headers := []string{"X-Stainless-Retry-Count", "0"}
		if keyed {
			headers = append(headers, "X-Session-Id", "s1")
		}
		before := d.tasks(d.Target)
		q1, t1 := d.ask(d.Target, chat("asker", "", "user:paint "+name), headers...)
		if q1 != "Which colour?\n\nOptions: red, green" {
			t.Fatalf("%s asks %q", name, q1)
		}
		for _, other := range []rig.Target{d.As("acme", "bob"), d.As("other", "eve")} {
			if text, task := d.ask(other, chat("asker", "", "user:paint "+name, "assistant:"+q1, "user:red"), headers...); text != q1 || task == t1 {
				t.Errorf("%s: another caller got %q of %s", name, text, task)
			}
		}
		history := []string{"user:paint " + name, "assistant:" + q1, "user:red"}
		q2, t2 := d.ask(d.Target, chat("asker", "", history...), headers...)
		history = append(history, "assistant:"+q2, "user:yes")
		done, t3 := d.ask(d.Target, chat("asker", "", history...), headers...)
		if q2 != "Sure?" || !strings.HasSuffix(done, "painted") || t1 != t2 || t2 != t3 {
			t.Errorf("%s: %q, %q in the tasks %s %s %s", name, q2, done, t1, t2, t3)
		}
		if n := d.tasks(d.Target) - before; n != 1 {
			t.Errorf("%s: %d tasks", name, n)
		}
		// The answer that is posted again is not a second one.
		headers[1] = "1"
		if again, t4 := d.ask(d.Target, chat("asker", "", history...), headers...); t4 != t3 || !strings.HasSuffix(again, "painted") {
			t.Errorf("%s: posted again it is %q of %s", name, again, t4)
		}
	}
}

// TestPostedAgain: a request that is posted again is the same task; one that is meant again is another.
func TestPostedAgain(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	ask := func(as rig.Target, headers ...string) string {
		_, task := d.ask(as, chat("writer", "", "user:yes"), headers...)
		return task
	}
	one := ask(d.Target, "X-Stainless-Retry-Count", "0")
	if again := ask(d.Target, "X-Stainless-Retry-Count", "1"); again != one {
		t.Errorf("posted again it is task %s, first %s", again, one)
	}
	two := ask(d.Target, "X-Stainless-Retry-Count", "0")
	three, four := ask(d.Target), ask(d.Target)
	bob := ask(d.As("acme", "bob"), "X-Stainless-Retry-Count", "1")
	key, same := ask(d.Target, "Idempotency-Key", "k"), ask(d.Target, "Idempotency-Key", "k")
	if key != same {
		t.Errorf("one key is for %s and %s", key, same)
	}
	if n := d.tasks(d.Target); n != 5 || two == one || three == two || four == three || bob == one {
		t.Errorf("%d tasks: %s %s %s %s %s %s", n, one, two, three, four, bob, key)
	}
	if n := len(d.llm.Requests("small")); n != 6 {
		t.Errorf("%d calls of the model", n)
	}
}

// TestYesTwice: who says the same twice in a conversation, means it twice.
func TestYesTwice(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for _, headers := range [][]string{{"X-Session-Id", "a"}, {"X-Session-Id", "b", "X-Stainless-Retry-Count", "0"}} {
		_, one := d.ask(d.Target, chat("writer", "", "user:yes"), headers...)
		text, two := d.ask(d.Target, chat("writer", "", "user:yes"), headers...)
		if one == two || text != "3: yes" {
			t.Errorf("%v: %q of the tasks %s %s", headers, text, one, two)
		}
	}
}

// TestDisconnected: a task goes on without its caller, and what is then posted again is that task.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		headers    []string
	}{
		{"plain", chat("writer", "", "user:slow"), nil},
		{"stream", chat("writer", `, "stream": true`, "user:slow"), nil},
		{"SDK", chat("writer", "", "user:slow"), []string{"X-Stainless-Retry-Count", "1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, file)
			release := make(chan struct{})
			d.llm.Answer("small", func(*fakellm.Request) fakellm.Turn { <-release; return fakellm.Turn{Text: "done"} })
			d.dropped(c.body)
			close(release)
			resp, body := d.post(d.Target, "/v1/chat/completions", c.body, c.headers...)
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, "done") {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if n := d.tasks(d.Target); n != 1 || len(d.llm.Requests("small")) != 1 {
				t.Errorf("%d tasks, %d calls of the model", n, len(d.llm.Requests("small")))
			}
		})
	}
}

// dropped posts a chat, and drops the connection when the model works.
func (d *door) dropped(body string) { d.droppedAt("/v1/chat/completions", body) }

// droppedAt posts a body to a path, drops the connection when the model works, and returns when the server has noticed: an
// answer that was written before that would count as received.
func (d *door) droppedAt(path, body string) {
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.HTTP+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.Key)
	req.Header.Set("Content-Type", "application/json")
	conn, err := (&net.Dialer{}).DialContext(d.t.Context(), "tcp", req.URL.Host)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	if err := req.Write(conn); err != nil {
		d.t.Fatal(err)
	}
	if err := d.llm.WaitFor(d.t.Context(), func(list []fakellm.Request) bool { return len(list) == 1 }, "small"); err != nil {
		d.t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		d.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn) // until the server closes it, too
}

// TestConversations: a conversation with a key is remembered; without one the history says what was.
func TestConversations(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for name, headers := range map[string][]string{
		"session": {"X-Session-Id", "s"}, "codex": {"Session-Id", "s"}, "Open WebUI": {"X-OpenWebUI-Chat-Id", "s"}, "own": {"X-Conversation-Id", "s"}, "history": nil,
	} {
		first, _ := d.ask(d.Target, chat("writer", "", "system:Be kind.", "user:one "+name), headers...)
		text, _ := d.ask(d.Target, chat("writer", "", "system:Be kind.", "user:one "+name, "assistant:"+first, "user:two"), headers...)
		last := d.llm.Requests("small")
		got := fmt.Sprint(last[len(last)-1].Messages)
		if !strings.HasSuffix(text, ": two") || strings.Count(got, "one "+name) != 2 { // the request, and in its answer
			t.Errorf("%s: %q, the model got %s", name, text, got)
		}
	}
	for _, more := range []string{`, "user": "u1"`, `, "metadata": {"conversation_id": "c1"}`} {
		d.ask(d.Target, chat("writer", more, "user:first"))
		if text, _ := d.ask(d.Target, chat("writer", more, "user:second")); text != "3: second" {
			t.Errorf("%s: %q", more, text)
		}
	}
	d.ask(d.Target, chat("forgetful", "", "user:first"), "X-Session-Id", "f") // says 1: first
	if text, _ := d.ask(d.Target, chat("forgetful", "", "user:first", "assistant:ok", "user:second"), "X-Session-Id", "f"); text != "3: second" {
		t.Errorf("an agent without memory says %q", text)
	}
	one, _ := d.ask(d.Target, chat("writer", "", "user:same"))
	two, _ := d.ask(d.Target, chat("writer", "", "user:same"))
	if one != "1: same" || two != one {
		t.Errorf("two chats that begin alike get %q and %q", one, two)
	}
}

// TestForeignConversations: the context of another caller is a conversation of one's own, with the other account's and with
// the same one.
func TestForeignConversations(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	_, task := d.ask(d.Target, chat("writer", "", "user:my secret is 42"))
	got, err := rig.Clients(t, d.Target)[0].Get(t.Context(), &a2av1.GetTaskRequest{Id: task})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s", got.GetContextId()} {
		d.ask(d.Target, chat("writer", "", "user:my secret is 42"), "X-Conversation-Id", name)
		for _, other := range []rig.Target{d.As("acme", "bob"), d.As("other", "eve")} {
			if text, _ := d.ask(other, chat("writer", "", "user:what is it?"), "X-Conversation-Id", name, "X-Stainless-Retry-Count", "1"); text != "1: what is it?" {
				t.Errorf("%s: another caller got %q", name, text)
			}
		}
	}
}

// TestTitles: what chat programs ask on their own goes to the agent for titles, and is no part of the conversation.
func TestTitles(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	d.ask(d.Target, chat("asker", "", "user:paint"), "X-OpenWebUI-Chat-Id", "c")
	for _, ask := range []string{"### Task:\nGenerate a concise title", "Generate a title for this conversation:\n"} {
		if text, _ := d.ask(d.Target, chat("asker", "", "user:"+ask), "X-OpenWebUI-Chat-Id", "c"); text != "A title" {
			t.Errorf("%q is %q", ask, text)
		}
	}
	if text, _ := d.ask(d.Target, chat("asker", "", "user:paint", "assistant:?", "user:red"), "X-OpenWebUI-Chat-Id", "c"); text != "Sure?" {
		t.Errorf("the answer got %q", text)
	}
}

// TestFiles: images and files reach the model.
func TestFiles(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	d.ask(d.Target, `{"model": "writer", "messages": [{"role": "user", "content": [{"type": "text", "text": "look"},
		{"type": "image_url", "image_url": {"url": "data:image/png;base64,`+png+`"}},
		{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}}]}]}`)
	got := d.llm.Requests("small")[0]
	if files := got.Files(); len(files) != 2 || got.Last() == "" {
		t.Errorf("the model got %v", files)
	}
	resp, body := d.post(d.Target, "/v1/chat/completions", `{"model": "writer", "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}`)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "file_data") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestCanceledWithItsCaller: with cancel_on_disconnect the task of a caller that disconnects is canceled.
func TestCanceledWithItsCaller(t *testing.T) {
	t.Parallel()
	d := open(t, strings.Replace(file, "title_model: titles", "title_model: titles, cancel_on_disconnect: true", 1))
	gate := make(chan struct{})
	d.llm.Answer("small", func(*fakellm.Request) fakellm.Turn { <-gate; return fakellm.Turn{Text: "done"} })
	defer close(gate)
	d.dropped(chat("writer", "", "user:slow"))
	c := rig.Clients(t, d.Target)[0]
	page, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
	if err != nil || len(page.GetTasks()) != 1 {
		t.Fatalf("%v, %v", page, err)
	}
	updates, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: page.GetTasks()[0].GetId()}, 0))
	if err != nil && rig.Fault(err).Reason != "UNSUPPORTED_OPERATION" { // it has been canceled already
		t.Fatalf("%v, %v", updates, err)
	}
	got, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: page.GetTasks()[0].GetId()})
	if err != nil || got.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
		t.Errorf("the task is %v, %v", got, err)
	}
}

// TestHaltedAndRights: a halt and a lack of rights are refused before the first byte, and begin no task.
func TestHaltedAndRights(t *testing.T) {
	t.Parallel()
	text := strings.Replace(file, `account: acme, sha256: "${BOB}"`, `account: acme, sha256: "${BOB}", permissions: [READ]`, 1)
	d := open(t, strings.Replace(text, `account: acme, sha256: "${ANN}"`, `account: acme, sha256: "${ANN}", permissions: [READ, CALL, HALT, ADMIN]`, 1))
	for _, more := range []string{"", `, "stream": true`} {
		resp, body := d.post(d.As("acme", "bob"), "/v1/chat/completions", chat("writer", more, "user:x"))
		if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(body, `"code":"PERMISSION_DENIED"`) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if resp, body := d.post(d.Target, "/team/v1/halts", `{"kind": "HALT_KIND_SERVER", "reason": "stop"}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	for _, more := range []string{"", `, "stream": true`} {
		resp, body := d.post(d.Target, "/v1/chat/completions", chat("writer", more, "user:x"))
		if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(body, `"code":"HALTED"`) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if n := d.tasks(d.Target); n != 0 {
		t.Errorf("%d tasks", n)
	}
}

// TestInputs: what an agent wants by name is metadata, as an object or as a text with its JSON, of a chat and of a response;
// what is wrong with it is said.
func TestInputs(t *testing.T) {
	t.Parallel()
	d := open(t, `version: v1
agents: {teller: {scripted: {steps: [{echo: true}]}}}
teams:
  visit: {inputs: {company_id: {type: integer}}, workflow: {steps: [{id: a, agent: teller, task: "About {{inputs.company_id}}: {{input}}"}]}}
  asks: {inputs: {company_id: {type: integer}}, workflow: {steps: [{id: q, human: {question: "Sure?"}}, {id: a, agent: teller, task: "{{inputs.company_id}} {{steps.q.text}}"}]}}
server:
  openai: {}
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`)
	for _, more := range []string{`, "metadata": {"inputs": {"company_id": 7}}`, `, "metadata": {"inputs": "{\"company_id\": \"7\"}", "x": "y"}`} {
		if text, _ := d.ask(d.Target, chat("visit", more, "user:go")); !strings.HasPrefix(text, "About 7: go") {
			t.Errorf("%s: %q", more, text)
		}
		body := `{"model": "visit", "input": "go"` + more + `}`
		if r := d.respond(d.Target, http.MethodPost, "", body); !strings.HasPrefix(r.text(), "About 7: go") {
			t.Errorf("%s: %+v", more, r)
		}
	}
	for more, want := range map[string]string{
		"": `lacks the input`,
		`, "metadata": {"inputs": {"company_id": "x"}}`: `wrong value for the input`,
		`, "metadata": {"inputs": "company 7"}`:         "metadata.inputs must be an object of values by name",
		`, "metadata": {"inputs": [7]}`:                 "metadata.inputs must be an object of values by name",
	} {
		if resp, body := d.post(d.Target, "/v1/chat/completions", chat("visit", more, "user:go")); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", more, resp.StatusCode, body)
		}
	}
	const more = `, "metadata": {"inputs": {"company_id": 7}}`
	question, _ := d.ask(d.Target, chat("asks", more, "user:go"))
	if text, _ := d.ask(d.Target, chat("asks", more, "user:go", "assistant:"+question, "user:yes")); text != "7 yes" {
		t.Errorf("got %q", text)
	}
}
