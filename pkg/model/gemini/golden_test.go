package gemini_test

import (
	"context"
	"flag"
	"net/http"
	"strconv"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/gemini"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden() modeltest.Golden {
	return modeltest.Golden{Name: "gemini-3-test", Update: *update, Connect: func(c model.Config) (agent.Model, error) { return gemini.New(c) }}
}

func TestGoldenRequests(t *testing.T) {
	more := map[string]modeltest.Case{}
	for _, name := range []string{"models/gemini-3-test", "tunedModels/mine", "gemini-2.5-flash", "models/gemini-1.5-pro", "gemini-20", "google/gemini-3", "a b"} {
		req := modeltest.Ask("x")
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, ToolCalls: []*teamv1.ToolCall{{Id: "1", Name: "f"}, {Id: "2", Name: "g"}}},
			agent.ModelMessage{Role: agent.RoleTool, CallID: "1"}, agent.ModelMessage{Role: agent.RoleTool, CallID: "2"})
		more["model "+name] = modeltest.Case{Config: model.Config{Name: name}, Request: req}
	}
	req := modeltest.Ask("x")
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, Text: "used", State: model.PackState("gemini", "gemini-3-test", []any{})})
	more["state without parts"] = modeltest.Case{Request: req}
	golden().Requests(t, more)
}

// TestDeadlineIsSent: the provider ends its work at the deadline of the caller.
func TestDeadlineIsSent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var sent http.Header
	c := &http.Client{Transport: modeltest.Transport(func(r *http.Request) (*http.Response, error) {
		sent = r.Header
		return &http.Response{StatusCode: 400, Header: http.Header{}, Body: http.NoBody}, nil
	})}
	modeltest.Collect(ctx, t, connect(t, gemini.Config{Name: "m", HTTPClient: c}), modeltest.Ask("x"))
	if s, err := strconv.Atoi(sent.Get("X-Server-Timeout")); err != nil || s < 3000 || s > 3600 {
		t.Errorf("sent %v", sent)
	}
}

func TestGoldenTurns(t *testing.T) {
	streams := map[string]string{
		"thoughts and a call": said(`{"text":"Hm <b> & ","thought":true}`, "") + said(`{"text":"é.","thought":true}`, "") + said(`{"text":"Look"},{"text":"ing."}`, "") +
			said(`{"functionCall":{"id":"c1","name":"look","args":{"b":[1,2.5,null,1e30,{"x":"<é>"}],"a":true}},"thoughtSignature":"c2ln+/8="}`, "") +
			said(`{"functionCall":{"name":"clock"}},{"functionCall":{"name":"none","args":{}}}`, "STOP"),
		"signed texts":  said(`{"text":"a"},{"text":"b","thoughtSignature":"c2ln"},{"text":"c"},{"text":"d"}`, "") + said(`{"text":"t","thought":true,"thoughtSignature":"c2ln"},{"text":"","thoughtSignature":"c2ln"}`, "STOP"),
		"images":        said(`{"text":"See:"},{"inlineData":{"mimeType":"image/png","data":"aW1n","displayName":"i.png"},"thoughtSignature":"c2ln"},{"inlineData":{"mimeType":"image/png","data":"aW1n"},"thought":true}`, "STOP"),
		"unsigned":      said(`{"text":"a"},{"functionCall":{"id":"c1","name":"look","args":{"q":"x"}}}`, "STOP"),
		"other parts":   said(`{"executableCode":{"code":"1","language":"PYTHON"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK"}},{"text":"a","thoughtSignature":"c2ln","videoMetadata":{"fps":1}}`, "STOP"),
		"usage":         data(`{"modelVersion":"gemini-3-001","responseId":"r","candidates":[{"content":{"role":"model","parts":[{"text":"a"}]},"finishReason":"STOP","safetyRatings":[{"category":"X"}]}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":40,"candidatesTokenCount":7,"thoughtsTokenCount":30,"toolUsePromptTokenCount":5,"totalTokenCount":142,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100}],"trafficType":"ON_DEMAND","serviceTier":"standard"}}`),
		"usage is null": data(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":null}`),
		"usage as text": data(`{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":"100"}}`),
		"unspecified":   said(`{"text":"a"}`, "FINISH_REASON_UNSPECIFIED") + said(``, "SAFETY"),
		"no contents":   data(`{"candidates":[{"finishReason":"RECITATION"}]}`),
		"nulls":         data(`{"candidates":[{"index":null,"content":{"parts":[null,{"text":null,"functionCall":null}]},"finishReason":null}],"promptFeedback":null,"error":null}`) + said(`{"text":"a"}`, "STOP"),
		"bad signature": said(`{"text":"a","thoughtSignature":"%"}`, "STOP"),
		"args is text":  said(`{"functionCall":{"name":"f","args":"x"}}`, "STOP"),
		"lists":         data(`[]`),
		"unexpected":    said(`{"text":"a"}`, "UNEXPECTED_TOOL_CALL"),
		"continuation":  said(`{"text":"a"}`, "CONTINUATION"),
	}
	streams["a list in place of a stream"] = "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n,\r\n{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"b\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":2}}\n]"
	for _, reason := range []string{"MAX_TOKENS", "SAFETY", "BLOCKLIST", "OTHER", "MALFORMED_FUNCTION_CALL"} {
		streams["ended: "+reason] = said(`{"text":"a"}`, "") + data(`{"candidates":[{"finishReason":"`+reason+`"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}`)
	}
	for _, reason := range []string{"SAFETY", "PROHIBITED_CONTENT", "OTHER"} {
		streams["blocked: "+reason] = data(`{"promptFeedback":{"blockReason":"` + reason + `"},"usageMetadata":{"promptTokenCount":9}}`)
	}
	golden().Turns(t, streams)
}

func TestGoldenFailures(t *testing.T) {
	more := map[string]modeltest.Response{
		"delay": {Status: 429, Body: `{"error":{"code":429,"message":"Quota exceeded.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"x"}]},` +
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"13.5s"}]}}`},
		"malformed delay":  {Status: 429, Body: `{"error":{"code":429,"message":"Quota exceeded.","details":[{"retryDelay":"soon"},{"retryDelay":5}]}}`},
		"refused key":      {Status: 400, Body: `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"x","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"x"}}]}}`},
		"a list of errors": {Status: 400, Body: `[{"error":{"code":400,"message":"Bad.","status":"INVALID_ARGUMENT"}}]`},
		"code is text":     {Status: 400, Body: `{"error":{"code":"400","message":"Bad."}}`},
	}
	for _, code := range []string{"400", "401", "403", "404", "429", "500", "503", "0"} {
		more["stream: "+code] = modeltest.Response{Status: 200, Body: said(`{"text":"a"}`, "") + data(`{"error":{"code":`+code+`,"message":"Because.","status":"X","details":[{"retryDelay":"2s"}]}}`)}
	}
	golden().Failures(t, more)
}
