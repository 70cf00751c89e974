package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file in testdata, as indented JSON.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, got, "", "  "); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	indented.WriteByte('\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, indented.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), indented.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestA_01_Marshal(t *testing.T) {
	for name, m := range map[string]proto.Message{
		"list_empty": &a2av1.ListTasksResponse{},
		"list":       &a2av1.ListTasksResponse{Tasks: []*a2av1.Task{{Id: "t", Status: &a2av1.TaskStatus{State: 1}}}, PageSize: 50, TotalSize: 1},
		"card_empty": &a2av1.AgentCard{},
		"card": &a2av1.AgentCard{
			Name: "n", Capabilities: &a2av1.AgentCapabilities{Streaming: proto.Bool(false)},
			SupportedInterfaces: []*a2av1.AgentInterface{{Url: "u"}}, Skills: []*a2av1.AgentSkill{{Id: "s"}}, DocumentationUrl: proto.String(""),
			SecuritySchemes: map[string]*a2av1.SecurityScheme{"k": {Scheme: &a2av1.SecurityScheme_HttpAuthSecurityScheme{
				HttpAuthSecurityScheme: &a2av1.HTTPAuthSecurityScheme{Description: "d"},
			}}},
		},
		"task": &a2av1.Task{Id: "t"},
	} {
		b, err := Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		if bytes.ContainsAny(b, "\r\n") {
			t.Errorf("%s has more than one line", name)
		}
	}
}

func TestA_04_Unmarshal(t *testing.T) {
	for _, c := range []struct{ name, in, field string }{
		{"fields of later versions", `{"later":{"role":"user"},"message":{"role":"ROLE_USER","kind":"message"}}`, "-"},
		{"snake case", `{"message":{"message_id":"m"}}`, "-"},
		{"null", `{"message":null}`, "-"},
		{"an enum of another version", `{"message":{"role":"user"},"later":1}`, "message.role"},
		{"a known field of another type", `{"message":"x"}`, "message"},
		{"twice the same field", `{"tenant":"a","tenant":"b"}`, ""},
		{"text behind", `{} {}`, ""},
	} {
		err := Unmarshal([]byte(c.in), &a2av1.SendMessageRequest{})
		var e *agent.Error
		switch {
		case c.field == "-" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.field != "-" && (!errors.As(err, &e) || e.Reason != agent.ReasonInvalidRequest || named(e) != c.field):
			t.Errorf("%s: %v", c.name, err)
		case e != nil && strings.Contains(e.Message, "proto:"):
			t.Errorf("%s: %s", c.name, e.Message)
		}
	}
}

