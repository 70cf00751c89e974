package tests

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// edges are values that encodings are known to lose.
var (
	edgeNumbers = []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e300, -1e-300, 5e-324, math.MaxFloat64, 1 << 53, 1<<53 + 2, 1e21, 1e-7, math.Pi}
	edgeTexts   = []string{
		"", " ", "\x00", "\"\\/\b\f\n\r\t", "ä", "日本語", "😀👩‍👩‍👧", "e\u0301", "\u2028\u2029", "\ufeff", "\ufffd", "\U0010ffff", "<script>&amp;</script>", "null", "a\r\nb",
	}
)

func someText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(edgeTexts), rapid.String())
}

func someNumber() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.SampledFrom(edgeNumbers), rapid.Float64())
}

// someValue is a value that nests so deep at most.
func someValue(depth int) *rapid.Generator[*structpb.Value] {
	return rapid.Custom(func(t *rapid.T) *structpb.Value {
		kinds := []string{"null", "bool", "number", "text"}
		if depth > 0 {
			kinds = append(kinds, "list", "object", "object")
		}
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "bool":
			return structpb.NewBoolValue(rapid.Bool().Draw(t, "bool"))
		case "number":
			return structpb.NewNumberValue(someNumber().Draw(t, "number"))
		case "text":
			return structpb.NewStringValue(someText().Draw(t, "text"))
		case "list":
			return structpb.NewListValue(&structpb.ListValue{Values: rapid.SliceOfN(someValue(depth-1), 0, 4).Draw(t, "list")})
		case "object":
			return structpb.NewStructValue(someObject(depth-1).Draw(t, "object"))
		}
		return structpb.NewNullValue()
	})
}

func someObject(depth int) *rapid.Generator[*structpb.Struct] {
	return rapid.Custom(func(t *rapid.T) *structpb.Struct {
		fields := rapid.MapOfN(someText(), someValue(depth), 0, 4).Draw(t, "fields")
		if len(fields) == 0 {
			fields = nil // as it is read
		}
		return &structpb.Struct{Fields: fields}
	})
}

// perhaps is metadata that may be none, which is not the same as empty.
func perhaps() *rapid.Generator[*structpb.Struct] {
	return rapid.Custom(func(t *rapid.T) *structpb.Struct {
		if rapid.Bool().Draw(t, "has") {
			return someObject(2).Draw(t, "metadata")
		}
		return nil
	})
}

func somePart() *rapid.Generator[*a2av1.Part] {
	return rapid.Custom(func(t *rapid.T) *a2av1.Part {
		p := &a2av1.Part{
			Metadata: perhaps().Draw(t, "metadata"), Filename: someText().Draw(t, "filename"),
			MediaType: rapid.SampledFrom([]string{"", "text/plain", "text/plain; charset=utf-8", "image/png", "application/vnd.x+json", "Ünknown"}).Draw(t, "media type"),
		}
		switch rapid.SampledFrom([]string{"text", "raw", "url", "data", "data"}).Draw(t, "content") {
		case "text":
			p.Content = &a2av1.Part_Text{Text: someText().Draw(t, "text")}
		case "raw":
			p.Content = &a2av1.Part_Raw{Raw: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "raw")}
		case "url":
			p.Content = &a2av1.Part_Url{Url: someText().Draw(t, "url")}
		default:
			p.Content = &a2av1.Part_Data{Data: someValue(4).Draw(t, "data")}
		}
		return p
	})
}

// someMessage is whatever a client may send.
func someMessage(id string, references []string) *rapid.Generator[*a2av1.Message] {
	return rapid.Custom(func(t *rapid.T) *a2av1.Message {
		m := &a2av1.Message{
			MessageId: id, Role: a2av1.Role_ROLE_USER, Metadata: perhaps().Draw(t, "metadata"),
			Parts:      append(rapid.SliceOfN(somePart(), 0, 5).Draw(t, "parts"), agent.TextParts(".")...),
			Extensions: rapid.SliceOfN(someText(), 0, 3).Draw(t, "extensions"),
			ContextId:  rapid.SampledFrom([]string{"", "c-1", "~._-"}).Draw(t, "context"),
		}
		if len(references) > 0 {
			m.ReferenceTaskIds = rapid.SliceOfN(rapid.SampledFrom(references), 0, 3).Draw(t, "references")
		}
		return m
	})
}

// mirror answers with what it is sent: as a task, or directly.
func mirror(id string, direct bool) agent.Agent {
	return &agent.Func{ID: id, MayReplyDirectly: direct, Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: m.GetParts(), Metadata: m.GetMetadata(), Extensions: m.GetExtensions()}, nil
	}}
}

// voyage is a server whose tasks are read over every binding.
type voyage struct {
	clients []rig.Client
	tasks   map[string]*a2av1.Task // as they came back first
	ids     []string
}

// exactly wants two messages to be the same to the last byte: -0 is not 0, and a
// text that is not there is none that is empty.
func exactly(what string, want, got proto.Message) error {
	o := proto.MarshalOptions{Deterministic: true}
	a, err1 := o.Marshal(want)
	b, err2 := o.Marshal(got)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if !slices.Equal(a, b) {
		return fmt.Errorf("%s: got\n%.2000q\nwant\n%.2000q", what, b, a)
	}
	return nil
}

