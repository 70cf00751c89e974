package openai_test

import (
	"flag"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/openai"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden() modeltest.Golden {
	return modeltest.Golden{Name: "model-test", Update: *update, Connect: func(c model.Config) (agent.Model, error) {
		if c.BaseURL == "" {
			c.BaseURL = "http://model.invalid/v1"
		}
		return openai.New(c)
	}}
}

func TestGoldenRequests(t *testing.T) {
	tools := modeltest.Ask("x")
	tools.Schema, tools.Tools = []byte(`{"type":"object"}`), []agent.ToolSpec{{Name: "look"}}
	golden().Requests(t, map[string]modeltest.Case{
		"OpenAI":                      {Config: model.Config{BaseURL: openai.DefaultBaseURL, MaxOutput: 9}, Request: modeltest.Ask("x")},
		"a schema and tools, OpenAI":  {Config: model.Config{BaseURL: openai.DefaultBaseURL}, Request: tools},
		"state of another model":      {Request: withState(model.PackState("openai", "other", map[string]any{"message": map[string]any{"reasoning_content": "no"}}))},
		"state of this model, broken": {Request: withState(model.PackState("openai", "model-test", "no"))},
	})
}

// withState returns a request with a turn that has a state.
func withState(state []byte) *agent.ModelRequest {
	req := modeltest.Ask("x")
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, State: state, ToolCalls: calls("c1")}, agent.ModelMessage{Role: agent.RoleTool, CallID: "c1", Text: "seen"})
	return req
}

// TestGoldenTurns compares what goes back to the endpoint in the same run: all that it has sent beside the
// calls of a turn.
func TestGoldenTurns(t *testing.T) {
	call := `{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"look","arguments":"{\"q\":1}"}}]}`
	end := `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
	golden().Turns(t, map[string]string{
		"reasoning_content":      events(delta(`{"role":"assistant","content":null,"reasoning_content":"I should "}`), delta(`{"reasoning_content":"look <b>."}`), delta(call), end, "[DONE]"),
		"reasoning of vLLM":      events(delta(`{"reasoning":"Hm."}`), delta(`{"content":"Looking."}`), delta(call), end, "[DONE]"),
		"reasoning without call": events(delta(`{"reasoning_content":"Hm."}`), delta(`{"content":"a"}`), stop, "[DONE]"),
		"extra_content of Gemini": events(delta(`{"tool_calls":[{"index":0,"id":"c1","type":"function","extra_content":{"google":{"thought_signature":"c2ln"}},"function":{"name":"look","arguments":"{}"}},`+
			`{"index":1,"id":"c2","type":"function","function":{"name":"clock","arguments":"{}"}}]}`), end, "[DONE]"),
		"extra_content of the message": events(delta(`{"extra_content":{"google":{"thought":true,"thought_signature":"c2ln"}}}`), delta(call), end, "[DONE]"),
		"reasoning_details of OpenRouter": events(delta(`{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","format":"x-v1","index":0}]}`),
			delta(`{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","format":"x-v1","index":0}]}`),
			delta(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"ZGF0YQ==","id":"r1","index":1}]}`), delta(call), end, "[DONE]"),
		"thinking parts of Mistral": events(delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}`), delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"m"}]}]}`),
			delta(`{"content":"Looking."}`), delta(call), end, "[DONE]"),
		"a think block and a call": events(delta(`{"content":"<think>hm</think>\n\nLooking."}`), delta(call), end, "[DONE]"),
		"what only answers have":   events(`{"choices":[{"index":0,"message":{"role":"assistant","content":"","refusal":null,"annotations":[],"audio":null,"function_call":null,` + call[1:len(call)-1] + `},"finish_reason":"tool_calls"}]}`),
		"ended: content_filter":    events(delta(`{"content":"Par"}`), `{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}`),
		"ended: length, a call":    events(delta(call), `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`),
		"ended: abort":             events(delta(`{"content":"Par"}`), `{"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`),
		"usage of DeepSeek":        events(delta(`{"content":"a"}`), stop, `{"choices":[],"usage":{"prompt_tokens":"10","completion_tokens":5.0,"prompt_cache_hit_tokens":4,"completion_tokens_details":{"reasoning_tokens":2}}}`, "[DONE]"),
		"usage of Moonshot":        events(delta(`{"content":"a"}`), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":4}}]}`, "[DONE]"),
		"usage is null":            events(`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}`, stop, `{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`, "[DONE]"),
	})
}

