package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/anthropic"
	"github.com/agentteams/team-server/pkg/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-ant-test-0123456789"

// serve returns a fake with turns for the model that is returned too.
func serve(t *testing.T, turns ...fakellm.Turn) (*fakellm.Server, *anthropic.Model) {
	t.Helper()
	llm := fakellm.New(t)
	llm.Script(modeltest.Agent, turns...)
	return llm, connect(t, anthropic.Config{BaseURL: llm.Root, Name: modeltest.Agent, APIKey: secret.New(key), HTTPClient: modeltest.Client(t)})
}

func connect(t *testing.T, c anthropic.Config) *anthropic.Model {
	t.Helper()
	m, err := anthropic.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModel(t *testing.T) {
	modeltest.Played(t, false, func(t *testing.T) (*fakellm.Server, agent.Model) { return serve(t) })
}

// TestEnvironmentIsNotRead: the configuration says whose key goes where.
func TestEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "of-the-environment")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "of-the-environment")
	t.Setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
	llm := fakellm.New(t)
	llm.Script("m", fakellm.Turn{Text: "ok"})
	modeltest.Turn(t, connect(t, anthropic.Config{BaseURL: llm.Root, Name: "m", HTTPClient: modeltest.Client(t)}))
	r := llm.Requests()[0]
	if r.Auth != "" || r.Header.Get("Authorization") != "" {
		t.Errorf("sent %v", r.Header)
	}
}

func TestRequest(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("claude-test", fakellm.Turn{Text: "ok", Forever: true})
	m := connect(t, anthropic.Config{BaseURL: llm.Root + "/proxy/team%20a", Name: "claude-test", APIKey: secret.New(key), HTTPClient: modeltest.Client(t)})
	req := &agent.ModelRequest{
		Agent: "a", Instructions: "Be brief.", Key: "the-key", Force: "look", MaxOutput: 77,
		Messages: []agent.ModelMessage{
			{Role: agent.RoleAssistant, Text: "Before"},
			{Role: agent.RoleUser, Text: "Hi"},
			{Role: agent.RoleUser, Text: "there"},
			{Role: agent.RoleAssistant, Text: " ", ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: "look", Arguments: "{bad"}, {Id: "c2", Name: "look"}}},
			{Role: agent.RoleTool, CallID: "c1", Tool: "look", Text: "no JSON"},
			{Role: agent.RoleTool, CallID: "c2", Tool: "look"},
			{Role: agent.RoleUser, Text: "Well?"},
			{Role: agent.RoleAssistant},
			{Role: agent.RoleUser},
		},
		Tools: []agent.ToolSpec{{Name: "look", Description: "Looks.", Parameters: json.RawMessage(`{"type":"object","$defs":{"a":{}}}`)}, {Name: "clock"}},
	}
	if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil {
		t.Fatal(a.Err)
	}
	r := llm.Requests()[0]
	if r.Path != "/proxy/team a/v1/messages" || r.Auth != key || r.Header.Get("Idempotency-Key") != "the-key" || r.Header.Get("Anthropic-Version") == "" || r.Header.Get("User-Agent") != "team-server" {
		t.Errorf("path %q, auth %q, header %v", r.Path, r.Auth, r.Header)
	}
	if !r.Stream || r.System != "Be brief." || r.ToolChoice != "look" || r.MaxTokens != 77 || r.Model != "claude-test" {
		t.Errorf("request = %+v", r)
	}
	want := []fakellm.Message{
		{Role: "user", Text: "(empty)"},
		{Role: "assistant", Text: "Before"},
		{Role: "user", Text: "Hithere"},
		{Role: "assistant", Calls: []fakellm.Call{{ID: "c1", Name: "look", Arguments: `{"arguments":"{bad"}`}, {ID: "c2", Name: "look", Arguments: "{}"}}},
		{Role: "tool", Text: "no JSON", ToolCallID: "c1"},
		{Role: "tool", Text: "(empty)", ToolCallID: "c2"},
		{Role: "user", Text: "Well?"},
		{Role: "assistant", Text: "(empty)"},
		{Role: "user", Text: "(empty)"},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" {
		t.Errorf("messages:\n%s", diff)
	}
	for _, want := range []string{`"input_schema":{"type":"object","$defs":{"a":{}}}`, `"description":"Looks."`, `{"input_schema":{"properties":{},"type":"object"},"name":"clock"}`} {
		if !strings.Contains(string(r.Body), want) {
			t.Errorf("body has no %s: %s", want, r.Body)
		}
	}
}

