package fakellm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// rig is a fake and a plain HTTP client of it.
type rig struct {
	t      *testing.T
	llm    *fakellm.Server
	client *http.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &rig{t: t, llm: fakellm.New(t), client: &http.Client{Transport: transport}}
}

func (r *rig) post(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.llm.URL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	return r.client.Do(req)
}

// ask sends a body and returns the status and the whole answer.
func (r *rig) ask(body string) (int, string) {
	r.t.Helper()
	res, err := r.post(r.t.Context(), body)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

const (
	hello       = `{"model":"m","messages":[{"role":"user","content":"Hello there"}]}`
	helloStream = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello there"}]}`
)

func TestPlainAnswer(t *testing.T) {
	r := newRig(t)
	r.llm.Script("m", fakellm.Turn{Text: "Hi", Reasoning: "Hm", Calls: []fakellm.Call{{Name: "f", Arguments: "{bad"}}})
	status, body := r.ask(hello)
	var got struct {
		Choices []struct {
			Message struct {
				Content   string
				Reasoning string `json:"reasoning_content"`
				ToolCalls []struct {
					ID       string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			FinishReason string `json:"finish_reason"`
		}
		Usage fakellm.Usage
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	c := got.Choices[0]
	if c.Message.Content != "Hi" || c.Message.Reasoning != "Hm" || c.FinishReason != "tool_calls" || c.Message.ToolCalls[0].ID == "" ||
		c.Message.ToolCalls[0].Function.Arguments != "{bad" || got.Usage != (fakellm.Usage{PromptTokens: 2, CompletionTokens: 3, TotalTokens: 5}) {
		t.Errorf("answer = %s", body)
	}
}

func TestStream(t *testing.T) {
	r := newRig(t)
	r.llm.Script("m", fakellm.Turn{Text: "a b", Chunks: 2, Usage: &fakellm.Usage{PromptTokens: 7}})
	_, body := r.ask(helloStream)
	var data []string
	for line := range strings.Lines(body) {
		if d, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			data = append(data, d)
		}
	}
	if len(data) != 6 || data[5] != "[DONE]" || !strings.Contains(data[3], `"finish_reason":"stop"`) ||
		!strings.Contains(data[4], `"choices":[]`) || !strings.Contains(data[4], `"prompt_tokens":7`) || !strings.Contains(data[1], `"usage":null`) {
		t.Errorf("stream = %s", body)
	}
}

func TestTurnsInOrder(t *testing.T) {
	r := newRig(t)
	r.llm.Script("m", fakellm.Turn{Text: "first"}, fakellm.Turn{Status: 503, RetryAfter: 1200e6}, fakellm.Turn{Text: "again", Forever: true})
	for i, want := range []string{"first", "Service Unavailable", "again", "again"} {
		if _, body := r.ask(hello); !strings.Contains(body, want) {
			t.Errorf("answer %d = %s, want %s", i+1, body, want)
		}
	}
}

func TestFunctionAndScript(t *testing.T) {
	r := newRig(t)
	s, err := scripted.Parse("s", []byte(`agents: {m: [{when: 'input.startsWith("Hello")', text: "from the script"}], other: [{error: {status: 418, message: "teapot"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.llm.Play(s)
	if _, body := r.ask(hello); !strings.Contains(body, "from the script") {
		t.Errorf("answer = %s", body)
	}
	if status, body := r.ask(strings.Replace(hello, `"m"`, `"other"`, 1)); status != 418 || !strings.Contains(body, "teapot") {
		t.Errorf("answer = %d %s", status, body)
	}
	if status, body := r.ask(strings.Replace(hello, "Hello", "Bye", 1)); status != http.StatusBadRequest || !strings.Contains(body, "turn 1") {
		t.Errorf("answer = %d %s", status, body)
	}
	r.llm.Answer("m", func(q *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "echo " + q.Last()} })
	if _, body := r.ask(hello); !strings.Contains(body, "echo Hello there") {
		t.Errorf("answer = %s", body)
	}
}

func TestUnknown(t *testing.T) {
	r := newRig(t)
	status, body := r.ask(hello)
	if status != http.StatusNotFound || !strings.Contains(body, `"code":"model_not_found"`) || !strings.Contains(body, `"type":"invalid_request_error"`) {
		t.Errorf("answer = %d %s", status, body)
	}
	r.llm.Script("m")
	if status, body := r.ask(hello); status != http.StatusBadRequest || !strings.Contains(body, "no turn for request 2") {
		t.Errorf("answer = %d %s", status, body)
	}
}

func TestModels(t *testing.T) {
	r := newRig(t)
	r.llm.Script("b")
	r.llm.Script("a")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.llm.URL+"/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	if !strings.Contains(string(b), `[{"id":"a"`) || !strings.Contains(string(b), `"id":"b"`) {
		t.Errorf("models = %s", b)
	}
}

// What the provider refuses, the fake refuses.
func TestNonsenseIsRefused(t *testing.T) {
	r := newRig(t)
	r.llm.Script("m", fakellm.Turn{Text: "ok", Forever: true})
	called := `{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`
	for body, want := range map[string]string{
		`{`:                           "not a valid request",
		`{"model":"m","messages":[]}`: "messages is empty",
		`{"model":"m","messages":[{"role":"user"}]}`:                                                             "messages[0].content is missing",
		`{"model":"m","messages":[{"role":"user","content":null}]}`:                                              "messages[0].content is missing",
		`{"model":"m","messages":[{"role":"cat","content":"x"}]}`:                                                `role \"cat\" is unknown`,
		`{"model":"m","messages":[{"role":"tool","content":"x","tool_call_id":"1"}]}`:                            "messages[0] answers no tool call",
		`{"model":"m","messages":[` + called + `,{"role":"user","content":"y"}]}`:                                "tool call 1 has no answer",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]}`:                 "tools[0]",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":{"function":{"name":"missing"}}}`: "tool_choice",
	} {
		if status, got := r.ask(body); status != http.StatusBadRequest || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want %s", body, status, got, want)
		}
	}
	for _, body := range []string{
		`{"model":"m","messages":[` + called + `,{"role":"tool","content":"r","tool_call_id":"1"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"parts"}]}],"tool_choice":"auto"}`,
	} {
		if status, got := r.ask(body); status != http.StatusOK {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
}

func TestRecord(t *testing.T) {
	r := newRig(t)
	r.llm.Script("m", fakellm.Turn{Text: "ok"})
	r.ask(`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`)
	if err := r.llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs := r.llm.Requests("m")
	if len(rs) != 1 || len(r.llm.Requests("other")) != 0 {
		t.Fatalf("%d requests", len(rs))
	}
	q := rs[0]
	if q.N != 1 || q.Auth != "Bearer k" || q.System != "Be brief." || q.Last() != "x" || len(q.Tools) != 1 || q.Stream || q.Gone || q.Status != 200 {
		t.Errorf("record = %+v", q)
	}
	if q.Arrived.IsZero() || q.Finished.Before(q.Arrived) {
		t.Errorf("arrived %v, finished %v", q.Arrived, q.Finished)
	}
}

func TestGateHoldsUntilOpened(t *testing.T) {
	r := newRig(t)
	gate := fakellm.NewGate()
	r.llm.Script("m", fakellm.Turn{Text: "ok", Gate: gate, Forever: true})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if status, _ := r.ask(hello); status != http.StatusOK {
				t.Errorf("status = %d", status)
			}
		})
	}
	if err := gate.Wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if r.llm.Peak() != 3 || !r.llm.Requests()[0].Finished.IsZero() {
		t.Errorf("peak = %d, want 3 at the gate", r.llm.Peak())
	}
	gate.Open()
	wg.Wait()
}

func TestClientThatGoesAway(t *testing.T) {
	r := newRig(t)
	gate := fakellm.NewGate()
	r.llm.Script("m", fakellm.Turn{Text: "a b", Chunks: 2, Gate: gate, GateAfter: 1})
	ctx, cancel := context.WithCancel(t.Context())
	res, err := r.post(ctx, helloStream)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"content":"a"`) {
	}
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if busy, _ := r.llm.Connections(); busy != 1 {
		t.Errorf("%d busy connections, want 1", busy)
	}
	cancel()
	if err := r.llm.WaitFor(t.Context(), func(rs []fakellm.Request) bool { return rs[0].Gone }); err != nil {
		t.Fatal(err)
	}
	if err := r.llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenStream(t *testing.T) {
	r := newRig(t)
	r.llm.Script("m", fakellm.Turn{Text: "abc", Chunks: 3, Broken: true, BreakAfter: 2})
	res, err := r.post(t.Context(), helloStream)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || strings.Count(string(b), `"content":`) != 3 { // the role's is empty
		t.Errorf("read %s, %v", b, err)
	}
	if err := r.llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.EOF)
	if err := fakellm.NewGate().Wait(ctx, 1); !errors.Is(err, io.EOF) {
		t.Errorf("gate: %v", err)
	}
	if err := r.llm.WaitFor(ctx, func(rs []fakellm.Request) bool { return len(rs) > 0 }); !errors.Is(err, io.EOF) {
		t.Errorf("record: %v", err)
	}
}

func TestCloseLetsNothingBehind(t *testing.T) {
	r := newRig(t)
	gate := fakellm.NewGate()
	r.llm.Script("m", fakellm.Turn{Gate: gate}, fakellm.Turn{Delay: 3600e9})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if res, err := r.post(t.Context(), hello); err == nil {
				res.Body.Close()
				t.Error("an answer came out of a closed server")
			}
		})
	}
	if err := r.llm.WaitFor(t.Context(), func(rs []fakellm.Request) bool { return len(rs) == 2 }); err != nil {
		t.Fatal(err)
	}
	r.llm.Close()
	r.llm.Close()
	wg.Wait()
}