// TestGoldenFailures: the reason of a refusal reaches the error in whatever form it is sent.
func TestGoldenFailures(t *testing.T) {
	more := map[string]modeltest.Response{
		"vLLM: wrong key":            {Status: 401, Body: `{"error":"Unauthorized"}`},
		"vLLM: context too long":     {Status: 400, Body: `{"error":{"message":"This model's maximum context length is 256 tokens. However, you requested 300 tokens.","type":"BadRequestError","param":null,"code":400}}`},
		"vLLM: max_tokens":           {Status: 400, Body: `{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 9999. This model's maximum context length is 256 tokens and your request has 20 input tokens (9999 > 256 - 20).","type":"BadRequestError","param":null,"code":400}}`},
		"max_tokens":                 {Status: 400, Body: `{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`},
		"an older vLLM":              {Status: 400, Body: `{"object":"error","message":"Conversation roles must alternate user/assistant/user/assistant/...","type":"BadRequestError","param":null,"code":400}`},
		"FastAPI":                    {Status: 422, Body: `{"detail":[{"type":"extra_forbidden","loc":["body","blah"],"msg":"Extra inputs are not permitted"}]}`},
		"transformers: unknown":      {Status: 500, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: "Internal Server Error"},
		"llama.cpp: too long":        {Status: 400, Body: `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":300,"n_ctx":256}}`},
		"llama-cpp-python: wrong":    {Status: 401, Body: `{"detail":"Invalid API key"}`},
		"quota of OpenAI":            {Status: 429, Body: `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
		"balance of DeepSeek":        {Status: 402, Body: `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`},
		"rate of OpenAI":             {Status: 429, Body: `{"error":{"message":"Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`},
		"key of xAI":                 {Status: 400, Body: `{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***ey. You can obtain an API key from https://console.x.ai."}`},
		"model of LiteLLM":           {Status: 400, Body: `{"error":{"message":"/chat/completions: Invalid model name passed in model=m. Call ` + "`/v1/models`" + ` to view available models for your key.","type":"None","param":"None","code":"400"}}`},
		"reason of OpenRouter":       {Status: 400, Body: `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"message\":\"temperature must be 1\"}","provider_name":"X"}},"user_id":"u"}`},
		"a page that refuses":        {Status: 403, Header: map[string][]string{"Content-Type": {"text/html"}}, Body: "<html><head><style>a{}</style><title>Blocked</title></head><body>Your country is not supported.</body></html>"},
		"in the stream: a text":      {Status: 200, Body: events(`{"error":"engine died"}`)},
		"in the stream: a number":    {Status: 200, Body: events(`{"error":{"message":"died","type":null,"param":null,"code":"500"}}`, "[DONE]")},
		"in the stream: an object":   {Status: 200, Body: events(`{"object":"error","message":"context length exceeded","type":"BadRequestError","code":400}`)},
		"in the stream: a message":   {Status: 200, Body: events(delta(`{"content":"a"}`)) + "event: error\ndata: {\"code\":\"overloaded_error\",\"message\":\"busy\"}\n\n"},
		"in the stream: a detail":    {Status: 200, Body: events(`{"detail":[{"msg":"no"}]}`)},
		"in a document":              {Status: 200, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: `{"error":{"message":"no such model","code":"model_not_found"}}`},
		"after Retry-After, LiteLLM": {Status: 429, Header: map[string][]string{"Llm_provider-Retry-After": {"7"}}, Body: `{"error":{"message":"busy","code":"429"}}`},
	}
	golden().Failures(t, more)
}
