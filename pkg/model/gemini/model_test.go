package gemini_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/gemini"
	"github.com/agentteams/team-server/pkg/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "AIza-test-0123456789"

// serve returns a fake with turns for the model that is returned too.
func serve(t *testing.T, turns ...fakellm.Turn) (*fakellm.Server, *gemini.Model) {
	t.Helper()
	llm := fakellm.New(t)
	llm.Script(modeltest.Agent, turns...)
	return llm, connect(t, gemini.Config{BaseURL: llm.Root, Name: modeltest.Agent, APIKey: secret.New(key), HTTPClient: modeltest.Client(t)})
}

func connect(t *testing.T, c gemini.Config) *gemini.Model {
	t.Helper()
	m, err := gemini.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModel(t *testing.T) {
	modeltest.Played(t, true, func(t *testing.T) (*fakellm.Server, agent.Model) { return serve(t) })
}

// TestEnvironmentIsNotRead: the configuration says whose key goes where.
func TestEnvironmentIsNotRead(t *testing.T) {
	for _, name := range []string{"GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT", "GOOGLE_GEMINI_BASE_URL"} {
		t.Setenv(name, "http://elsewhere.invalid")
	}
	llm := fakellm.New(t)
	llm.Script("m", fakellm.Turn{Text: "ok"})
	modeltest.Turn(t, connect(t, gemini.Config{BaseURL: llm.Root, Name: "m", HTTPClient: modeltest.Client(t)}))
	if r := llm.Requests()[0]; r.Auth != "" || r.Header.Get("Authorization") != "" {
		t.Errorf("sent %v", r.Header)
	}
}

func TestRequest(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("gemini-test", fakellm.Turn{Text: "ok", Forever: true})
	m := connect(t, gemini.Config{BaseURL: llm.Root + "/proxy/team%20a", Name: "gemini-test", APIKey: secret.New(key), HTTPClient: modeltest.Client(t)})
	req := &agent.ModelRequest{
		Agent: "a", Instructions: "Be brief.", Key: "the-key", Force: "look", MaxOutput: 77,
		Messages: []agent.ModelMessage{
			{Role: agent.RoleAssistant, Text: "Before"},
			{Role: agent.RoleUser, Text: "Hi"},
			{Role: agent.RoleAssistant, Text: " ", ToolCalls: []*teamv1.ToolCall{{Id: "c1", Name: "look", Arguments: "{bad"}, {Id: "c2", Name: "clock"}}},
			{Role: agent.RoleTool, CallID: "c1", Tool: "look", Text: "no JSON"},
			{Role: agent.RoleTool, CallID: "c2"},
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
	if r.Path != "/proxy/team a/v1beta/models/gemini-test:streamGenerateContent" || r.Auth != key || r.Header.Get("Idempotency-Key") != "the-key" || r.Header.Get("User-Agent") != "team-server" {
		t.Errorf("path %q, auth %q, header %v", r.Path, r.Auth, r.Header)
	}
	if r.System != "Be brief." || r.ToolChoice != "look" || r.MaxTokens != 77 || r.Model != "gemini-test" {
		t.Errorf("request = %+v", r)
	}
	want := []fakellm.Message{
		{Role: "user", Text: "(empty)"},
		{Role: "assistant", Text: "Before"},
		{Role: "user", Text: "Hi"},
		{Role: "assistant", Signature: "skip_thought_signature_validator", Calls: []fakellm.Call{{ID: "c1", Name: "look", Arguments: `{"arguments":"{bad"}`}, {ID: "c2", Name: "clock"}}},
		{Role: "tool", Text: "no JSON", ToolCallID: "c1"},
		{Role: "tool", Text: "", ToolCallID: "c2"},
		{Role: "user", Text: "Well?"},
		{Role: "assistant", Text: "(empty)"},
		{Role: "user", Text: "(empty)"},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" {
		t.Errorf("messages:\n%s", diff)
	}
	for _, want := range []string{`"parametersJsonSchema":{"type":"object","$defs":{"a":{}}}`, `"description":"Looks."`, `{"name":"clock"}`} {
		if !strings.Contains(string(r.Body), want) {
			t.Errorf("body has no %s: %s", want, r.Body)
		}
	}
}

func TestMaxOutput(t *testing.T) {
	for _, c := range []struct{ model, asked, want int64 }{{0, 0, 0}, {100, 0, 100}, {0, 50, 50}, {100, 50, 50}, {100, 500, 100}} {
		llm := fakellm.New(t)
		llm.Script("m", fakellm.Turn{Text: "ok"})
		req := modeltest.Ask("x")
		req.MaxOutput = c.asked
		m := connect(t, gemini.Config{BaseURL: llm.Root, Name: "m", MaxOutput: c.model, HTTPClient: modeltest.Client(t)})
		if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil || llm.Requests()[0].MaxTokens != c.want {
			t.Errorf("%+v: %v, sent %d", c, a.Err, llm.Requests()[0].MaxTokens)
		}
	}
}

func TestUsage(t *testing.T) {
	llm := fakellm.New(t)
	llm.Script("m", fakellm.Turn{Text: "a", Usage: &fakellm.Usage{PromptTokens: 1200, CompletionTokens: 300}}, fakellm.Turn{Text: "b", NoUsage: true},
		fakellm.Turn{Raw: data(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"thoughtsTokenCount":3,"toolUsePromptTokenCount":4}}`)},
		fakellm.Turn{Raw: data(`{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1}}`) +
			data(`{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}`)},
		fakellm.Turn{Raw: data(`{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10}}`)})
	m := connect(t, gemini.Config{BaseURL: llm.Root, Name: "m", HTTPClient: modeltest.Client(t), Price: model.Price{Input: 0.25, Output: 2}})
	for _, want := range []*teamv1.Spent{
		{InputTokens: 1200, OutputTokens: 300, CostMicros: 900, ModelCalls: 1},
		nil, // not reported, so the caller estimates it
		{InputTokens: 14, OutputTokens: 5, ReasoningTokens: 3, ModelCalls: 1, CostMicros: 14},
		{InputTokens: 10, OutputTokens: 1, ModelCalls: 1, CostMicros: 5, Estimated: true}, // reported before the answer was complete
		{InputTokens: 10, ModelCalls: 1, CostMicros: 3, Estimated: true},                  // an answer has output
	} {
		a := modeltest.Tides(t, m)
		if diff := cmp.Diff(want, a.Spent, protocmp.Transform()); diff != "" || a.Err != nil {
			t.Errorf("%v\n%s", a.Err, diff)
		}
	}
}

// TestSignaturesGoBack: signed parts are sent back to the provider unchanged, and to no
// other provider.
func TestSignaturesGoBack(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Reasoning: "Hmm.", Signature: "signed", Text: "Looking.", Calls: []fakellm.Call{{Name: "look", Arguments: `{"q":1}`}, {Name: "look", Arguments: `{"q":2}`}}}, fakellm.Turn{Text: "ok", Signature: "too", Forever: true})
	first := modeltest.Turn(t, m)
	if first.GetText() != "Looking." || len(first.GetState()) == 0 || len(first.GetToolCalls()) != 2 {
		t.Fatalf("turn = %v", first)
	}
	req := modeltest.Ask("tides")
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, Text: first.GetText(), ToolCalls: first.GetToolCalls(), State: first.GetState()})
	for i, c := range first.GetToolCalls() {
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleTool, CallID: c.GetId(), Tool: "look", Text: "seen" + c.GetArguments()})
		if want := fmt.Sprintf("unnamed-1-%d", i+1); c.GetId() != want {
			t.Errorf("id %q, want %q", c.GetId(), want)
		}
	}
	if a := modeltest.Collect(t.Context(), t, m, req); a.Err != nil || a.Turn.GetText() != "ok" {
		t.Fatal(a.Err, a.Turn)
	}
	llm.Script("gemini-2.5-flash", fakellm.Turn{Text: "ok"})
	other := connect(t, gemini.Config{BaseURL: llm.Root, Name: "gemini-2.5-flash", HTTPClient: modeltest.Client(t)})
	if a := modeltest.Collect(t.Context(), t, other, req); a.Err != nil {
		t.Fatal(a.Err)
	}
	requests := llm.Requests()
	if got := requests[1].Messages[1]; got.Signature != "signed" || len(got.Calls) != 2 || got.Text != "Hmm.Looking." {
		t.Errorf("%+v", got)
	}
	if strings.Contains(string(requests[1].Body), "unnamed") {
		t.Errorf("an id of ours is sent: %s", requests[1].Body)
	}
	if got := requests[2].Messages[1]; got.Signature != "" || len(got.Calls) != 2 || got.Text != "Looking." {
		t.Errorf("%+v", got)
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