func TestMaxOutput(t *testing.T) {
	for _, c := range []struct{ model, asked, want int64 }{
		{0, 0, anthropic.DefaultMaxOutput}, {100, 0, 100}, {0, 50, 50}, {100, 50, 50}, {100, 500, 100},
	} {
		llm := fakellm.New(t)
		llm.Script("m", fakellm.Turn{Text: "ok"})
		req := modeltest.Ask("x")
		req.MaxOutput = c.asked
		m := connect(t, anthropic.Config{BaseURL: llm.Root, Name: "m", MaxOutput: c.model, HTTPClient: modeltest.Client(t)})
		if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil || llm.Requests()[0].MaxTokens != c.want {
			t.Errorf("%+v: %v, sent %d", c, a.Err, llm.Requests()[0].MaxTokens)
		}
	}
}

func TestUsage(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("m", fakellm.Turn{Text: "a", Usage: &fakellm.Usage{PromptTokens: 1200, CompletionTokens: 300}}, fakellm.Turn{Text: "b", NoUsage: true},
		fakellm.Turn{Raw: start(`"usage":{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":30,"output_tokens":1}`) + stop("end_turn", `{"output_tokens":5}`)},
		fakellm.Turn{Raw: start(`"usage":{"input_tokens":10,"output_tokens":1}`) + stop("end_turn", `{}`)})
	m := connect(t, anthropic.Config{BaseURL: llm.Root, Name: "m", HTTPClient: modeltest.Client(t), Price: anthropic.Config{}.Price})
	priced := connect(t, anthropic.Config{BaseURL: llm.Root, Name: "m", HTTPClient: modeltest.Client(t), Price: price})
	for _, c := range []struct {
		m    agent.Model
		want *teamv1.Spent
	}{
		{priced, &teamv1.Spent{InputTokens: 1200, OutputTokens: 300, CostMicros: 900, ModelCalls: 1}},
		{m, nil}, // not reported, so the caller estimates it
		{m, &teamv1.Spent{InputTokens: 60, CachedInputTokens: 20, CacheWriteTokens: 30, OutputTokens: 5, ModelCalls: 1}},
		{m, &teamv1.Spent{InputTokens: 10, OutputTokens: 1, ModelCalls: 1, Estimated: true}}, // only reported when the answer began
	} {
		a := modeltest.Tides(t, c.m)
		if diff := cmp.Diff(c.want, a.Spent, protocmp.Transform()); diff != "" || a.Err != nil {
			t.Errorf("%v\n%s", a.Err, diff)
		}
	}
}

// TestThoughtsGoBack: signed blocks are sent back to the provider unchanged, and to no other
// provider.
func TestThoughtsGoBack(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Reasoning: "Hmm.", Signature: "signed", Text: "Looking.", Calls: []fakellm.Call{{ID: "c1", Name: "look", Arguments: `{"q":1}`}}}, fakellm.Turn{Text: "ok", Forever: true})
	first := modeltest.Turn(t, m)
	if first.GetText() != "Looking." || len(first.GetState()) == 0 {
		t.Fatalf("turn = %v", first)
	}
	req := modeltest.Ask("tides")
	req.Messages = append(req.Messages,
		agent.ModelMessage{Role: agent.RoleAssistant, Text: first.GetText(), ToolCalls: first.GetToolCalls(), State: first.GetState()},
		agent.ModelMessage{Role: agent.RoleTool, CallID: "c1", Tool: "look", Text: "seen"})
	if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil || len(a.Turn.GetState()) != 0 {
		t.Fatal(a.Err, a.Turn)
	}
	llm.Script("other", fakellm.Turn{Text: "ok"})
	other := connect(t, anthropic.Config{BaseURL: llm.Root, Name: "other", HTTPClient: modeltest.Client(t)})
	if a := modeltest.Collect(t.Context(), t, other, req); a.Err != nil {
		t.Fatal(a.Err)
	}
	want := fakellm.Message{Role: "assistant", Text: "Looking.", Signature: "signed", Calls: []fakellm.Call{{ID: "c1", Name: "look", Arguments: `{"q":1}`}}}
	requests := llm.Requests()
	if diff := cmp.Diff(want, requests[1].Messages[1]); diff != "" {
		t.Error(diff)
	}
	want.Signature = ""
	if diff := cmp.Diff(want, requests[2].Messages[1]); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(requests[1].Body), `"thinking":"Hmm."`) {
		t.Errorf("body = %s", requests[1].Body)
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

// TestThinkingInText: reasoning that a model behind a gateway writes into its text is not part of the answer.
func TestThinkingInText(t *testing.T) {
	_, m := serve(t, fakellm.Turn{Text: "<think>so </think>\n\nHigh tide.", Chunks: 7})
	a := modeltest.Tides(t, m)
	if a.Err != nil || a.Turn.GetText() != "High tide." || strings.Join(a.Pieces, "") != "High tide." {
		t.Errorf("the turn is %q, in pieces %q, %v", a.Turn.GetText(), a.Pieces, a.Err)
	}
}
