package anthropic_test

import (
	"flag"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/anthropic"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden() modeltest.Golden {
	return modeltest.Golden{Name: "claude-test", Update: *update, Connect: func(c model.Config) (agent.Model, error) { return anthropic.New(c) }}
}

func TestGoldenRequests(t *testing.T) {
	req := modeltest.Ask("x")
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, Text: "unused", State: model.PackState("anthropic", "claude-test", []any{})})
	golden().Requests(t, map[string]modeltest.Case{"state without blocks": {Request: req}})
}

func block(index, content string) string {
	return event("content_block_start", `{"type":"content_block_start","index":`+index+`,"content_block":`+content+`}`)
}

func delta(index, d string) string {
	return event("content_block_delta", `{"type":"content_block_delta","index":`+index+`,"delta":`+d+`}`)
}

func TestGoldenTurns(t *testing.T) {
	begin, end := start(`"usage":{"input_tokens":10,"output_tokens":1}`), stop("end_turn", `{"output_tokens":5}`)
	said := block("0", `{"type":"text","text":""}`) + delta("0", `{"type":"text_delta","text":"a"}`)
	streams := map[string]string{
		"thinking": begin + block("0", `{"type":"thinking","thinking":"","signature":""}`) + delta("0", `{"type":"thinking_delta","thinking":"Hm <b> & "}`) + delta("0", `{"type":"thinking_delta","thinking":"é."}`) +
			delta("0", `{"type":"signature_delta","signature":"c2lnbmVk+/=="}`) + event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
			block("1", `{"type":"text","text":"Lo"}`) + delta("1", `{"type":"text_delta","text":"oking."}`) +
			block("2", `{"type":"tool_use","id":"toolu_1","name":"look","input":{}}`) + delta("2", `{"type":"input_json_delta","partial_json":"{\"q\": [1, "}`) + delta("2", `{"type":"input_json_delta","partial_json":"2.50]}"}`) +
			stop("tool_use", `{"output_tokens":50}`),
		"redacted thinking": begin + block("0", `{"type":"redacted_thinking","data":"EmwK"}`) + block("1", `{"type":"thinking","thinking":"all at once","signature":"sig"}`) +
			block("2", `{"type":"text","text":" "}`) + block("3", `{"type":"tool_use","id":"t1","name":"look","input":{}}`) + block("4", `{"type":"tool_use","id":"t2","name":"look","input":{"a":1}}`) +
			delta("4", `{"type":"input_json_delta","partial_json":"{bad"}`) + block("5", `{"type":"text","text":"after"}`) + stop("tool_use", `{"output_tokens":5}`),
		"only thinking":                begin + block("0", `{"type":"thinking","thinking":"x","signature":"s"}`) + stop("max_tokens", `{"output_tokens":5}`),
		"thinking without a signature": begin + block("0", `{"type":"thinking","thinking":"x"}`) + block("1", `{"type":"text","text":"a"}`) + end,
		"thinking omitted":             begin + block("0", `{"type":"thinking","thinking":"","signature":""}`) + delta("0", `{"type":"signature_delta","signature":"s"}`) + block("1", `{"type":"text","text":"a"}`) + end,
		"usage with a cache": start(`"usage":{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}`) +
			said + stop("end_turn", `{"output_tokens":5,"server_tool_use":{"web_search_requests":1}}`),
		"usage at the end":   start(`"usage":{"input_tokens":1,"output_tokens":0}`) + said + stop("end_turn", `{"input_tokens":10,"cache_read_input_tokens":null,"cache_creation_input_tokens":4,"output_tokens":5}`),
		"usage that is null": start(`"usage":null`) + said + stop("end_turn", `null`),
		"usage with nulls":   start(`"usage":{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":null}`) + said + stop("end_turn", `{"output_tokens":null}`),
		"usage as fractions": start(`"usage":{"input_tokens":10.0,"output_tokens":1.0}`) + said + stop("end_turn", `{"output_tokens":5.0}`),
		"usage as texts":     start(`"usage":{"input_tokens":"10","output_tokens":"1"}`) + said + stop("end_turn", `{"output_tokens":"5"}`),
		"no usage":           event("message_start", `{"type":"message_start","message":{"model":"m-2026"}}`) + said + event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`),
		"no message":         event("message_start", `{"type":"message_start"}`) + said + end,
		"new kinds": begin + block("0", `{"type":"web_search_tool_result","tool_use_id":"x","content":[{"type":"web_search_result","text":5}],"text":{"a":1},"name":7,"data":[]}`) +
			delta("0", `{"type":"text_delta","text":"no"}`) + block("1", `{"type":"text","text":"","citations":[]}`) + delta("1", `{"type":"citations_delta","citation":{"type":"page_location","cited_text":"x"}}`) +
			delta("1", `{"type":"new_delta","value":{"a":1}}`) + delta("1", `{"type":"text_delta","text":"a"}`) + delta("7", `{"type":"text_delta","text":"no"}`) +
			event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null,"container":{"id":"x"}},"usage":{"output_tokens":5}}`) + event("message_stop", `{"type":"message_stop"}`),
		"deltas without a type":      begin + block("0", `{"type":"text","text":null}`) + delta("0", `{"text":"a"}`) + end,
		"a block without contents":   begin + event("content_block_start", `{"type":"content_block_start","index":0}`) + event("content_block_delta", `{"type":"content_block_delta","index":0}`) + end,
		"a stop reason that is null": begin + said + event("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":2}}`) + end,
		"lists as events":            begin + said + event("x", `[]`) + end,
	}
	streams["a whole message"] = `{"id":"msg_1","type":"message","role":"assistant","model":"m-2026","content":[{"type":"thinking","thinking":"Hm.","signature":"c2ln"},{"type":"text","text":"Looking."},` +
		`{"type":"tool_use","id":"t1","name":"look","input":{"q":1}}],"stop_reason":"tool_use","usage":{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":5}}`
	for _, reason := range []string{"max_tokens", "model_context_window_exceeded", "refusal", "stop_sequence", "pause_turn", "error"} {
		streams["ended: "+reason] = begin + said + stop(reason, `{"output_tokens":5}`)
	}
	golden().Turns(t, streams)
}

func TestGoldenFailures(t *testing.T) {
	more := map[string]modeltest.Response{}
	for _, kind := range []string{"invalid_request_error", "authentication_error", "permission_error", "billing_error", "not_found_error", "request_too_large", "rate_limit_error", "overloaded_error", "timeout_error", "api_error", ""} {
		body := `{"type":"error","error":{"type":"` + kind + `","message":"Because.","details":null},"request_id":"req_1"}`
		more["stream: "+kind] = modeltest.Response{Status: 200, Body: start(`"usage":{"input_tokens":10,"output_tokens":1}`) + event("error", body)}
	}
	golden().Failures(t, more)
}