// sends sends a message over one binding, streamed or not, and reads it over all.
func (v *voyage) sends(ctx context.Context, c rig.Client, m *a2av1.Message, streamed bool) error {
	req := &a2av1.SendMessageRequest{Tenant: "mirror", Message: m}
	id, err := sentBy(ctx, c, req, streamed)
	if err != nil {
		return err
	}
	want := proto.CloneOf(m)
	for i, c := range v.clients {
		task, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: id})
		if err != nil {
			return fmt.Errorf("get over %s: %w", c.Binding(), err)
		}
		if i == 0 {
			want.TaskId, want.ContextId = task.GetId(), task.GetContextId()
			if m.GetContextId() != "" && task.GetContextId() != m.GetContextId() {
				return fmt.Errorf("the context %q became %q", m.GetContextId(), task.GetContextId())
			}
			if len(task.GetHistory()) == 0 || len(task.GetArtifacts()) != 1 {
				return fmt.Errorf("the task is %v", task)
			}
			v.tasks[id] = task
			v.ids = append(v.ids, id)
		}
		sent := &a2av1.Message{Parts: m.GetParts()}
		answered := &a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}
		for _, err := range []error{
			exactly("the message over "+c.Binding(), want, task.GetHistory()[0]), exactly("the answer over "+c.Binding(), sent, answered), exactly("the task over "+c.Binding(), v.tasks[id], task),
		} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sentBy sends and returns the task's id.
func sentBy(ctx context.Context, c rig.Client, req *a2av1.SendMessageRequest, streamed bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if !streamed {
		resp, err := c.Send(ctx, req)
		return resp.GetTask().GetId(), err
	}
	updates, err := rig.Collect(c.Stream(ctx, req))
	if err != nil {
		return "", err
	}
	id := updates[0].GetTask().GetId()
	for _, u := range updates {
		if a := u.GetArtifactUpdate().GetArtifact(); a != nil {
			err = exactly("the answer in the stream", &a2av1.Message{Parts: req.GetMessage().GetParts()}, &a2av1.Message{Parts: a.GetParts()})
		}
	}
	return id, err
}

// again reads all tasks over all bindings: each is what it was. With the race detector each
// is read over one binding and listed over all.
func (v *voyage) again(t *testing.T, clients []rig.Client) {
	t.Helper()
	listed := map[string]*a2av1.Task{}
	for i, c := range clients {
		for j, id := range v.ids {
			if !sample.All() && j%len(clients) != i {
				continue
			}
			task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			if err := exactly("after a restart over "+c.Binding(), v.tasks[id], task); err != nil {
				t.Fatal(err)
			}
		}
		req := &a2av1.ListTasksRequest{IncludeArtifacts: proto.Bool(true)}
		for {
			page, err := c.List(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, task := range page.GetTasks() {
				listed[task.GetId()] = task
			}
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		for _, id := range v.ids {
			if err := exactly("listed over "+c.Binding(), v.tasks[id], listed[id]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestA_01_RoundTrip: what is accepted over one binding is read over all of them
// as it was sent, also by another process.
func TestA_01_RoundTrip(t *testing.T) {
	sample.Checks(t, 60)
	at := rig.SQLite(t)
	m := rig.Manager(t, mirror("mirror", false), mirror("direct", true))
	l := live(t, at, m)
	v := &voyage{clients: l.clients, tasks: map[string]*a2av1.Task{}}
	n := 0
	next := func() string { n++; return fmt.Sprint("m-", n) }
	t.Run("A-01 C-17 edges", func(t *testing.T) {
		for name, p := range edgeParts() {
			t.Run(name, func(t *testing.T) {
				for _, c := range sample.Of(t, l.clients) {
					msg := &a2av1.Message{MessageId: next(), Role: a2av1.Role_ROLE_USER, Parts: append([]*a2av1.Part{p}, agent.TextParts(".")...)}
					if err := v.sends(t.Context(), c, msg, n%2 == 0); err != nil {
						t.Errorf("over %s: %.2000v", c.Binding(), err)
					}
				}
			})
		}
	})
	t.Run("A-01 any message", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			msg := someMessage(next(), v.ids).Draw(rt, "message")
			c := rapid.SampledFrom(l.clients).Draw(rt, "binding")
			if err := v.sends(t.Context(), c, msg, rapid.Bool().Draw(rt, "streamed")); err != nil {
				rt.Fatalf("sent over %s: %v", c.Binding(), err)
			}
			for _, c := range l.clients { // and as a direct answer
				msg.MessageId, msg.ReferenceTaskIds = next(), nil
				resp, err := c.Send(t.Context(), &a2av1.SendMessageRequest{Tenant: "direct", Message: msg})
				if err != nil {
					rt.Fatalf("sent over %s: %v", c.Binding(), err)
				}
				want := &a2av1.Message{Parts: msg.GetParts(), Metadata: msg.GetMetadata(), Extensions: msg.GetExtensions()}
				got := &a2av1.Message{Parts: resp.GetMessage().GetParts(), Metadata: resp.GetMessage().GetMetadata(), Extensions: resp.GetMessage().GetExtensions()}
				if err := exactly("the direct answer over "+c.Binding(), want, got); err != nil {
					rt.Fatal(err)
				}
			}
		})
	})
	l.stop()
	l.close()
	t.Run("A-01 A-13 after a restart", func(t *testing.T) { v.again(t, live(t, at, m).clients) })
	t.Logf("%d tasks, each read over 3 bindings, before and after a restart", len(v.ids))
}

// edgeParts are parts of each kind at its edges.
func edgeParts() map[string]*a2av1.Part {
	parts := map[string]*a2av1.Part{
		"no bytes":          {Content: &a2av1.Part_Raw{}},
		"every byte":        {Content: &a2av1.Part_Raw{Raw: allBytes()}, MediaType: "application/octet-stream", Filename: "bytes.bin"},
		"a mebibyte":        {Content: &a2av1.Part_Raw{Raw: []byte(strings.Repeat("\x00\xff", 1<<19))}},
		"a long text":       {Content: &a2av1.Part_Text{Text: strings.Repeat("tide 😀 ", 1<<14)}},
		"an empty URL":      {Content: &a2av1.Part_Url{}},
		"a URL":             {Content: &a2av1.Part_Url{Url: "https://example.com/a?b=c&d=%20#e"}},
		"empty metadata":    {Content: &a2av1.Part_Text{Text: "x"}, Metadata: &structpb.Struct{}},
		"null":              {Content: &a2av1.Part_Data{Data: structpb.NewNullValue()}},
		"an empty object":   {Content: &a2av1.Part_Data{Data: structpb.NewStructValue(&structpb.Struct{})}},
		"an empty list":     {Content: &a2av1.Part_Data{Data: structpb.NewListValue(&structpb.ListValue{})}},
		"nested":            {Content: &a2av1.Part_Data{Data: nestedLists(48)}},
		"an empty key":      {Content: &a2av1.Part_Data{Data: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"": structpb.NewNullValue()}})}},
		"a key of a oneof":  {Content: &a2av1.Part_Data{Data: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"text": structpb.NewStringValue("x"), "@type": structpb.NewStringValue("y")}})}},
		"a list of nothing": {Content: &a2av1.Part_Data{Data: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNullValue(), structpb.NewNullValue()}})}},
	}
	for _, n := range edgeNumbers {
		parts[fmt.Sprint("number ", n, math.Signbit(n))] = &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewNumberValue(n)}}
	}
	for _, s := range edgeTexts {
		parts[fmt.Sprintf("text %q", s)] = &a2av1.Part{Content: &a2av1.Part_Text{Text: s}, Filename: s}
	}
	return parts
}

