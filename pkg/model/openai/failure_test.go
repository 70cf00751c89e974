package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/openai"
)

// The outcome is known if the endpoint responds, so the error is Fresh; after a broken
// connection it is unknown.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		turn         fakellm.Turn
		retry, fresh bool
		says         string
	}{
		"busy":                    {fakellm.Turn{Status: 429}, true, true, "limits the rate of calls (HTTP 429)"},
		"quota":                   {fakellm.Turn{Status: 429, Code: "insufficient_quota"}, false, true, "quota"},
		"broken endpoint":         {fakellm.Turn{Status: 500, Message: "stack trace"}, true, true, "failed (HTTP 500)"},
		"overloaded":              {fakellm.Turn{Status: 529}, true, true, "(HTTP 529)"},
		"bad request":             {fakellm.Turn{Status: 400, Message: "The context is too long."}, false, true, "refused the request (HTTP 400): The context is too long."},
		"bad key":                 {fakellm.Turn{Status: 401, Message: "Incorrect API key: " + key}, false, true, "check the model's api_key"},
		"broken before":           {fakellm.Turn{Broken: true}, true, false, "was interrupted"},
		"broken mid-way":          {fakellm.Turn{Text: "a b c", Chunks: 3, Broken: true, BreakAfter: 2}, true, false, "was interrupted"},
		"broken at end":           {fakellm.Turn{Text: "a b c", Broken: true, BreakAfter: 9}, true, false, "was interrupted"},
		"no finish reason":        {fakellm.Turn{Text: "a", NoFinish: true}, true, false, "was interrupted"},
		"not JSON":                {fakellm.Turn{Raw: events("{oops")}, true, true, "(HTTP 200); try again later: {oops"},
		"no data":                 {fakellm.Turn{Raw: "\n"}, true, true, "without one event"},
		"[DONE] and nothing else": {fakellm.Turn{Raw: events("[DONE]")}, true, true, "without one event"},
		"error in the stream":     {fakellm.Turn{Raw: events(delta(`{"content":"a"}`), `{"error":{"message":"Provider gone","code":502}}`)}, true, true, "(HTTP 502)"},
		"error in a chunk":        {fakellm.Turn{Raw: events(`{"id":"1","error":{"message":"slow down","type":"rate_limit_error"},"choices":[]}`)}, true, true, "(HTTP 429)"},
		"error after a comment":   {fakellm.Turn{Raw: ": processing\n\nevent: error\n" + events(`{"error":{"message":"Provider gone","code":502}}`)}, true, true, "(HTTP 502)"},
		"refusal in the stream":   {fakellm.Turn{Raw: events(`{"error":{"message":"Bad tool","type":"invalid_request_error"}}`)}, false, true, "(HTTP 400): Bad tool"},
		"error beside the usage":  {fakellm.Turn{Raw: events(delta(`{"content":"a"}`), `{"choices":[],"usage":{"prompt_tokens":3},"detail":"Provider gone"}`, "[DONE]")}, true, true, "Provider gone"},
		"error in a choice":       {fakellm.Turn{Raw: events(`{"choices":[{"delta":{},"finish_reason":"error","error":{"code":403,"message":"Flagged input"}}]}`)}, false, true, "does not permit this request (HTTP 403); check whether the account or key may use this model, in this region and with these contents: Flagged input"},
		"code beside a choice":    {fakellm.Turn{Raw: events(`{"choices":[{"delta":{"content":""}}],"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`)}, false, true, "(HTTP 402); retrying does not help: insufficient balance"},
		"error of llama.cpp":      {fakellm.Turn{Raw: events(delta(`{"content":"a"}`)) + `error: {"code":400,"message":"Bad shift","type":"invalid_request_error"}` + "\n\n"}, false, true, "(HTTP 400): Bad shift"},
		"text in place of events": {fakellm.Turn{Raw: "upstream request timeout"}, true, true, "(HTTP 200); try again later: upstream request timeout"},
		"finish reason error":     {fakellm.Turn{Raw: events(`{"choices":[{"delta":{},"finish_reason":"error"}]}`)}, true, true, "(HTTP 502)"},
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

func TestUnknownModel(t *testing.T) {
	llm := fakellm.New(t)
	m := connect(t, openai.Config{BaseURL: llm.URL, Name: "gpt-9", HTTPClient: modeltest.Client(t)})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "check the model's name") {
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
		m := connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering(kind, "<html>")})
		if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "check base_url") {
			t.Errorf("error = %+v", e)
		}
	}
}

