package gemini_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
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
	"github.com/agentteams/team-server/pkg/model/gemini"
	"github.com/agentteams/team-server/pkg/secret"
)

func data(s string) string { return "data: " + s + "\n\n" }

func said(parts, finish string) string {
	return data(`{"candidates":[{"index":0,"content":{"role":"model","parts":[` + parts + `]},"finishReason":"` + finish + `"}]}`)
}

// The outcome is known if the endpoint responds, so the error is Fresh; after a broken
// connection it is unknown.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		turn         fakellm.Turn
		retry, fresh bool
		says         string
	}{
		"busy":                   {fakellm.Turn{Status: 429}, true, true, "limits the rate of calls (HTTP 429)"},
		"broken endpoint":        {fakellm.Turn{Status: 500, Message: "stack trace"}, true, true, "failed (HTTP 500)"},
		"bad request":            {fakellm.Turn{Status: 400, Message: "The input is too long."}, false, true, "refused the request (HTTP 400): The input is too long"},
		"bad key":                {fakellm.Turn{Status: 401, Message: "invalid key: " + key}, false, true, "check the model's api_key"},
		"broken before":          {fakellm.Turn{Broken: true}, true, false, "was interrupted"},
		"broken mid-way":         {fakellm.Turn{Text: "a b c", Chunks: 3, Broken: true, BreakAfter: 2}, true, false, "was interrupted"},
		"broken at end":          {fakellm.Turn{Text: "a b c", Broken: true, BreakAfter: 9}, true, false, "was interrupted"},
		"no finish reason":       {fakellm.Turn{Text: "a", NoFinish: true}, true, false, "was interrupted"},
		"not JSON":               {fakellm.Turn{Raw: data("{oops")}, true, true, "(HTTP 200); try again later: {oops"},
		"no data":                {fakellm.Turn{Raw: "\n"}, true, true, "without one event"},
		"error in the stream":    {fakellm.Turn{Raw: said(`{"text":"a"}`, "") + data(`{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`)}, true, true, "(HTTP 503)"},
		"refused in stream":      {fakellm.Turn{Raw: data(`{"error":{"code":400,"message":"Bad tool","status":"INVALID_ARGUMENT"}}`)}, false, true, "(HTTP 400): Bad tool"},
		"a call it cannot write": {fakellm.Turn{Raw: said("", "MALFORMED_FUNCTION_CALL")}, true, true, "(HTTP 502)"},
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

// TestNameOfAnotherPath: a name does not choose what is called with the key.
func TestNameOfAnotherPath(t *testing.T) {
	for _, name := range []string{"models/../files/x", "m?alt=json", "m&x"} {
		llm, _ := serve(t)
		m := connect(t, gemini.Config{BaseURL: llm.Root, Name: name, HTTPClient: modeltest.Client(t)})
		if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "could not be created") || len(llm.Requests()) != 0 {
			t.Errorf("%s: error = %+v", name, e)
		}
	}
}

func TestAnswerThatIsNoStream(t *testing.T) {
	for _, kind := range []string{"text/html; charset=utf-8", "application/json"} {
		m := connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering(kind, "<html>")})
		if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "check base_url") {
			t.Errorf("error = %+v", e)
		}
	}
}

func TestAnswerIsBounded(t *testing.T) {
	line := ":" + strings.Repeat(" ", 1<<20) + "\n"
	m := connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering("text/event-stream", strings.Repeat(line, 65))})
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
	m := connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "HTTP 302") {
		t.Errorf("error = %+v", e)
	}
}

func TestRetryAfterADate(t *testing.T) {
	c := &http.Client{Transport: modeltest.Transport(func(*http.Request) (*http.Response, error) {
		at := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
		return &http.Response{StatusCode: 529, Header: http.Header{"Retry-After": {at}}, Body: http.NoBody}, nil
	})}
	m := connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	if e := modeltest.Failure(t, m); e.RetryAfter > time.Minute || e.RetryAfter < 50*time.Second {
		t.Errorf("retry after %v", e.RetryAfter)
	}
}

