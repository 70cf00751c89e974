package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/secret"
)

const key = "sk-test-0123456789"

// serve returns a fake with turns for the model that is returned too.
func serve(t *testing.T, turns ...fakellm.Turn) (*fakellm.Server, *openai.Model) {
	t.Helper()
	llm := fakellm.New(t)
	llm.Script(modeltest.Agent, turns...)
	return llm, connect(t, openai.Config{BaseURL: llm.URL, Name: modeltest.Agent, APIKey: secret.New(key), HTTPClient: modeltest.Client(t)})
}

func connect(t *testing.T, c openai.Config) *openai.Model {
	t.Helper()
	m, err := openai.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModel(t *testing.T) {
	modeltest.Played(t, false, func(t *testing.T) (*fakellm.Server, agent.Model) { return serve(t) })
}

func TestNewListsEveryFault(t *testing.T) {
	_, err := openai.New(openai.Config{BaseURL: "http://user:secret@host/v1?key=1", APIKey: secret.New("with space"), Price: openai.Price{Input: -1}})
	for _, want := range []string{"name is missing", "base_url", "api_key", "price"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not speak of %s", err, want)
		}
	}
	if strings.Contains(fmt.Sprint(err), "secret") || strings.Contains(fmt.Sprint(err), "with space") {
		t.Errorf("%v shows a secret", err)
	}
	if _, err := openai.New(openai.Config{Name: "x", BaseURL: "ftp://host"}); err == nil {
		t.Error("ftp is accepted")
	}
}

func TestRequest(t *testing.T) {
	llm := fakellm.New(t)
	const name = "Qwen/Qwen3-8B:latest@q4"
	llm.Script(name, fakellm.Turn{Text: "ok", Forever: true})
	m := connect(t, openai.Config{BaseURL: strings.Replace(llm.URL, "/v1", "/proxy/team%20a/v1/", 1), Name: name, APIKey: secret.New(key), HTTPClient: modeltest.Client(t)})
	req := &agent.ModelRequest{
		Agent: "a", Instructions: "Be brief.", Key: "the-key", Force: "look",
		Messages: []agent.ModelMessage{
			{Role: agent.RoleUser, Text: "Hi"},
			{Role: agent.RoleAssistant, ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: "look", Arguments: "{bad"}, {Id: "c2", Name: "look"}}},
			{Role: agent.RoleTool, CallID: "c1", Text: "no JSON"},
			{Role: agent.RoleTool, CallID: "c2"},
			{Role: agent.RoleAssistant},
			{Role: agent.RoleUser},
		},
		Tools: []agent.ToolSpec{{Name: "look", Description: "Looks.", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "clock"}},
	}
	if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil {
		t.Fatal(a.Err)
	}
	r := llm.Requests()[0]
	t.Run("R-001-59 the name reaches the endpoint unchanged", func(t *testing.T) {
		if r.Model != name {
			t.Errorf("model = %q", r.Model)
		}
	})
	if want := "/proxy/team a/v1/chat/completions"; r.Path != want {
		t.Errorf("path = %q, want %q", r.Path, want)
	}
	if r.Auth != "Bearer "+key || r.Header.Get("Idempotency-Key") != "the-key" {
		t.Errorf("auth %q, idempotency key %q", r.Auth, r.Header.Get("Idempotency-Key"))
	}
	if !r.Stream || !r.IncludeUsage || r.System != "Be brief." || r.ToolChoice != "look" {
		t.Errorf("request = %+v", r)
	}
	want := []fakellm.Message{
		{Role: "user", Text: "Hi"},
		{Role: "assistant", Calls: []fakellm.Call{{ID: "c1", Name: "look", Arguments: "{bad"}, {ID: "c2", Name: "look", Arguments: "{}"}}},
		{Role: "tool", Text: "no JSON", ToolCallID: "c1"},
		{Role: "tool", Text: "(empty)", ToolCallID: "c2"},
		{Role: "assistant", Text: "(empty)"},
		{Role: "user", Text: "(empty)"},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" {
		t.Errorf("messages:\n%s", diff)
	}
	if !strings.Contains(string(r.Body), `{"name":"clock","parameters":{"type":"object","properties":{}}}`) {
		t.Errorf("body = %s", r.Body)
	}
}

func TestNoKeyIsSent(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("local", fakellm.Turn{Text: "ok"})
	modeltest.Turn(t, connect(t, openai.Config{BaseURL: llm.URL, Name: "local", HTTPClient: modeltest.Client(t)}))
	if auth, ok := llm.Requests()[0].Header["Authorization"]; ok {
		t.Errorf("authorization %q is sent without a key", auth)
	}
}

// raw returns a turn with the given events.
func raw(events ...string) fakellm.Turn {
	return fakellm.Turn{Raw: "data: " + strings.Join(append(events, "[DONE]"), "\n\ndata: ") + "\n\n"}
}

