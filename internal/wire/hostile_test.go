package wire_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// TestA_12_AnswersThatHoldTooMuch: an answer of another server that is small as a text and
// holds many values is rejected without building them.
func TestA_12_AnswersThatHoldTooMuch(t *testing.T) {
	const many = 1 << 18
	details := "[" + strings.Repeat("{},", many) + `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"LATE"}]`
	var st *status.Status
	for name, read := range map[string]func(){
		"details over REST": func() {
			st = wire.ParseRESTError(500, []byte(`{"error":{"code":500,"status":"INTERNAL","message":"x","details":`+details+`}}`))
		},
		"details over JSON-RPC": func() {
			st = wire.ParseRPCError(&wire.RPCError{Code: -32603, Message: "x", Data: []byte(details)})
		},
		"values": func() {
			st = nil
			if wire.UnmarshalAnswer([]byte(`{"metadata":{"x":[`+strings.Repeat("0,", many)+`0]}}`), &a2av1.Task{}) == nil {
				t.Error("the answer was read")
			}
		},
	} {
		if n := testing.AllocsPerRun(1, read); n > 10_000 {
			t.Errorf("%s: %.0f allocations", name, n)
		}
		if st != nil && (st.Message() != "x" || len(st.Details()) > 100) {
			t.Errorf("%s: %d details of %v", name, len(st.Details()), st.Err())
		}
	}
}
