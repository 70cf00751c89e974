package tests

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// answering is an agent that answers with parts.
func answering(id string, parts ...*a2av1.Part) *agent.Func {
	return &agent.Func{ID: id, Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
		m := agent.NewMessage("")
		m.Parts = parts
		return m, nil
	}}
}

// nested is a value of so many lists, one in the other.
func nested(n int) *structpb.Value {
	v := structpb.NewStringValue("core")
	for range n {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	return v
}

func dataPart(v *structpb.Value) *a2av1.Part { return &a2av1.Part{Content: &a2av1.Part_Data{Data: v}} }

// TestA_02_LargeResultsAreReadable: a task with more than one answer holds is shown on
// every binding, with URLs in place of its largest parts, which are read there.
func TestA_02_LargeResultsAreReadable(t *testing.T) {
	t.Parallel()
	text, raw := strings.Repeat("tide ", 9<<20/5), bytes.Repeat([]byte{1, 2, 3, 250}, 2<<20)
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s, _ := place.Open(t)
		m := rig.Manager(t, answering("big", agent.TextParts(text)[0], &a2av1.Part{
			Content: &a2av1.Part_Raw{Raw: raw}, Filename: "all.html", MediaType: "text/html",
		}, agent.TextParts("small")[0]))
		keys := []*teamv1.ApiKey{rig.Key("acme", "ann"), rig.Key("acme", "bob")}
		target := rig.Serve(t, server.Config{Agents: m, Store: s, Settings: rig.Keys(keys...)}).As("acme", "ann")
		all := append(rig.Clients(t, target), rig.ClientsV03(t, target)...)
		if place.Durable {
			all = all[:3]
		}
		resp, err := all[0].Send(t.Context(), rig.Text("big", "m", "go"))
		if err != nil {
			t.Fatal(err)
		}
		id := resp.GetTask().GetId()
		check := func(what string, task *a2av1.Task, err error) []*a2av1.Part {
			t.Helper()
			if err != nil || len(task.GetArtifacts()) != 1 || len(task.GetArtifacts()[0].GetParts()) != 3 || task.GetStatus().GetState() != completedState {
				t.Fatalf("%s: %v, %d artifacts", what, err, len(task.GetArtifacts()))
			}
			parts := task.GetArtifacts()[0].GetParts()
			if proto.Size(task) > runs.MaxPageBytes || parts[0].GetUrl() == "" || parts[1].GetUrl() == "" || parts[1].GetFilename() != "all.html" || parts[2].GetText() != "small" {
				t.Fatalf("%s: %d bytes, %v %v", what, proto.Size(task), parts[0].GetUrl(), parts[1])
			}
			return parts
		}
		parts := check("send", resp.GetTask(), nil)
		for _, c := range all {
			task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id, Tenant: "big"})
			check(c.Binding()+" get", task, err)
			updates, err := rig.Collect(c.Stream(t.Context(), rig.Text("big", "m", "go")))
			if err != nil {
				t.Fatalf("%s stream: %v", c.Binding(), err)
			}
			urls := 0
			for _, u := range updates {
				if proto.Size(u) > runs.MaxPageBytes {
					t.Errorf("%s stream: an event of %d bytes", c.Binding(), proto.Size(u))
				}
				for _, a := range append(u.GetTask().GetArtifacts(), u.GetArtifactUpdate().GetArtifact()) {
					for _, p := range a.GetParts() {
						if p.GetUrl() != "" {
							urls++
						}
					}
				}
			}
			if urls == 0 {
				t.Errorf("%s stream: no URLs of %d updates", c.Binding(), len(updates))
			}
		}
		hooked := rig.NewReceiver(t)
		if _, err := all[0].(rig.PushClient).CreatePush(t.Context(), hook(id, "", hooked.URL)); err != nil {
			t.Fatal(err)
		}
		told := hooked.Until(t, "the task", func(l []rig.Notification) bool { return len(l) > 0 })
		check("push", told[0].Response.GetTask(), nil)
		for _, c := range all[:3] {
			list, err := c.List(t.Context(), &a2av1.ListTasksRequest{Tenant: "big", IncludeArtifacts: proto.Bool(true)})
			if err != nil || len(list.GetTasks()) != 1 {
				t.Fatalf("%s list: %v", c.Binding(), err)
			}
			check(c.Binding()+" list", list.GetTasks()[0], nil)
		}
		get := func(at rig.Target, url string, headers map[string]string) (int, http.Header, []byte) {
			t.Helper()
			r, err := at.Do(t.Context(), http.MethodGet, strings.TrimPrefix(url, target.HTTP), nil, headers)
			if err != nil {
				t.Fatal(err)
			}
			b, err := r.Body()
			if err != nil {
				t.Fatal(err)
			}
			return r.Status, r.Header, b
		}
		for i, want := range [][]byte{[]byte(text), raw} {
			status, header, b := get(target, parts[i].GetUrl(), nil)
			if status != http.StatusOK || !bytes.Equal(b, want) || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment") {
				t.Errorf("part %d: %d, %d bytes, %v", i, status, len(b), header)
			}
			status, header, b = get(target, parts[i].GetUrl(), map[string]string{"Range": "bytes=5-14"})
			if status != http.StatusPartialContent || !bytes.Equal(b, want[5:15]) || header.Get("Content-Range") == "" {
				t.Errorf("part %d in a range: %d, %q, %v", i, status, b, header)
			}
		}
		if status, _, b := get(target.As("acme", "bob"), parts[0].GetUrl(), nil); status != http.StatusNotFound {
			t.Errorf("somebody else's part: %d %.200s", status, b)
		}
		open := target
		open.Key = ""
		if status, _, b := get(open, parts[0].GetUrl(), nil); status != http.StatusUnauthorized {
			t.Errorf("without a key: %d %.200s", status, b)
		}
		if status, _, b := get(target, parts[0].GetUrl()+"0", nil); status != http.StatusNotFound {
			t.Errorf("no such part: %d %.200s", status, b)
		}
	})
}

