package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

func calls(ids ...string) []*teamv1.ToolCall {
	var out []*teamv1.ToolCall
	for _, id := range ids {
		out = append(out, &teamv1.ToolCall{Id: id, Name: "look", Arguments: "{}"})
	}
	return out
}

// TestRefusedParts: what an endpoint refuses is left out of the next request, and of all later ones.
func TestRefusedParts(t *testing.T) {
	echoed := withState(model.PackState("openai", modeltest.Agent, map[string]any{"message": map[string]any{"reasoning_content": "hm"}}))
	schema := modeltest.Ask("x")
	schema.Schema = []byte(`{"type":"object"}`)
	limited := modeltest.Ask("x")
	limited.MaxOutput = 7
	for name, c := range map[string]struct {
		req    *agent.ModelRequest
		status int
		says   []string // by the requests that are refused, in order
		then   []string // in the request that is answered
		not    string
	}{
		"usage":               {modeltest.Ask("x"), 422, []string{`{"message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}}`}, nil, "stream_options"},
		"a schema":            {schema, 400, []string{`{"error":{"message":"response_format type json_schema is unavailable now"}}`}, []string{`"response_format":{"type":"json_object","schema":{"type":"object"}}`}, "json_schema"},
		"a schema, llama.cpp": {schema, 500, []string{`{"error":{"message":"1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type')}","type":"internal_server_error"}}`}, []string{`{"type":"json_object"`}, "json_schema"},
		"any format":          {schema, 400, []string{`{"detail":"response_format"}`, `{"detail":"response_format"}`}, nil, "response_format"},
		"max_tokens":          {limited, 400, []string{`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}`}, []string{`"max_completion_tokens":7`}, `"max_tokens"`},
		"reasoning":           {echoed, 400, []string{`{"error":{"message":"property 'reasoning_content' is unsupported"}}`}, nil, "reasoning_content"},
		"no reasoning":        {withState(nil), 400, []string{`{"error":{"message":"The reasoning_content in the thinking mode must be passed back to the API."}}`}, []string{`"reasoning_content":"(empty)"`}, "-"},
		"the role system":     {modeltest.Ask("x"), 400, []string{`{"error":{"message":"System role not supported"}}`}, []string{`{"role":"user","content":"Write clearly.\n\nx"}`}, `"system"`},
		"an empty content":    {withState(nil), 400, []string{`{"error":{"message":"messages.1: text content blocks must be non-empty"}}`}, nil, `"content":""`},
		"two of these parts":  {schema, 400, []string{`{"detail":"stream_options"}`, `{"detail":"json_schema"}`}, []string{`json_object`}, "stream_options"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var turns []fakellm.Turn
			for _, says := range c.says {
				turns = append(turns, fakellm.Turn{Status: c.status, Body: says})
			}
			llm, m := serve(t, append(turns, fakellm.Turn{Text: "ok", Forever: true})...)
			for range 2 {
				if a := modeltest.Collect(t.Context(), t, m, c.req); a.Err != nil || a.Turn.GetText() != "ok" {
					t.Fatalf("%v, %v", a.Turn, a.Err)
				}
			}
			rs := llm.Requests()
			if len(rs) != len(c.says)+2 {
				t.Fatalf("%d requests, want %d and one", len(rs), len(c.says)+1)
			}
			for _, r := range rs[len(c.says):] {
				body := string(r.Body)
				if strings.Contains(body, c.not) || slices.ContainsFunc(c.then, func(s string) bool { return !strings.Contains(body, s) }) {
					t.Errorf("sent %s", body)
				}
			}
		})
	}
}

// TestOtherRefusalsAreFinal: a request is not sent again for nothing, and nothing is remembered that did not
// help.
func TestOtherRefusalsAreFinal(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Status: 400, Message: "Bad tool"}, fakellm.Turn{Status: 400, Message: "stream_options"}, fakellm.Turn{Status: 400, Message: "stream_options, still"}, fakellm.Turn{Text: "ok"})
	modeltest.Failure(t, m)
	modeltest.Failure(t, m)
	modeltest.Turn(t, m)
	rs := llm.Requests()
	if len(rs) != 4 || rs[2].IncludeUsage || !rs[3].IncludeUsage {
		t.Errorf("%d requests, the third asks for usage: %v, the fourth: %v", len(rs), rs[2].IncludeUsage, rs[3].IncludeUsage)
	}
}

// TestLostAfterARefusal: a request that is sent again in another form and is lost may be billed.
func TestLostAfterARefusal(t *testing.T) {
	_, m := serve(t, fakellm.Turn{Status: 400, Message: "stream_options"}, fakellm.Turn{Text: "a b", Chunks: 2, Broken: true})
	if e := modeltest.Failure(t, m); !e.Retry || e.Fresh || !e.Spent.GetEstimated() {
		t.Errorf("error = %+v", e)
	}
	_, m = serve(t, fakellm.Turn{Status: 400, Message: "stream_options"}, fakellm.Turn{Gate: fakellm.NewGate()})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, agent.ErrTimeout)
	defer cancel()
	if a := modeltest.Collect(ctx, t, m, modeltest.Ask("x")); !errors.Is(a.Err, agent.ErrTimeout) {
		t.Errorf("error = %v", a.Err)
	}
}

// TestRefusedAtTheSameTime: requests that are under way while another learns about the endpoint succeed too.
func TestRefusedAtTheSameTime(t *testing.T) {
	llm, m := serve(t)
	llm.Answer(modeltest.Agent, func(r *fakellm.Request) fakellm.Turn {
		if r.IncludeUsage {
			return fakellm.Turn{Status: 400, Message: "stream_options"}
		}
		return fakellm.Turn{Text: "ok"}
	})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if a := modeltest.Tides(t, m); a.Err != nil {
				t.Error(a.Err)
			}
		})
	}
	wg.Wait()
}