// TestKeyThatIsNotKnown: the provider answers 400 then.
func TestKeyThatIsNotKnown(t *testing.T) {
	body := `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`
	c := &http.Client{Transport: modeltest.Transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})}
	m := connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", APIKey: secret.New("wrong"), HTTPClient: c})
	if e := modeltest.Failure(t, m); e.Retry || !strings.Contains(e.Message, "check the model's api_key") {
		t.Errorf("error = %+v", e)
	}
}

func TestStreams(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want *teamv1.Turn
	}{
		"cut after the finish reason": {
			said(`{"text":"a"}`, "MAX_TOKENS"),
			&teamv1.Turn{Text: "a", FinishReason: "MAX_TOKENS", End: teamv1.TurnEnd_TURN_END_TRUNCATED, Model: modeltest.Agent},
		},
		"ids of calls": {
			said(`{"functionCall":{"id":"x1","name":"f","args":{"a":[1]}}},{"functionCall":{"name":"g"}}`, "STOP"),
			&teamv1.Turn{FinishReason: "STOP", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: modeltest.Agent, ToolCalls: []*teamv1.ToolCall{{Id: "x1", Name: "f", Arguments: `{"a":[1]}`}, {Id: "unnamed-1-2", Name: "g", Arguments: "{}"}}},
		},
		"another candidate, and nothing in one": {
			data(`{"candidates":[null,{"index":1,"content":{"parts":[{"text":"no"}]}},{"index":0}]}`) + said(`{"text":"a"},{"text":"b"},{}`, "STOP"),
			&teamv1.Turn{Text: "ab", FinishReason: "STOP", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: modeltest.Agent},
		},
		"a signature with nothing": {
			said(`{"text":"a"}`, "") + said(`{"text":"","thoughtSignature":"c2ln"}`, "STOP"),
			&teamv1.Turn{Text: "a", FinishReason: "STOP", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: modeltest.Agent},
		},
		"a signed text": {
			said(`{"text":"a"},{"text":"b","thoughtSignature":"c2ln"}`, "STOP"),
			&teamv1.Turn{Text: "ab", FinishReason: "STOP", End: teamv1.TurnEnd_TURN_END_COMPLETE, Model: modeltest.Agent, State: model.PackState("gemini", modeltest.Agent, json.RawMessage(`[{"text":"a"},{"text":"b","thoughtSignature":"c2ln"}]`))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := serve(t, fakellm.Turn{Raw: c.raw})
			if diff := cmp.Diff(c.want, modeltest.Turn(t, m), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNothingIsLogged: an error is returned, and not written to the log of the process as well.
func TestNothingIsLogged(t *testing.T) {
	var b bytes.Buffer
	log.SetOutput(&b)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	_, m := serve(t, fakellm.Turn{Text: "a b c", Chunks: 3, Broken: true, BreakAfter: 2})
	modeltest.Failure(t, m)
	if b.Len() > 0 {
		t.Errorf("the log has %s", b.String())
	}
}

// FuzzP17_Stream: whatever an endpoint sends, there is a turn or an error that a
// caller may see.
func FuzzP17_Stream(f *testing.F) {
	f.Add(said(`{"text":"a"}`, "STOP"))
	f.Add(data(`{"error":{"code":400}}`))
	f.Add(data(`{"candidates":[{"content":{"parts":[{"functionCall":{}}]}}]}`))
	f.Add(": comment\n\ndata: null\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		m := connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: modeltest.Answering("text/event-stream", body)})
		a := modeltest.Tides(t, m)
		if a.Err == nil && strings.Join(a.Pieces, "") != a.Turn.GetText() {
			t.Fatalf("the pieces are %q, the turn is %q", a.Pieces, a.Turn.GetText())
		}
		if a.Err != nil {
			modeltest.Failure(t, m)
		}
	})
}

// TestReportsWithinResponses: a failure that an endpoint reports with 200 is an error with its text.
func TestReportsWithinResponses(t *testing.T) {
	modeltest.Reports(t, func(c *http.Client) agent.Model {
		return connect(t, gemini.Config{Name: "m", BaseURL: "http://model.invalid", HTTPClient: c})
	})
}