// TestA_22_OwnWordsForFaults has every fault that the decoders find said in our
// words, and in theirs none.
func TestA_22_OwnWordsForFaults(t *testing.T) {
	for in, want := range map[string]string{
		``:                            "the request is not JSON: it ends early, after 0 bytes",
		`{"message":`:                 "the request is not JSON: it ends early, after 11 bytes",
		`{"tenant":"a`:                "the request is not JSON: it ends early, after 12 bytes",
		"\xef\xbb\xbf{}":              "the request is not JSON, at byte 1",
		`{"tenant":x`:                 "the request is not JSON, at byte 11",
		`{} {}`:                       "the request is not JSON, at byte 4",
		"{\"tenant\":\"\xff\"}":       "the request is not UTF-8, at byte 12",
		`[]`:                          "the request must be an object",
		`{"tenant":"a","tenant":1}`:   "tenant must be a string",
		`{"tenant":"a","tenant":"b"}`: `the request has "tenant" twice, at line 1, column 15`,
		`{"metadata":{"a":1,"a":2}}`:  `the request has "a" twice, at line 1, column 20`,
		`{"` + strings.Repeat("k", 200) + `":1,"tenant":"a","tenant":"b"}`: `the request has "tenant" twice, at line 1, column 220`,
		`{"message":{"messageId":"a","message_id":"b"}}`:                   "message.messageId is duplicated",
		`{"message":{"parts":[{"text":"a"},{"url":"b","raw":""}]}}`:        "message.parts[1] has more than one of text, raw, url, data",
		`{"message":{"parts":[{"text":"a","data":null}]}}`:                 "message.parts[0] has more than one of text, raw, url, data",
		`{"message":{"parts":[null]}}`:                                     "message.parts[0] must be an object",
		`{"message":{"parts":[{"raw":7}]}}`:                                "message.parts[0].raw must be a base64 string",
		`{"message":{"parts":[{"raw":"!"}]}}`:                              "message.parts[0].raw must be a base64 string",
		`{"message":{"metadata":[]}}`:                                      "message.metadata must be an object",
		`{"message":{"role":true}}`:                                        "message.role must be one of ROLE_USER, ROLE_AGENT",
		`{"message":{"extensions":"x"}}`:                                   "message.extensions must be an array",
		`{"configuration":{"historyLength":{}}}`:                           "configuration.historyLength must be a number",
		`{"configuration":{"returnImmediately":"yes"}}`:                    "configuration.returnImmediately must be true or false",
	} {
		err := Unmarshal([]byte(in), &a2av1.SendMessageRequest{})
		var e *agent.Error
		if !errors.As(err, &e) || e.Reason != agent.ReasonInvalidRequest || e.Message != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	for in, want := range map[string]string{
		`{"statusTimestampAfter":5}`:                      "statusTimestampAfter must be a time such as 2006-01-02T15:04:05Z",
		`{"statusTimestampAfter":"yesterday"}`:            "statusTimestampAfter must be a time such as 2006-01-02T15:04:05Z",
		`{"pageSize":"many"}`:                             "pageSize must be a number",
		`{"pageSize":1e99}`:                               "pageSize must be a whole number of 32 bits",
		`{"pageSize":1.5}`:                                "pageSize must be a whole number of 32 bits",
		`{"pageSize":"2147483648"}`:                       "pageSize must be a whole number of 32 bits",
		`{"statusTimestampAfter":"0000-12-31T00:00:00Z"}`: "statusTimestampAfter must be a time such as 2006-01-02T15:04:05Z",
	} {
		err := Unmarshal([]byte(in), &a2av1.ListTasksRequest{})
		var e *agent.Error
		if !errors.As(err, &e) || e.Message != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

// TestA_22_FirstUnknownEnum names the first field by name, even where another fault comes before it.
func TestA_22_FirstUnknownEnum(t *testing.T) {
	const in = `{"artifacts":1,"status":{"state":"x"},"history":[{"role":"y"}],"later":1}`
	for range 20 {
		err := Unmarshal([]byte(in), &a2av1.Task{})
		var e *agent.Error
		if want := `history[0].role must be one of ROLE_USER, ROLE_AGENT, not "y"`; !errors.As(err, &e) || e.Message != want {
			t.Fatalf("%v, want %s", err, want)
		}
	}
}

// TestA_22_DurationsInOurWords names the field of a time that is none, and how one is written.
func TestA_22_DurationsInOurWords(t *testing.T) {
	for _, in := range []string{`"10"`, `"5m"`, `""`, `"99999999999999s"`, `5`, `{}`, `"1.2.3s"`} {
		err := Unmarshal([]byte(`{"constraints":{"maxDuration":`+in+`}}`), &teamv1.StartCollaborationRequest{})
		var e *agent.Error
		if want := "constraints.maxDuration must be seconds such as 600s"; !errors.As(err, &e) || e.Message != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	for _, in := range []string{`"600s"`, `"0.5s"`, `"-1s"`, `null`} {
		if err := Unmarshal([]byte(`{"constraints":{"maxDuration":`+in+`}}`), &teamv1.StartCollaborationRequest{}); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestA_22_EnvelopeFaultsHaveAReason(t *testing.T) {
	for in, code := range map[string]int{
		`{`: RPCParse, ``: RPCParse, "\xef\xbb\xbf{}": RPCParse, `[]`: RPCInvalidRequest, `null`: RPCInvalidRequest,
		`{"jsonrpc":"1"}`: RPCInvalidRequest, `{"jsonrpc":"2.0","id":[]}`: RPCInvalidRequest, `{"jsonrpc":"2.0"}`: RPCInvalidRequest,
		`{"jsonrpc":"2.0","method":"m","params":[]}`: RPCInvalidParams, strings.Repeat("[", 99): RPCInvalidRequest,
	} {
		_, fault := ParseRPC([]byte(in))
		if fault == nil || fault.Code != code {
			t.Errorf("%.20s: %+v, want %d", in, fault, code)
			continue
		}
		if info := InfoOf(ParseRPCError(fault)); info.GetReason() != agent.ReasonInvalidRequest || info.GetDomain() != DomainTeam {
			t.Errorf("%.20s: %s", in, fault.Data)
		}
		for _, word := range []string{"invalid character", "unexpected", "looking for"} {
			if strings.Contains(fault.Message, word) {
				t.Errorf("%.20s: %s", in, fault.Message)
			}
		}
	}
}

// TestA_22_IDThatIsNotUTF8: an answer must be UTF-8, so it does not repeat such an id.
func TestA_22_IDThatIsNotUTF8(t *testing.T) {
	req, fault := ParseRPC([]byte("{\"jsonrpc\":\"2.0\",\"id\":\"a\xff\",\"method\":\"GetTask\"}"))
	if fault == nil || fault.Code != RPCParse || string(req.ID) != "null" || fault.Message != "the request is not UTF-8, at byte 25" {
		t.Errorf("id %q, %+v", req.ID, fault)
	}
}

func named(e *agent.Error) string {
	if len(e.Violations) == 0 {
		return ""
	}
	return e.Violations[0].Field
}

// TestA_01_T_32_DepthIsTheSame: what JSON may nest, the binary form may, and not more.

func TestA_01_T_32_DepthIsTheSame(t *testing.T) {
	nested := func(n int, object bool) *a2av1.SendMessageRequest {
		v := structpb.NewStringValue("x")
		for range n {
			if object {
				v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"k": v}})
			} else {
				v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
			}
		}
		return &a2av1.SendMessageRequest{Message: &a2av1.Message{Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: v}}}}}
	}
	for _, object := range []bool{false, true} {
		for n := 1; n < 80; n++ {
			m := nested(n, object)
			asJSON, _ := Marshal(m)
			asProto, _ := proto.Marshal(m)
			ok := Check(m) == nil
			j := Unmarshal(asJSON, &a2av1.SendMessageRequest{})
			p := UnmarshalProto(asProto, &a2av1.SendMessageRequest{})
			if ok && (j != nil || p != nil) {
				t.Fatalf("%d levels pass the check, but: %v, %v", n, j, p)
			}
			most := 48
			if object {
				most = 32
			}
			if want := n <= most; ok != want {
				t.Fatalf("%d levels: %v, want %v", n, ok, want)
			}
		}
	}
}

