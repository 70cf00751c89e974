package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestT_26_TextIsNotRun: what members and callers say in the notations of templates, shells and
// configuration files is passed on and answered as it is.
func TestT_26_TextIsNotRun(t *testing.T) {
	t.Parallel()
	const hostile = "{{input}} {{steps.one.text}} {{.Env}} {% raw %} $(id) `id` ${HOME} ${SECRET} !!python/object &a *a <% 1 %> #{1}"
	llm := fakellm.New(t)
	llm.Answer("m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: hostile} })
	target, _ := fromFile(t, rig.Memory(t), `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}", api_key: k}}
agents:
  one: {model: m, instructions: Write.}
  two: {scripted: {steps: [{text: "two: {{input}}"}]}}
teams:
  flow: {members: [{agent: one}, {agent: two}], workflow: {steps: [{id: one, agent: one}, {id: two, agent: two, after: [one], task: "{{input}} and {{steps.one.text}}"}]}}
`, map[string]string{"LLM": llm.URL, "SECRET": "canary"}, llm)
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		resp, err := c.Send(t.Context(), rig.Text("flow", "m-"+c.Binding(), hostile))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := agent.Text(&a2av1.Message{Parts: resp.GetTask().GetArtifacts()[0].GetParts()}), "two: "+hostile+" and "+hostile; got != want {
			t.Errorf("the answer is\n%s, want\n%s", got, want)
		}
	})
	for _, r := range llm.Requests("m") {
		if r.Last() != hostile || strings.Contains(r.System, "id`") {
			t.Errorf("the model was given %q, with the instructions %q", r.Last(), r.System)
		}
	}
}

// TestT_34_DuplicateKeys: a JSON document in which a key is repeated has two meanings, and is refused
// wherever the key is. Keys that name types are data.
func TestT_34_DuplicateKeys(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo"))})
	const message = `"messageId":"m%d","role":"ROLE_USER","parts":[%s]%s`
	text := `{"text":"hi"}`
	bodies := []string{
		`{"message":{` + fmt.Sprintf(message, 1, text, "") + `},"message":{` + fmt.Sprintf(message, 2, text, "") + `}}`,
		`{"message":{` + fmt.Sprintf(message, 3, text, `,"messageId":"m4"`) + `}}`,
		`{"message":{` + fmt.Sprintf(message, 5, `{"text":"hi","text":"ho"}`, "") + `}}`,
		`{"message":{` + fmt.Sprintf(message, 6, `{"text":"hi","data":{}}`, "") + `}}`,
		`{"message":{` + fmt.Sprintf(message, 7, `{"data":{"a":1,"a":2}}`, "") + `}}`,
		`{"message":{` + fmt.Sprintf(message, 8, text, `,"metadata":{"k":{"a":1,"a":2}}`) + `}}`,
		`{"message":{` + fmt.Sprintf(message, 9, text, `,"message_id":"m10"`) + `}}`,
	}
	post := func(path, body string) (int, string) {
		resp, err := target.Do(t.Context(), http.MethodPost, path, []byte(body), map[string]string{"Content-Type": "application/json", "A2A-Version": "1.0"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := resp.Body()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status, string(b)
	}
	for _, body := range bodies {
		if code, got := post("/echo/message:send", body); code != http.StatusBadRequest || !strings.Contains(got, "INVALID_ARGUMENT") {
			t.Errorf("REST, %s: %d %s", body, code, got)
		}
		if _, got := post("/echo", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":`+body+`}`); !strings.Contains(got, `"code":-32602`) && !strings.Contains(got, `"code":-32700`) {
			t.Errorf("JSON-RPC, %s: %s", body, got)
		}
	}
	if _, got := post("/echo", `{"jsonrpc":"2.0","id":1,"id":2,"method":"SendMessage","params":{"message":{`+fmt.Sprintf(message, 11, text, "")+`}}}`); !strings.Contains(got, `"code":-32`) {
		t.Errorf("JSON-RPC, two ids: %s", got)
	}
	typed := `{"data":{"@type":"type.googleapis.com/no.such.Type","value":1}}`
	code, got := post("/echo/message:send", `{"message":{`+fmt.Sprintf(message, 12, typed, "")+`}}`)
	if code != http.StatusOK || !strings.Contains(strings.ReplaceAll(got, " ", ""), `"@type":"type.googleapis.com/no.such.Type"`) {
		t.Errorf("a part that names a type: %d %s", code, got)
	}
	list, err := rig.NewREST(target).List(t.Context(), &a2av1.ListTasksRequest{})
	if err != nil || list.GetTotalSize() != 1 {
		t.Errorf("%d tasks, %v", list.GetTotalSize(), err)
	}
}

// TestT_34_DetailsOfPeers: a peer that answers with details of unknown and very large types has failed,
// and nothing of them is passed on.
func TestT_34_DetailsOfPeers(t *testing.T) {
	t.Parallel()
	st, err := status.New(codes.Unavailable, "down").WithDetails(&errdetails.ErrorInfo{Domain: "x", Reason: "DOWN"})
	if err != nil {
		t.Fatal(err)
	}
	p := st.Proto()
	p.Details = append(p.Details, &anypb.Any{TypeUrl: "type.googleapis.com/no.such.Type", Value: []byte("canary\xff")},
		&anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: bytes.Repeat([]byte{0xff}, 3000)})
	for _, kind := range []string{"a2a", "grpc"} {
		f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Refuse: status.FromProto(p).Err()}})
		at := fmt.Sprintf("a2a: {card: %q}", f.URL())
		if kind == "grpc" {
			at = fmt.Sprintf("grpc: {address: %q}", f.GRPC())
		}
		target, _ := fromFile(t, rig.Memory(t), fmt.Sprintf(`version: v1
agents: {far: {description: Elsewhere., %s}}
teams: {desk: {members: [{agent: far}], limits: {retry: {attempts: 1}}, workflow: {steps: [{id: one, agent: far}]}}}
`, at), nil)
		resp, err := rig.NewREST(target).Send(t.Context(), rig.Text("desk", "m-"+kind, "hello"))
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
			t.Errorf("%s: %v, %v", kind, resp, err)
		}
		if text := fmt.Sprint(resp); strings.Contains(text, "canary") || strings.Contains(text, "no.such.Type") {
			t.Errorf("%s: the task shows the details: %s", kind, text)
		}
	}
}