func TestUsage(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("m", fakellm.Turn{Text: "a", Usage: &fakellm.Usage{PromptTokens: 1200, CompletionTokens: 300}}, fakellm.Turn{Text: "b", NoUsage: true},
		raw(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`),
		raw(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`),
		raw(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10}}`),
		raw(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"total_tokens":10}}`),
		raw(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":-3}}`),
		raw(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":0}}`))
	m := connect(t, openai.Config{BaseURL: llm.URL, Name: "m", HTTPClient: modeltest.Client(t), Price: openai.Price{Input: 0.25, Output: 2}})
	for _, want := range []*teamv1.Spent{
		{InputTokens: 1200, OutputTokens: 300, CostMicros: 900, ModelCalls: 1},
		nil, // not reported, so the caller estimates it
		{InputTokens: 10, OutputTokens: 2, CostMicros: 7, ModelCalls: 1},
		{InputTokens: 10, OutputTokens: 1, CostMicros: 5, ModelCalls: 1, Estimated: true}, // reported before the answer was complete
		{InputTokens: 10, CostMicros: 3, ModelCalls: 1, Estimated: true},                  // an answer has output
		nil,
		{InputTokens: 10, CostMicros: 3, ModelCalls: 1, Estimated: true},
		{InputTokens: 10, CostMicros: 3, ModelCalls: 1}, // an empty answer need not have any
	} {
		a := modeltest.Tides(t, m)
		if diff := cmp.Diff(want, a.Spent, protocmp.Transform()); diff != "" || a.Err != nil {
			t.Errorf("%v\n%s", a.Err, diff)
		}
	}
}

func TestMaxOutput(t *testing.T) {
	for _, c := range []struct {
		name         string
		model, asked int64
		want         string
	}{
		{"qwen3", 0, 0, ""}, {"qwen3", 100, 0, `"max_tokens":100`}, {"qwen3", 100, 50, `"max_tokens":50`}, {"qwen3", 0, 50, `"max_tokens":50`},
		{"gpt-5-mini", 100, 0, `"max_completion_tokens":100`}, {"openai/o4-mini", 100, 200, `"max_completion_tokens":100`},
	} {
		llm := fakellm.New(t)
		llm.Script(c.name, fakellm.Turn{Text: "ok"})
		req := modeltest.Ask("x")
		req.MaxOutput = c.asked
		m := connect(t, openai.Config{BaseURL: llm.URL, Name: c.name, MaxOutput: c.model, HTTPClient: modeltest.Client(t)})
		if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil {
			t.Fatal(a.Err)
		}
		body := string(llm.Requests()[0].Body)
		if !strings.Contains(body, c.want) || c.want == "" && strings.Contains(body, "max_") || strings.Count(body, "max_") > 1 {
			t.Errorf("%+v: sent %s", c, body)
		}
	}
}

func TestReasoningIsLeftOut(t *testing.T) {
	_, m := serve(t, fakellm.Turn{Reasoning: "Hmm, tides.", Text: "The Moon."})
	if got := modeltest.Turn(t, m).GetText(); got != "The Moon." {
		t.Errorf("text = %q", got)
	}
}

// A complete answer leaves its connection for the next one.
func TestConnectionIsUsedAgain(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Text: "ok", Forever: true})
	for range 5 {
		modeltest.Turn(t, m)
	}
	if err := llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if busy, idle := llm.Connections(); busy != 0 || idle != 1 {
		t.Errorf("%d busy and %d idle connections, want one idle", busy, idle)
	}
}

func TestBreakClosesTheConnection(t *testing.T) {
	gate := fakellm.NewGate()
	llm, m := serve(t, fakellm.Turn{Text: "one two", Chunks: 2, Gate: gate, GateAfter: 1})
	for chunk, err := range m.Generate(t.Context(), modeltest.Ask("x")) {
		if err != nil || chunk.Text != "one" {
			t.Fatalf("got %v, %v", chunk, err)
		}
		break
	}
	if err := llm.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := llm.Requests()[0]; !r.Gone {
		t.Error("the endpoint was not left")
	}
	if busy, idle := llm.Connections(); busy+idle != 0 {
		t.Errorf("%d busy and %d idle connections, want none", busy, idle)
	}
}

func TestOneAttempt(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Text: "ok"}, fakellm.Turn{Broken: true, Forever: true})
	modeltest.Turn(t, m)
	modeltest.Failure(t, m) // on the same connection, which net/http would use as a reason to try again
	if n := len(llm.Requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// TestIdleTimeout: an endpoint that sends nothing for too long, before the response or within it, has
// failed, and may bill what it has done.
func TestIdleTimeout(t *testing.T) {
	llm := fakellm.New(t)
	gates := []*fakellm.Gate{fakellm.NewGate(), fakellm.NewGate()}
	llm.Script("m", fakellm.Turn{Text: "one two", Chunks: 2, Gate: gates[0]}, fakellm.Turn{Text: "one two", Chunks: 2, Gate: gates[1], GateAfter: 1})
	m := connect(t, openai.Config{BaseURL: llm.URL, Name: "m", HTTPClient: modeltest.Client(t), IdleTimeout: 100 * time.Millisecond})
	for range gates {
		a := modeltest.Tides(t, m)
		var e *agent.Error
		if !errors.As(a.Err, &e) || e.Reason != agent.ReasonUnavailable || !e.Retry || e.Fresh || !e.Spent.GetEstimated() || !strings.Contains(e.Message, "idle_timeout") {
			t.Errorf("error = %#v", a.Err)
		}
	}
}