// TestRolesAlternate: whatever the conversation is, its messages alternate between the user and the
// assistant, as chat templates of Gemma, Mistral and Llama 2 require.
func TestRolesAlternate(t *testing.T) {
	user, says := agent.ModelMessage{Role: agent.RoleUser, Text: "u"}, agent.ModelMessage{Role: agent.RoleAssistant, Text: "a"}
	asks := agent.ModelMessage{Role: agent.RoleAssistant, ToolCalls: calls("c1")}
	result := agent.ModelMessage{Role: agent.RoleTool, CallID: "c1", Text: "r"}
	for want, list := range map[string][]agent.ModelMessage{
		"user:u\n\nu":                                           {user, user},
		"user:u\n\nu assistant:a\n\na user:u":                   {user, user, says, says, user},
		"user:(empty) assistant:a user:u":                       {says, user},
		"user:u assistant:a call tool:r user:u":                 {user, says, asks, result, user},
		"user:u assistant: call tool:r assistant:a user:u\n\nu": {user, asks, result, says, user, user},
	} {
		llm, m := serve(t, fakellm.Turn{Text: "ok"})
		if a := modeltest.Collect(t.Context(), t, m, &agent.ModelRequest{Messages: list}); a.Err != nil {
			t.Fatal(a.Err)
		}
		var got []string
		for _, m := range llm.Requests()[0].Messages {
			line := m.Role + ":" + m.Text
			if len(m.Calls) > 0 {
				line += " call"
			}
			got = append(got, line)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("sent %q, want %q", s, want)
		}
	}
}

// TestEmptyContentOfCalls: chat templates fail for a turn with calls without a content.
func TestEmptyContentOfCalls(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Text: "ok"})
	modeltest.Collect(t.Context(), t, m, withState(nil))
	var sent struct {
		Messages []map[string]any
	}
	if err := json.Unmarshal(llm.Requests()[0].Body, &sent); err != nil {
		t.Fatal(err)
	}
	if c, ok := sent.Messages[2]["content"]; !ok || c != "" {
		t.Errorf("content = %v", sent.Messages[2])
	}
}

// TestPromptIsFiltered: a prompt that the endpoint refuses because of its contents is a filtered turn, which
// costs nothing.
func TestPromptIsFiltered(t *testing.T) {
	_, m := serve(t, fakellm.Turn{Status: 400, Code: "content_filter", Message: "The response was filtered."})
	a := modeltest.Tides(t, m)
	if a.Err != nil || a.Turn.GetEnd() != teamv1.TurnEnd_TURN_END_FILTERED || a.Spent == nil || a.Spent.GetInputTokens() != 0 || a.Spent.GetEstimated() {
		t.Errorf("%v, %v, %v", a.Turn, a.Spent, a.Err)
	}
}

// TestNothingIsLearnedFromOtherFailures: a part of the request is not left out because an endpoint that failed, or
// that refused something else, has named it, and not after a turn that has not succeeded either.
func TestNothingIsLearnedFromOtherFailures(t *testing.T) {
	schema := modeltest.Ask("x")
	schema.Schema = []byte(`{"type":"object"}`)
	for name, turns := range map[string][]fakellm.Turn{
		"500":             {{Status: 500, Message: "worker died while it handled stream_options"}, {Status: 500, Message: "response_format: out of memory"}},
		"501":             {{Status: 501, Message: "stream_options"}},
		"503":             {{Status: 503, Message: "no worker for response_format"}},
		"429":             {{Status: 429, Message: "stream_options"}},
		"then lost":       {{Status: 400, Message: "stream_options"}, {Broken: true}},
		"then an error":   {{Status: 400, Message: "stream_options"}, {Raw: events(`{"error":{"message":"died"}}`)}},
		"then cut off":    {{Status: 400, Message: "stream_options"}, {Text: "a", NoFinish: true}},
		"then no stream":  {{Status: 400, Message: "response_format"}, {Raw: "<html>"}},
		"then overloaded": {{Status: 400, Message: "response_format"}, {Status: 503}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm, m := serve(t, append(turns, fakellm.Turn{Text: "ok", Forever: true})...)
			for len(llm.Requests()) < len(turns) {
				if a := modeltest.Collect(t.Context(), t, m, schema); a.Err == nil {
					t.Fatal(a.Turn)
				}
			}
			if a := modeltest.Collect(t.Context(), t, m, schema); a.Err != nil {
				t.Fatal(a.Err)
			}
			last := string(llm.Requests()[len(turns)].Body)
			if len(llm.Requests()) != len(turns)+1 || !strings.Contains(last, "stream_options") || !strings.Contains(last, "json_schema") {
				t.Errorf("%d requests, the last one: %s", len(llm.Requests()), last)
			}
		})
	}
}

func TestAnswerIsFilteredWithinTheStream(t *testing.T) {
	const report = `{"error":{"code":"content_filter","message":"Blocked."}}`
	for text, raw := range map[string]string{"": events(report), "a": events(delta(`{"content":"a"}`), report, "[DONE]")} {
		_, m := serve(t, fakellm.Turn{Raw: raw})
		a := modeltest.Collect(t.Context(), t, m, modeltest.Ask("x"))
		if a.Err != nil || a.Turn.GetEnd() != teamv1.TurnEnd_TURN_END_FILTERED || a.Turn.GetText() != text {
			t.Errorf("%q: turn %v, error %v", text, a.Turn, a.Err)
		}
		if free := a.Spent != nil; free != (text == "") {
			t.Errorf("%q: spent %v, want nothing before the answer, and the reservation after its beginning", text, a.Spent)
		}
	}
}