// TestT_40_EventsAreNotForged: a text with the syntax of server-sent events arrives as text. The bytes of
// a stream have the lines of its events only.
func TestT_40_EventsAreNotForged(t *testing.T) {
	t.Parallel()
	const hostile = "one\n\nevent: forged\ndata: {\"result\":{}}\n\nid: 99\r\rdata: x\r\n\u2028\u0085: comment\n"
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo"))})
	for _, stream := range []struct{ path, body string }{
		{"/echo/message:stream", `{"message":%s}`},
		{"/echo", `{"jsonrpc":"2.0","id":"1\n\nevent: forged","method":"SendStreamingMessage","params":{"message":%s}}`},
	} {
		message, err := protojson.Marshal(rig.Text("echo", "m"+fmt.Sprint(len(stream.path)), hostile).GetMessage())
		if err != nil {
			t.Fatal(err)
		}
		resp, err := target.Do(t.Context(), http.MethodPost, stream.path, fmt.Appendf(nil, stream.body, message),
			map[string]string{"Content-Type": "application/json", "A2A-Version": "1.0"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := resp.Body()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsRune(b, '\r') {
			t.Errorf("%s: the stream has a carriage return: %q", stream.path, b)
		}
		events, heard := 0, false
		lines := bufio.NewScanner(bytes.NewReader(b))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line := lines.Text()
			data, isData := strings.CutPrefix(line, "data: ")
			id, isID := strings.CutPrefix(line, "id: ")
			switch {
			case isData:
				events++
				if !json.Valid([]byte(data)) {
					t.Errorf("%s: data is %q", stream.path, data)
				}
				heard = heard || strings.Contains(data, `event: forged\ndata`)
			case isID:
				if id == "99" {
					t.Errorf("%s: the id is forged", stream.path)
				}
			case line != "" && !strings.HasPrefix(line, ":"):
				t.Errorf("%s: a line is %q", stream.path, line)
			}
		}
		if events == 0 || !heard {
			t.Errorf("%s: %d events, with the text: %t", stream.path, events, heard)
		}
	}
}

// TestT_47_LinksAreNotOpened: the server opens no URL of a part, and takes the name of a file as data.
func TestT_47_LinksAreNotOpened(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	canary := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { opened.Add(1) }))
	t.Cleanup(canary.Close)
	llm := fakellm.New(t)
	llm.Answer("m", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "seen"} })
	target, _ := fromFile(t, rig.Memory(t), `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}", api_key: k, accepts: ["image/*"]}}
agents: {reader: {model: m, instructions: Read.}}
`, map[string]string{"LLM": llm.URL}, llm)
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		for i, url := range []string{"file:///etc/passwd", "FILE:///etc/passwd", "/etc/passwd", "gopher://" + canary.Listener.Addr().String() + "/x", "data:image/png;base64,AAAA"} {
			req := rig.Text("reader", fmt.Sprint(c.Binding(), i), "look")
			req.Message.Parts = append(req.Message.Parts, link("image/png", url))
			_, err := c.Send(t.Context(), req)
			if f := rig.Fault(err); f == nil || f.Code != "InvalidArgument" {
				t.Errorf("%s: %v", url, f)
			}
		}
		req := rig.Text("reader", c.Binding()+"-pdf", "look")
		req.Message.Parts = append(req.Message.Parts, link("application/x-sh", canary.URL+"/run.sh"))
		_, err := c.Send(t.Context(), req)
		if f := rig.Fault(err); f == nil || f.Reason != "CONTENT_TYPE_NOT_SUPPORTED" {
			t.Errorf("another media type: %v", f)
		}
		req = rig.Text("reader", c.Binding()+"-name", "look")
		req.Message.Parts = append(req.Message.Parts, rawFile("../../../etc/cron.d/x\r\n", "image/png", picture(t)), link("image/png", canary.URL+"/a.png"))
		resp, err := c.Send(t.Context(), req)
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("a file whose name is a path: %v, %v", resp, err)
		}
	})
	if n := opened.Load(); n > 0 {
		t.Errorf("the server opened %d links", n)
	}
}

