package openai_test

import (
	"cmp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/openai"
)

// events are the body of a stream with these messages.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

func delta(d string) string { return `{"choices":[{"index":0,"delta":` + d + `}]}` }

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

// What endpoints are known to send.
func TestDialects(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want *teamv1.Turn
	}{
		"no [DONE]":                      {events(delta(`{"content":"a"}`), stop), &teamv1.Turn{Text: "a"}},
		"no space after data":            {"data:" + delta(`{"content":"a"}`) + "\n\ndata:" + stop + "\n\ndata:[DONE]\n\n", &teamv1.Turn{Text: "a"}},
		"CRLF":                           {strings.ReplaceAll(events(delta(`{"content":"a"}`), stop, "[DONE]"), "\n", "\r\n"), &teamv1.Turn{Text: "a"}},
		"keep-alive comments":            {strings.Repeat(": processing\n\n", 1000) + events(delta(`{"content":"a"}`), stop), &teamv1.Turn{Text: "a"}},
		"error null":                     {events(`{"error":null,"choices":[{"delta":{"content":"a"}}]}`, stop), &teamv1.Turn{Text: "a"}},
		"an error that is empty":         {events(`{"error":"","choices":[{"delta":{"content":"a"}}]}`, `{"error":false,"detail":"","choices":[]}`, `{"error":{},"choices":[]}`, `{"error":0}`, stop, `{"message":null}`, "[DONE]"), &teamv1.Turn{Text: "a"}},
		"no last newline":                {strings.TrimSpace(events(delta(`{"content":"a"}`), stop)), &teamv1.Turn{Text: "a"}},
		"null content":                   {events(delta(`{"role":"assistant","content":null}`), delta(`{"content":"a"}`), stop), &teamv1.Turn{Text: "a"}},
		"usage with choices":             {events(`{"usage":{"prompt_tokens":1},"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`), &teamv1.Turn{Text: "a"}},
		"a second choice":                {events(delta(`{"content":"a"}`), `{"choices":[{"index":1,"delta":{"content":"z"},"finish_reason":"stop"}]}`, stop), &teamv1.Turn{Text: "a"}},
		"byte order mark":                {"\ufeff" + events(delta(`{"content":"a"}`), delta(`{"content":"b"}`), stop), &teamv1.Turn{Text: "ab", FinishReason: "stop", End: teamv1.TurnEnd_TURN_END_COMPLETE}},
		"refusal":                        {events(delta(`{"refusal":"I cannot."}`), stop), &teamv1.Turn{Text: "I cannot.", FinishReason: "refusal", End: teamv1.TurnEnd_TURN_END_FILTERED}},
		"cut off by length":              {events(`{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`), &teamv1.Turn{Text: "a", FinishReason: "length", End: teamv1.TurnEnd_TURN_END_TRUNCATED}},
		"its own model name":             {events(`{"model":"m-2026","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`), &teamv1.Turn{Text: "a", Model: "m-2026"}},
		"[DONE] without a finish reason": {events(delta(`{"content":"a"}`), "[DONE]"), &teamv1.Turn{Text: "a", FinishReason: "-"}},
		"created with decimals":          {events(`{"created":1.5,"choices":[{"index":0.0,"delta":{"content":"a"}}]}`, stop), &teamv1.Turn{Text: "a"}},
		"fields of other types":          {events(`{"id":7,"model":{"a":1},"choices":[{"delta":{"content":"a","role":1,"tool_calls":{}},"finish_reason":null,"logprobs":[]}],"usage":[]}`, stop), &teamv1.Turn{Text: "a"}},
		"content as a list of parts": {
			events(delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`), delta(`{"content":[{"type":"text","text":"a"},"b"]}`), delta(`{"content":"c"}`), stop), &teamv1.Turn{Text: "abc"},
		},
		"a whole answer":                         {`{"id":"x","object":"chat.completion","model":"m-2026","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{}}`, &teamv1.Turn{Text: "a", Model: "m-2026"}},
		"a whole answer without a finish reason": {"\n {\"choices\":[{\"message\":{\"content\":\"a\"}}]}", &teamv1.Turn{Text: "a", FinishReason: "-"}},
		"lines of JSON":                          {`{"choices":[{"delta":{"content":"a"}}]}` + "\n" + stop + "\n", &teamv1.Turn{Text: "a"}},
		"a think block":                          {events(delta(`{"content":"<thi"}`), delta(`{"content":"nk>\nhm</think>"}`), delta(`{"content":"\n\na"}`), stop), &teamv1.Turn{Text: "a"}},
		"a think block that never ends":          {events(delta(`{"content":"<think>hm"}`), `{"choices":[{"delta":{},"finish_reason":"length"}]}`), &teamv1.Turn{FinishReason: "length", End: teamv1.TurnEnd_TURN_END_TRUNCATED}},
		"arguments as an object": {
			events(delta(`{"tool_calls":[{"index":"0","id":"1","function":{"name":"f","arguments":{"q": "x"}}}]}`), stop),
			&teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "f", Arguments: `{"q":"x"}`}}},
		},
		"calls without index": {
			events(delta(`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}},{"id":"2","function":{"name":"g","arguments":"{"}}]}`),
				delta(`{"tool_calls":[{"function":{"arguments":"}"}}]}`), stop),
			&teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "f", Arguments: "{}"}, {Id: "2", Name: "g", Arguments: "{}"}}},
		},
		"calls with the same index": {
			events(delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}]}`),
				delta(`{"tool_calls":[{"index":0,"id":"2","function":{"name":"g","arguments":"{}"}}]}`), stop),
			&teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "f", Arguments: "{}"}, {Id: "2", Name: "g", Arguments: "{}"}}},
		},
		"id and name in every piece": {
			events(delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{\"a\""}}]}`),
				delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":":1}"}}]}`), stop),
			&teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "f", Arguments: `{"a":1}`}}},
		},
		"calls without ids": {
			events(delta(`{"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"name":"g"}}]}`), stop),
			&teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "call_1", Name: "f"}, {Id: "call_2", Name: "g"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := serve(t, fakellm.Turn{Raw: c.raw})
			c.want.FinishReason = strings.TrimPrefix(cmp.Or(c.want.FinishReason, "stop"), "-")
			if c.want.End == 0 && c.want.FinishReason != "" {
				c.want.End = teamv1.TurnEnd_TURN_END_COMPLETE
			}
			if c.want.Model == "" {
				c.want.Model = modeltest.Agent
			}
			if diff := gocmp.Diff(c.want, modeltest.Turn(t, m), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzP17_Stream: whatever an endpoint sends, there is a turn or an error that a
// caller may see.
func FuzzP17_Stream(f *testing.F) {
	f.Add(events(delta(`{"content":"a"}`), stop, "[DONE]"))
	f.Add(events(delta(`{"tool_calls":[{"index":-1,"id":"1"},{"id":"2","function":{"name":"f","arguments":"{"}}]}`), stop))
	f.Add(events(`{"error":{"message":"x","code":502}}`, "[DONE]"))
	f.Add(events(`{"choices":null,"error":null}`))
	f.Add(": comment\n\nevent: error\ndata: {\"error\": \"x\"}\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		m := connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid/v1", HTTPClient: modeltest.Answering("text/event-stream", body)})
		a := modeltest.Tides(t, m)
		if a.Err == nil && agent.AfterThoughts(strings.Join(a.Pieces, "")) != a.Turn.GetText() && strings.Join(a.Pieces, "") != a.Turn.GetText() {
			t.Fatalf("the pieces are %q, the turn is %q", a.Pieces, a.Turn.GetText())
		}
		if a.Err != nil {
			modeltest.Failure(t, m)
		}
	})
}
