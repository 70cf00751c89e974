package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

func FuzzP17_ParseRPC(f *testing.F) {
	for _, s := range []string{`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, `[]`, `{"id":"\u00e9"}`, `null`, ``, `{"jsonrpc":"2.0","id":-1.5e3,"method":"m"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, fault := ParseRPC(b)
		if out := RPCResult(req.ID, json.RawMessage("{}")); !json.Valid(out) {
			t.Fatalf("%q: %q", b, out)
		}
		if out, err := RPCFailure(req.ID, RPCErrorOf(status.New(codes.Internal, ""))); err != nil || !json.Valid(out) {
			t.Fatalf("the id %q cannot be sent back: %v", req.ID, err)
		}
		if fault == nil && (req.Method == "" || !json.Valid(req.Params)) {
			t.Fatalf("accepted %q", b)
		}
	})
}

func FuzzP17_Unmarshal(f *testing.F) {
	for _, s := range []string{`{"message":{"role":"ROLE_USER","parts":[{"data":[1,{"a":null}]}]}}`, `{"message":{"role":"x"},"a":1}`, `[[`, `{"configuration":{"historyLength":-1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &a2av1.SendMessageRequest{}
		if Unmarshal(b, m) != nil || Check(m) != nil {
			return
		}
		again, err := Marshal(m)
		if err != nil {
			t.Fatalf("%q was accepted and cannot be rendered: %v", b, err)
		}
		n := &a2av1.SendMessageRequest{}
		if err := Unmarshal(again, n); err != nil || !proto.Equal(m, n) {
			t.Fatalf("%q became %q: %v", b, again, err)
		}
	})
}

func FuzzP17_UnmarshalProto(f *testing.F) {
	b, err := proto.Marshal(&a2av1.SendMessageRequest{Tenant: "t", Message: &a2av1.Message{Role: 1, Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: structpb.NewNumberValue(1)}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &a2av1.SendMessageRequest{}
		if UnmarshalProto(b, m) != nil || Check(m) != nil {
			return
		}
		if _, err := Marshal(m); err != nil {
			t.Fatalf("%x was accepted and cannot be rendered: %v", b, err)
		}
	})
}

func FuzzP17_Errors(f *testing.F) {
	f.Add(404, []byte(`{"error":{"code":404,"status":"NOT_FOUND","message":"m","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"R"}]}}`))
	f.Add(-32001, []byte(`[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1s"}]`))
	f.Fuzz(func(t *testing.T, code int, b []byte) {
		for _, st := range []*status.Status{ParseRESTError(code, b), ParseRPCError(&RPCError{Code: code, Data: b})} {
			if err := Error(st); err == nil && st.Code() != codes.OK {
				t.Fatalf("%v is no error", st)
			}
			if _, err := RESTError(st, HTTPStatus(st)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzP17_ReadEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {}\n\n: c\n\nevent: e\r\ndata: a\rdata: b\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for e, err := range ReadEvents(bytes.NewReader(b)) {
			if err == nil && len(e.Data) == 0 {
				t.Fatal("an event without data")
			}
		}
	})
}