// TestA_01_DataThatOthersCanRead: data that Python's protobuf cannot read is refused of
// clients and of agents.
func TestA_01_DataThatOthersCanRead(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		s, _ := place.Open(t)
		m := rig.Manager(t, says("echo"), answering("fits", dataPart(nested(48))), answering("deep", dataPart(nested(49))))
		target := rig.Serve(t, server.Config{Agents: m, Store: s})
		for _, c := range rig.Clients(t, target) {
			send := func(tenant string, v *structpb.Value) (*a2av1.Task, error) {
				req := rig.Text(tenant, fmt.Sprint(c.Binding(), tenant, proto.Size(v), "-", time.Now().UnixNano()), "x")
				if v != nil {
					req.Message.Parts = append(req.Message.Parts, dataPart(v))
				}
				resp, err := c.Send(t.Context(), req)
				return resp.GetTask(), err
			}
			if _, err := send("echo", nested(48)); err != nil {
				t.Errorf("%s: 48 lists: %v", c.Binding(), err)
			}
			_, err := send("echo", nested(49))
			if f := rig.Fault(err); f == nil || f.Reason != agent.ReasonInvalidRequest || !strings.Contains(f.Message, "message.parts[1].data is nested deeper") {
				t.Errorf("%s: 49 lists: %v", c.Binding(), err)
			}
			if task, err := send("fits", nil); err != nil || task.GetStatus().GetState() != completedState {
				t.Errorf("%s: an answer of 48 lists: %v, %v", c.Binding(), task.GetStatus(), err)
			}
			task, err := send("deep", nil)
			if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED || !strings.Contains(agent.Text(task.GetStatus().GetMessage()), a2aerror.ReasonInvalidAgentResponse) {
				t.Errorf("%s: an answer of 49 lists: %v, %v", c.Binding(), task.GetStatus(), err)
			}
		}
	})
}

// TestA_02_LargeMetadataIsReadable: values of metadata that make a task too large come
// with the URL at which they are read.
func TestA_02_LargeMetadataIsReadable(t *testing.T) {
	t.Parallel()
	metadata, err := structpb.NewStruct(map[string]any{"a": strings.Repeat("a", 9<<20), "b": strings.Repeat("b", 9<<20), "c": "small"})
	if err != nil {
		t.Fatal(err)
	}
	m := rig.Manager(t, &agent.Func{ID: "big", Call: func(context.Context, *a2av1.Message) (*a2av1.Message, error) {
		reply := agent.NewMessage("done")
		reply.Metadata = metadata
		return reply, nil
	}})
	target := rig.Serve(t, server.Config{Agents: m})
	for _, c := range sample.Of(t, rig.Clients(t, target)) {
		resp, err := c.Send(t.Context(), rig.Text("big", "m"+c.Binding(), "go"))
		if err != nil {
			t.Fatal(err)
		}
		shown := resp.GetTask().GetArtifacts()[0].GetMetadata().GetFields()
		if shown["c"].GetStringValue() != "small" || proto.Size(resp) > runs.MaxPageBytes {
			t.Errorf("%s: %d bytes", c.Binding(), proto.Size(resp))
		}
		for name, want := range metadata.GetFields() {
			left := shown[name].GetStructValue().GetFields()[a2a.TeamRunURI].GetStructValue().GetFields()
			if name == "c" {
				continue
			}
			r, err := target.Do(t.Context(), http.MethodGet, strings.TrimPrefix(left["url"].GetStringValue(), target.HTTP), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := r.Body()
			if err != nil || string(b) != `"`+want.GetStringValue()+`"` || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: %d, %d bytes, %v, %v", c.Binding(), name, r.Status, len(b), r.Header, err)
			}
		}
	}
}