// TestT_33_AcceptedRoundTrips: what passes the check survives all encodings.

func TestT_33_AcceptedRoundTrips(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) *structpb.Value {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return &structpb.Value{}
		case 1:
			return structpb.NewNullValue()
		case 2:
			n := rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN()), rapid.Just(math.Inf(-1))).Draw(t, "number")
			return structpb.NewNumberValue(n)
		case 3:
			return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{rapid.String().Draw(t, "key"): structpb.NewBoolValue(true)}})
		}
		return structpb.NewStringValue(rapid.String().Draw(t, "text"))
	})
	rapid.Check(t, func(t *rapid.T) {
		m := &a2av1.Message{
			Role:  a2av1.Role(rapid.Int32Range(-1, 4).Draw(t, "role")),
			Parts: []*a2av1.Part{{Content: &a2av1.Part_Data{Data: value.Draw(t, "value")}}},
		}
		if Check(m) != nil {
			return
		}
		asJSON, err := Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		asProto, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		a, b := &a2av1.Message{}, &a2av1.Message{}
		if err := errors.Join(Unmarshal(asJSON, a), UnmarshalProto(asProto, b)); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(m, a) || !proto.Equal(m, b) {
			t.Fatalf("%v became %v and %v", m, a, b)
		}
	})
}

func BenchmarkScanJSON(b *testing.B) {
	text := []byte(`{"message":{"parts":[{"text":"` + strings.Repeat("x", 4<<20-64) + `"}]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := ScanJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	text := []byte(`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"Write about tides"}]}}`)
	b.ReportAllocs()
	for b.Loop() {
		m := &a2av1.SendMessageRequest{}
		if err := Unmarshal(text, m); err != nil {
			b.Fatal(err)
		}
		if err := Check(m); err != nil {
			b.Fatal(err)
		}
	}
}
