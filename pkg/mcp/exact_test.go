package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
)

const (
	exactResult = `{"id":9007199254740993,"all":[18446744073709551615,-9007199254740995,0.1234567890123456789],"name":"a 12345678901234567890, \"{","n":1}`
	exactSchema = `{"properties":{"id":{"maximum":9223372036854775807,"type":"integer"}},"type":"object"}`
	exactForm   = `{"type":"object","properties":{"id":{"type":"integer","default":9007199254740993},"word":{"type":"string","pattern":"^(?=.*[0-9]).+$","minLength":3}},"required":["word"]}`
)

// exactAnswer returns the result of a request to the server exact; "" for notifications.
func exactAnswer(method, tool string) string {
	switch method {
	case "initialize":
		return `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"exact","version":"1"}}`
	case "tools/list":
		return `{"tools":[{"name":"get","inputSchema":` + exactSchema + `},{"name":"ask","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		return `{"content":[],"structuredContent":` + exactResult + `}`
	}
	return ""
}

// exactServer is an MCP server on standard input and output that writes JSON itself. Its tool ask asks with a pattern
// that Go cannot read, and returns what was answered.
func exactServer() {
	in := bufio.NewScanner(os.Stdin)
	var asking json.RawMessage
	for in.Scan() {
		var req struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
			Result json.RawMessage
		}
		_ = json.Unmarshal(in.Bytes(), &req)
		switch result := exactAnswer(req.Method, req.Params.Name); {
		case req.Method == "" && asking != nil:
			said, _ := json.Marshal(string(req.Result) + in.Text())
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", asking, said)
		case req.Params.Name == "ask":
			asking = req.ID
			fmt.Printf(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"Which?","requestedSchema":%s}}`+"\n", exactForm)
		case len(req.ID) > 0:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", req.ID, orError(result))
		}
	}
}

func orError(result string) string {
	if result == "" {
		return "{}"
	}
	return result
}

// TestNumbersKeepTheirDigits: models get the numbers of structured content and of schemas as the server wrote them,
// over each transport.
func TestNumbersKeepTheirDigits(t *testing.T) {
	for _, over := range []string{"stdio", "json", "events"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			c := program("exact")
			if over != "stdio" {
				_, c = serve(t, func(*testing.T) http.Handler { return exactOverHTTP(over == "events") })
			}
			get := find(t, start(t, c), "get")
			if got := string(get.Spec().Parameters); got != exactSchema {
				t.Errorf("schema %s", got)
			}
			r, err := get.Call(t.Context(), json.RawMessage(`{}`), "k")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"id":9007199254740993`, `[18446744073709551615,-9007199254740995,0.1234567890123456789]`, `"name":"a 12345678901234567890, \"{"`, `"n":1`} {
				if !strings.Contains(r.GetText(), want) {
					t.Errorf("result %s, want %s", r.GetText(), want)
				}
			}
		})
	}
}

// exactOverHTTP is the server exact over HTTP.
func exactOverHTTP(events bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&req) != nil || len(req.ID) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		body := fmt.Sprintf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", req.ID, orError(exactAnswer(req.Method, req.Params.Name)))
		if events {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "event: message\nid: 12345678901234567890\ndata: %s\n\n", body)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, body)
	})
}

// TestPatternsThatGoCannotRead: a question whose schema has one is asked, the rest of the schema is checked, and the
// answer arrives with its digits.
func TestPatternsThatGoCannotRead(t *testing.T) {
	t.Parallel()
	c := program("exact")
	c.Elicit = &mcp.Elicit{}
	p := begin(t, start(t, c), "ask")
	q := p.asks().Question
	if _, err := forms.ReadToolAnswer(q, agent.NewMessage(`{"word":"a"}`)); err == nil {
		t.Error("a word that is too short is accepted")
	}
	p.answer(`{"word":"abc1"}`)
	r, _, err := p.next()
	if err != nil || !strings.Contains(r.GetText(), `"action":"accept"`) || !strings.Contains(r.GetText(), "9007199254740993") || !strings.Contains(r.GetText(), "abc1") {
		t.Errorf("%v %v", r, err)
	}
}
