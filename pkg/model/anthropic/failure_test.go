package anthropic_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/anthropic"
)

var price = model.Price{Input: 0.25, Output: 2}

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

func start(more string) string {
	return event("message_start", `{"type":"message_start","message":{"model":"m-2026","role":"assistant",`+more+`}}`)
}

func stop(reason, usage string) string {
	return event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":`+usage+`}`) + event("message_stop", `{"type":"message_stop"}`)
}

const (
	open  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	piece = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`
)

// The outcome is known if the endpoint responds, so the error is Fresh; after a broken
// connection it is unknown.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		turn         fakellm.Turn
		retry, fresh bool
		says         string
	}{
		"busy":                {fakellm.Turn{Status: 429}, true, true, "limits the rate of calls (HTTP 429)"},
		"broken endpoint":     {fakellm.Turn{Status: 500, Message: "stack trace"}, true, true, "failed (HTTP 500)"},
		"overloaded":          {fakellm.Turn{Status: 529}, true, true, "(HTTP 529)"},
		"bad request":         {fakellm.Turn{Status: 400, Message: "prompt is too long"}, false, true, "refused the request (HTTP 400): prompt is too long"},
		"bad key":             {fakellm.Turn{Status: 401, Message: "invalid x-api-key: " + key}, false, true, "check the model's api_key"},
		"broken before":       {fakellm.Turn{Broken: true}, true, false, "was interrupted"},
		"broken mid-way":      {fakellm.Turn{Text: "a b c", Chunks: 3, Broken: true, BreakAfter: 2}, true, false, "was interrupted"},
		"broken at end":       {fakellm.Turn{Text: "a b c", Broken: true, BreakAfter: 9}, true, false, "was interrupted"},
		"no stop reason":      {fakellm.Turn{Text: "a", NoFinish: true}, true, false, "was interrupted"},
		"not JSON":            {fakellm.Turn{Raw: event("message_start", "{oops")}, true, true, "(HTTP 200); try again later: {oops"},
		"no data":             {fakellm.Turn{Raw: "\n"}, true, true, "without one event"},
		"error in the stream": {fakellm.Turn{Raw: start(`"usage":{}`) + event("content_block_start", open) + event("content_block_delta", piece) + event("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)}, true, true, "(HTTP 529)"},
		"limit in the stream": {fakellm.Turn{Raw: event("error", `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`)}, true, true, "(HTTP 429)"},
		"refused in stream":   {fakellm.Turn{Raw: event("error", `{"type":"error","error":{"type":"invalid_request_error","message":"Bad tool"}}`)}, false, true, "(HTTP 400): Bad tool"},
		"error without words": {fakellm.Turn{Raw: event("error", `{"type":"error"}`)}, true, true, "(HTTP 200)"},
	} {
		t.Run(name, func(t *testing.T) {
			llm, m := serve(t, c.turn)
			e := modeltest.Failure(t, m)
			if e.Retry != c.retry || e.Fresh != c.fresh || !strings.Contains(e.Message, c.says) {
				t.Errorf("retry %v fresh %v %q, want %v %v %q", e.Retry, e.Fresh, e.Message, c.retry, c.fresh, c.says)
			}
			if strings.Contains(e.Message, "stack trace") || strings.Contains(e.Error(), key) {
				t.Errorf("error shows too much: %v", e)
			}
			if e.Err == nil {
				t.Error("the cause is lost")
			}
			if n := len(llm.Requests()); n != 1 {
				t.Errorf("%d requests, want one attempt", n)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	llm, m := serve(t)
	llm.Close()
	if e := modeltest.Failure(t, m); !e.Retry || e.Fresh || !strings.Contains(e.Message, "could not be reached") || strings.Contains(e.Message, "127.0.0.1") {
		t.Errorf("error = %+v", e)
	}
}

func TestToolSchemaThatIsNoJSON(t *testing.T) {
	llm, m := serve(t, fakellm.Turn{Text: "x"})
	req := modeltest.Ask("x")
	req.Tools = []agent.ToolSpec{{Name: "t", Parameters: []byte("{")}}
	e := agent.AsError(modeltest.Collect(t.Context(), t, m, req).Err)
	if e.Retry || e.Reason != agent.ReasonUnavailable || len(llm.Requests()) != 0 {
		t.Errorf("error = %+v", e)
	}
}

func TestAnswerThatIsNoStream(t *testing.T) {
	for _, kind := range []string{"text/html; charset=utf-8", "application/json"} {
		m := connect(t, anthropic.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering(kind, "<html>")})
		if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "check base_url") {
			t.Errorf("error = %+v", e)
		}
	}
}

func TestAnswerIsBounded(t *testing.T) {
	line := ":" + strings.Repeat(" ", 1<<20) + "\n"
	m := connect(t, anthropic.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering("text/event-stream", strings.Repeat(line, 65))})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "64 MiB") {
		t.Errorf("error = %+v", e)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	c := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: modeltest.Transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"http://other.invalid"}}, Body: http.NoBody}, nil
		}),
	}
	m := connect(t, anthropic.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "HTTP 302") {
		t.Errorf("error = %+v", e)
	}
}

func TestRetryAfterADate(t *testing.T) {
	c := &http.Client{Transport: modeltest.Transport(func(*http.Request) (*http.Response, error) {
		at := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
		return &http.Response{StatusCode: 529, Header: http.Header{"Retry-After": {at}}, Body: http.NoBody}, nil
	})}
	m := connect(t, anthropic.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	if e := modeltest.Failure(t, m); e.RetryAfter > time.Minute || e.RetryAfter < 50*time.Second {
		t.Errorf("retry after %v", e.RetryAfter)
	}
}

func TestStreams(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want *teamv1.Turn
	}{
		"events without names": {
			"data: " + `{"type":"message_start","message":{"model":"m-2026"}}` + "\n\ndata: " + open + "\n\ndata: " + piece + "\n\n" + stop("end_turn", "{}"),
			&teamv1.Turn{Text: "a", FinishReason: "end_turn", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: "m-2026"},
		},
		"pings, comments and what is new": {
			": hello\n\n" + start(`"usage":{}`) + event("ping", `{"type":"ping"}`) + event("news", `{"type":"news"}`) +
				event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","name":"x"}}`) +
				event("content_block_delta", piece) + stop("end_turn", "{}"),
			&teamv1.Turn{FinishReason: "end_turn", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: "m-2026"},
		},
		"fields of other types than documented": {
			start(`"usage":{}`) + event("content_block_start", open) + event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"news","text":{"a":1},"thinking":7}}`) +
				event("content_block_delta", piece) + stop("end_turn", "{}"),
			&teamv1.Turn{Text: "a", FinishReason: "end_turn", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: "m-2026"},
		},
		"cut after the stop reason": {
			start(`"usage":{}`) + event("content_block_start", open) + event("content_block_delta", piece) + event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{}}`),
			&teamv1.Turn{Text: "a", FinishReason: "max_tokens", End: teamv1.TurnEnd_TURN_END_TRUNCATED, Model: "m-2026"},
		},
		"thoughts that are kept secret": {
			start(`"usage":{}`) + event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"xyz"}}`) + stop("refusal", "{}"),
			&teamv1.Turn{FinishReason: "refusal", End: teamv1.TurnEnd_TURN_END_FILTERED, Model: "m-2026", State: model.PackState("anthropic", modeltest.Agent, []map[string]string{{"type": "redacted_thinking", "data": "xyz"}})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := serve(t, fakellm.Turn{Raw: c.raw})
			got := modeltest.Turn(t, m)
			got.State, c.want.State = sorted(got.GetState()), sorted(c.want.GetState())
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzP17_Stream: whatever an endpoint sends, there is a turn or an error that a
// caller may see.
func FuzzP17_Stream(f *testing.F) {
	f.Add(start(`"usage":{}`) + event("content_block_start", open) + event("content_block_delta", piece) + stop("end_turn", "{}"))
	f.Add(event("error", `{"type":"error","error":{"type":"x"}}`))
	f.Add(event("content_block_delta", `{"type":"content_block_delta","index":-1,"delta":{}}`))
	f.Add(": comment\n\ndata: null\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		m := connect(t, anthropic.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering("text/event-stream", body)})
		a := modeltest.Tides(t, m)
		if a.Err == nil && strings.Join(a.Pieces, "") != a.Turn.GetText() {
			t.Fatalf("the pieces are %q, the turn is %q", a.Pieces, a.Turn.GetText())
		}
		if a.Err != nil {
			modeltest.Failure(t, m)
		}
	})
}

// sorted is a JSON text with its keys in order.
func sorted(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	var content []map[string]string
	model.UnpackState(b, "anthropic", modeltest.Agent, &content)
	return model.PackState("anthropic", modeltest.Agent, content)
}

// TestReportsWithinResponses: a failure that an endpoint reports with 200 is an error with its text.
func TestReportsWithinResponses(t *testing.T) {
	modeltest.Reports(t, func(c *http.Client) agent.Model {
		return connect(t, anthropic.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	})
}
