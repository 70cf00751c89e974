package mcpstdio

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServe_Refused: each request gets an answer, whatever the server does with it, and what is no JSON is answered by
// the server.
func TestServe_Refused(t *testing.T) {
	t.Parallel()
	const call, note = `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	for name, c := range map[string]struct {
		line   string
		status int
		kind   string
		body   string
		want   string
	}{
		"a key that is refused":       {call, 401, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no such key"}}`, `"id":7,"error":{"code":-32603,"message":"no such key"`},
		"a proxy in between":          {call, 502, "text/html", "<html>", `"id":7,"error":{"code":-32603,"message":"the server answers 502 Bad Gateway"`},
		"an answer with an error":     {call, 404, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no method"}}`, `"message":"no method"`},
		"a stream without its answer": {call, 200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n", `"id":7,"error":{"code":-32603,"message":"the server has ended the stream before its answer`},
		"a stream with its answer":    {call, 200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n", `"id":7,"result":{}`},
		"a question with the same id": {call, 200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"elicitation/create\"}\n\n", "has ended the stream before its answer"},
		"what is no JSON":             {"no JSON", 400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}`, `"id":null,"error":{"code":-32700`},
		"a notification":              {note, 202, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer s.Close()
			var out bytes.Buffer
			Serve(t.Context(), strings.NewReader(c.line+"\n"), &out, Server{URL: s.URL, Web: s.Client()})
			if got := out.String(); !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