func TestAnswerIsBounded(t *testing.T) {
	line := ":" + strings.Repeat(" ", 1<<20) + "\n"
	m := connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering("text/event-stream", strings.Repeat(line, 65))})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "64 MiB") {
		t.Errorf("error = %+v", e)
	}
}

func TestPieceIsBounded(t *testing.T) {
	m := connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering("text/event-stream", strings.Repeat("x", 17<<20))})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "16 MiB") {
		t.Errorf("error = %+v", e)
	}
}

func TestErrorBodyIsBounded(t *testing.T) {
	_, m := serve(t, fakellm.Turn{Status: 400, Message: strings.Repeat("long ", 100_000)})
	if e := modeltest.Failure(t, m); e.Retry || len(e.Error()) > 3000 {
		t.Errorf("error of %d bytes: %.200v", len(e.Error()), e)
	}
}

func TestRetryAfter(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"2":                             2 * time.Second,
		"0.5":                           500 * time.Millisecond,
		"-3":                            0,
		"NaN":                           0,
		"soon":                          0,
		"1e99":                          24 * time.Hour,
		"Fri, 31 Dec 1999 23:59:59 GMT": 0,
	} {
		c := &http.Client{Transport: modeltest.Transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {in}}, Body: http.NoBody}, nil
		})}
		m := connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
		if e := modeltest.Failure(t, m); e.RetryAfter != want || !e.Retry {
			t.Errorf("Retry-After %q gives %v, want %v", in, e.RetryAfter, want)
		}
	}
}

func TestRetryAfterADate(t *testing.T) {
	c := &http.Client{Transport: modeltest.Transport(func(*http.Request) (*http.Response, error) {
		at := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
		return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {at}}, Body: http.NoBody}, nil
	})}
	m := connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	if e := modeltest.Failure(t, m); e.RetryAfter > time.Minute || e.RetryAfter < 50*time.Second {
		t.Errorf("wait %v, want a minute", e.RetryAfter)
	}
}

// Neither the caller nor the log gets credentials, wherever they turn up.
func TestSecretsStayInside(t *testing.T) {
	for _, said := range []string{key, "Incorrect key sk-abc***xyz9", "Bearer abcdef.ghi"} {
		_, m := serve(t, fakellm.Turn{Status: 400, Message: "no:\n" + said + " " + strings.Repeat("é", 300)})
		e := modeltest.Failure(t, m)
		for _, text := range []string{e.Message, fmt.Sprint(errors.Unwrap(e))} {
			if strings.Contains(text, said) || strings.Contains(text, "\n") || !strings.Contains(text, "***") {
				t.Errorf("shown: %q", text)
			}
		}
		if n := len([]rune(e.Message)); n > 1200 {
			t.Errorf("the message has %d characters", n)
		}
	}
}

// TestReportsWithinResponses: a failure that an endpoint reports with 200 is an error with its text.
func TestReportsWithinResponses(t *testing.T) {
	modeltest.Reports(t, func(c *http.Client) agent.Model {
		return connect(t, openai.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	})
}

// TestCodesOfSuccess: a code of 0 is part of an answer, whatever text is beside it.
func TestCodesOfSuccess(t *testing.T) {
	for _, raw := range []string{
		events(`{"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}],"base_resp":{"status_code":0,"status_msg":"success"}}`, "[DONE]"),
		events(delta(`{"content":"hello"}`), `{"code":0,"message":"Success","choices":[],"usage":{"prompt_tokens":3}}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"error_code":0}`, "[DONE]"),
	} {
		_, m := serve(t, fakellm.Turn{Raw: raw})
		if r := modeltest.Collect(t.Context(), t, m, modeltest.Ask("x")); r.Err != nil || r.Turn.GetText() != "hello" {
			t.Errorf("%s: %v %v", raw, r.Turn, r.Err)
		}
	}
}