// TestT_30_CanceledAgentIsNotHeard: an agent ignores that its task is canceled and reports more. The
// report is dropped, and no model is called for it.
func TestT_30_CanceledAgentIsNotHeard(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(testing.TB) rig.Place{"memory": rig.Memory, "sqlite": rig.SQLite, "postgres": rig.PostgreSQL} {
		t.Run(name, func(t *testing.T) {
			working, gate := make(chan struct{}), make(chan struct{})
			left := make(chan struct{})
			rogue := &agent.Func{ID: "rogue", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
				defer close(left)
				close(working)
				<-gate // and not ctx
				if err := agent.From(ctx).Begin(""); err == nil {
					t.Error("a step begins after the task was canceled")
				}
				return agent.NewMessage("too late"), nil
			}}
			m := rig.Manager(t, rogue, says("after"))
			chain(t, m, "desk", "rogue", "after")
			store, _ := place(t).Open(t)
			target := rig.Serve(t, server.Config{Agents: m, Store: store, Log: zap.NewNop()})
			c := rig.NewREST(target)
			req := rig.Text("desk", "m1", "hello")
			req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			resp, err := c.Send(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			<-working
			canceled, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: resp.GetTask().GetId()})
			if err != nil || canceled.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Fatalf("%v, %v", canceled, err)
			}
			close(gate)
			<-left
			task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()})
			if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED || strings.Contains(fmt.Sprint(task), "too late") || strings.Contains(fmt.Sprint(task), "after(") {
				t.Errorf("the task became %v, %v", task, err)
			}
		})
	}
}
