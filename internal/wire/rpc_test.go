package wire

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
)

func TestParseRPCResponse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":[1,{"b":"}]\",:"}],"c":{}}}`,
		` { "result" : "text, with : and }" , "id" : "x\"y" , "jsonrpc":"2.0" } ` + "\n",
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":[{"@type":"t"}]}}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":null}`,
		`{"id":1,"id":2,"result":[],"\u0072esult":[1]}`,
		`{}`,
	} {
		var want RPCResponse
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := ParseRPCResponse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if g, w := render(t, got), render(t, want); g != w {
			t.Errorf("%s: got %s, want %s", text, g, w)
		}
	}
	for _, text := range []string{
		``, ` `, `null`, `1`, `[]`, `[{"id":1}]`, `{`, `{"id":1`, `{"id":1,"result":{"a":1}`, `{"id":1}}`, `"{"`, `{"id":1}x`,
		`{"jsonrpc":2,"id":1}`, `{"error":"no"}`, `{"a\x":1}`, `{"` + strings.Repeat(`a":1,"b`, 3), `{` + manyMembers() + `}`,
	} {
		if got, err := ParseRPCResponse([]byte(text)); err == nil {
			t.Errorf("%.80q is read as %s", text, render(t, got))
		}
	}
}

func render(t *testing.T, r RPCResponse) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// manyMembers returns more members than an envelope may have.
func manyMembers() string {
	var all []string
	for i := range maxMembers + 1 {
		all = append(all, `"`+strings.Repeat("a", i)+`":1`)
	}
	return strings.Join(all, ",")
}

func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a", inflight.LargeSize)
	for range runtime.NumCPU() + 1 { // a turn that does not end blocks the next ones
		if err := Unmarshal([]byte(`{"no":"`+text+`"`), &a2av1.Message{}); err == nil {
			t.Error("a message that ends early is read")
		}
		m := &a2av1.Message{}
		if err := Unmarshal([]byte(`{"parts":[{"text":"`+text+`"}]}`), m); err != nil {
			t.Fatal(err)
		}
		if b, err := Marshal(m); err != nil || len(b) < inflight.LargeSize {
			t.Error(len(b), err)
		}
		_, _ = ParseRPC([]byte(`["` + text + `"]`))
		if r, err := ParseRPCResponse([]byte(`{"result":"` + text + `"}`)); err != nil || len(r.Result) < inflight.LargeSize {
			t.Error(len(r.Result), err)
		}
	}
}