func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// nestedLists is a value in so many lists.
func nestedLists(levels int) *structpb.Value {
	v := structpb.NewNullValue()
	for range levels {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	return v
}

// TestA_01_RoundTripOfEscapes: pairs of escapes are one character over both
// bindings that take JSON, and half a pair is refused.
func TestA_01_RoundTripOfEscapes(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, mirror("mirror", false))})
	clients := rig.Clients(t, target)
	n := 0
	post := func(t *testing.T, text string, resp proto.Message) []error {
		t.Helper()
		n++
		var errs []error
		for binding, read := range map[string]func(*rig.Answer, proto.Message) error{"/message:send": (*rig.Answer).Read, "/rpc": rig.RPCAnswer} {
			body := fmt.Sprintf(`{"tenant":"mirror","message":{"messageId":"m-%d-%s","role":"ROLE_USER","parts":[{"text":"%s"},{"text":"."}]}}`, n, binding[1:4], text)
			if binding == "/rpc" {
				body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":%s}`, body)
			}
			a, err := target.Do(t.Context(), http.MethodPost, binding, []byte(body), map[string]string{"Content-Type": wire.TypeJSON})
			if err != nil {
				t.Fatal(err)
			}
			errs = append(errs, read(a, resp))
		}
		return errs
	}
	for escaped, want := range map[string]string{`\ud83d\ude00`: "😀", `\u0000`: "\x00", `\u00e4`: "ä", `\/`: "/", `\uFEFF`: "\ufeff", "\u2028": "\u2028"} {
		resp := &a2av1.SendMessageResponse{}
		for _, err := range post(t, escaped, resp) {
			if err != nil {
				t.Fatalf("%s: %v", escaped, err)
			}
		}
		for _, c := range clients {
			task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()})
			if err != nil || task.GetHistory()[0].GetParts()[0].GetText() != want {
				t.Errorf("%s over %s: %v, %v", escaped, c.Binding(), task, err)
			}
		}
	}
	for _, broken := range []string{`\ud83d`, `\ude00\ud83d`, "\xff", "\xed\xa0\xbd", `\x`} {
		for _, err := range post(t, broken, &emptypb.Empty{}) {
			f := rig.Fault(err)
			if f == nil || f.Code != "InvalidArgument" || f.Reason != agent.ReasonInvalidRequest {
				t.Errorf("%q: %+v", broken, f)
			}
		}
	}
}
