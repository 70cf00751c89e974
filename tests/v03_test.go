package tests

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/tests/rig"
)

// bothVersions are agents that do what tasks can do.
const bothVersions = `
agents:
  echo: {scripted: {steps: [{chunks: 3}, {echo: true}]}}
  curious: {scripted: {steps: [{ask: "Which city?"}, {text: "{{input}} in {{answer}}"}]}}
  faulty: {scripted: {steps: [{fail: 1000}, {text: "Never."}]}}
  patient: {scripted: {steps: [{progress: "Waiting."}, {delay_ms: 600000}]}}
teams:
  desk: {workflow: {steps: [{id: ask, agent: curious}, {id: say, agent: echo, after: [ask]}]}}
server: {default_agent: echo}
`

// tried is what came of one operation, on one binding of one version.
type tried struct {
	Answer proto.Message
	Events []*a2av1.StreamResponse
	Fault  *rig.Error
}

// operationsV03 are what both versions can do. Each begins for itself.
func operationsV03() map[string]func(context.Context, rig.Client, string) tried {
	const nobody = "00000000-0000-7000-8000-000000000000"
	state := func(c rig.Client, ctx context.Context, tenant, id string, more func(*a2av1.SendMessageRequest)) *a2av1.Task {
		req := rig.Text(tenant, id, "High tide")
		if more != nil {
			more(req)
		}
		resp, err := c.Send(ctx, req)
		if err != nil {
			return nil
		}
		return resp.GetTask()
	}
	send := func(tenant string, change func(*a2av1.SendMessageRequest)) func(context.Context, rig.Client, string) tried {
		return func(ctx context.Context, c rig.Client, id string) tried {
			req := rig.Text(tenant, id, "High tide")
			if change != nil {
				change(req)
			}
			resp, err := c.Send(ctx, req)
			return tried{Answer: resp.GetTask(), Fault: rig.Fault(err)}
		}
	}
	stream := func(tenant string, change func(*a2av1.SendMessageRequest)) func(context.Context, rig.Client, string) tried {
		return func(ctx context.Context, c rig.Client, id string) tried {
			req := rig.Text(tenant, id, "High tide")
			if change != nil {
				change(req)
			}
			events, err := rig.Collect(c.Stream(ctx, req))
			return tried{Events: events, Fault: rig.Fault(err)}
		}
	}
	task := func(id string) func(*a2av1.SendMessageRequest) {
		return func(r *a2av1.SendMessageRequest) { r.Message.TaskId = id }
	}
	history := func(n int32) func(*a2av1.SendMessageRequest) {
		return func(r *a2av1.SendMessageRequest) {
			r.Configuration = &a2av1.SendMessageConfiguration{HistoryLength: &n}
		}
	}
	return map[string]func(context.Context, rig.Client, string) tried{
		"send":                        send("echo", nil),
		"send to the default":         send("", nil),
		"send to a team":              send("desk", nil),
		"send to nobody":              send("nobody", nil),
		"send to an unknown task":     send("echo", task(nobody)),
		"send that fails":             send("faulty", nil),
		"send that asks":              send("curious", nil),
		"send without history":        send("echo", history(0)),
		"send with a wrong history":   send("echo", history(-1)),
		"send without parts":          send("echo", func(r *a2av1.SendMessageRequest) { r.Message.Parts = nil }),
		"send of an agent":            send("echo", func(r *a2av1.SendMessageRequest) { r.Message.Role = a2av1.Role_ROLE_AGENT }),
		"send without an id":          send("echo", func(r *a2av1.SendMessageRequest) { r.Message.MessageId = "" }),
		"stream":                      stream("echo", nil),
		"stream that asks":            stream("desk", nil),
		"stream that fails":           stream("faulty", nil),
		"stream to nobody":            stream("nobody", nil),
		"stream to an unknown task":   stream("echo", task(nobody)),
		"stream with a wrong history": stream("echo", history(-1)),
		"get": func(ctx context.Context, c rig.Client, id string) tried {
			t, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: state(c, ctx, "echo", id, nil).GetId()})
			return tried{Answer: t, Fault: rig.Fault(err)}
		},
		"get of another tenant": func(ctx context.Context, c rig.Client, id string) tried {
			t, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: state(c, ctx, "echo", id, nil).GetId(), Tenant: "curious"})
			return tried{Answer: t, Fault: rig.Fault(err)}
		},
		"get of nothing": func(ctx context.Context, c rig.Client, _ string) tried {
			t, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: nobody})
			return tried{Answer: t, Fault: rig.Fault(err)}
		},
		"answer": func(ctx context.Context, c rig.Client, id string) tried {
			asked := state(c, ctx, "curious", id, nil)
			resp, err := c.Send(ctx, answerTo(asked, id+"-2"))
			return tried{Answer: resp.GetTask(), Fault: rig.Fault(err)}
		},
		"answer, streamed": func(ctx context.Context, c rig.Client, id string) tried {
			asked := state(c, ctx, "curious", id, nil)
			// How far the task is when the stream begins is a matter of time.
			events, err := rig.Collect(c.Stream(ctx, answerTo(asked, id+"-2")))
			if err != nil || len(events) == 0 {
				return tried{Fault: rig.Fault(err)}
			}
			t, err := c.Get(ctx, &a2av1.GetTaskRequest{Id: asked.GetId()})
			return tried{Answer: t, Fault: rig.Fault(err)}
		},
		"cancel": func(ctx context.Context, c rig.Client, id string) tried {
			t, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: state(c, ctx, "curious", id, nil).GetId()})
			return tried{Answer: t, Fault: rig.Fault(err)}
		},
		"cancel of what has ended": func(ctx context.Context, c rig.Client, id string) tried {
			t, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: state(c, ctx, "echo", id, nil).GetId()})
			return tried{Answer: t, Fault: rig.Fault(err)}
		},
		"subscribe to what has ended": func(ctx context.Context, c rig.Client, id string) tried {
			events, err := rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: state(c, ctx, "echo", id, nil).GetId()}, 0))
			return tried{Events: events, Fault: rig.Fault(err)}
		},
		"subscribe behind a cursor": func(ctx context.Context, c rig.Client, id string) tried {
			events, err := rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: state(c, ctx, "echo", id, nil).GetId()}, 3))
			return tried{Events: events, Fault: rig.Fault(err)}
		},
		"subscribe to nothing": func(ctx context.Context, c rig.Client, _ string) tried {
			events, err := rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: nobody}, 0))
			return tried{Events: events, Fault: rig.Fault(err)}
		},
		"extended card": func(ctx context.Context, c rig.Client, _ string) tried {
			_, err := c.Card(ctx, &a2av1.GetExtendedAgentCardRequest{Tenant: "echo"})
			return tried{Fault: rig.Fault(err)}
		},
	}
}

func answerTo(asked *a2av1.Task, id string) *a2av1.SendMessageRequest {
	req := rig.Text("", id, "Brest")
	req.Message.TaskId, req.Message.ContextId = asked.GetId(), asked.GetContextId()
	return req
}

// The same operation is the same task, the same stream and the same error, in 1.0
// and in 0.3.
func TestA_25_BothVersionsAnswerAlike(t *testing.T) {
	t.Parallel()
	s := play(t, rig.Memory(t), bothVersions)
	clients := append([]rig.Client{rig.NewJSONRPC(s.Target)}, rig.ClientsV03(t, s.Target)...)
	for name, do := range operationsV03() {
		t.Run(name, func(t *testing.T) {
			var first string
			for i, c := range clients {
				got := alike(t, do(t.Context(), c, "m-"+strconv.Itoa(i)+"-"+regexp.MustCompile(`\W+`).ReplaceAllString(name, "-")))
				if i == 0 {
					first = got
				} else if diff := cmp.Diff(first, got); diff != "" {
					t.Errorf("%s answers otherwise than %s (-1.0 +0.3):\n%s", c.Binding(), clients[0].Binding(), diff)
				}
			}
		})
	}
}

var (
	someIDs   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|m-\d-[A-Za-z0-9-]+`)
	someTimes = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	someSeqs  = regexp.MustCompile(`"seq": "[0-9]+"`) // how often a run was claimed is a matter of time
)

// alike is what came of an operation as text, in which ids are numbered as they
// appear and times are all the same.
func alike(t *testing.T, v tried) string {
	t.Helper()
	var all []json.RawMessage
	add := func(m proto.Message) {
		b, err := wire.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if v.Answer != nil {
		add(v.Answer)
	}
	for _, e := range v.Events {
		add(e)
	}
	if v.Fault != nil {
		v.Fault.HTTP, v.Fault.RPC = 0, 0 // each binding has its own
		b, err := json.Marshal(v.Fault)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	text := someIDs.ReplaceAllStringFunc(string(b), func(id string) string {
		if names[id] == "" {
			names[id] = "id-" + strconv.Itoa(len(names)+1)
		}
		return names[id]
	})
	return someSeqs.ReplaceAllString(someTimes.ReplaceAllString(text, "time"), `"seq": "n"`)
}

// What is begun in one version goes on in the other: it is one task.
func TestA_25_OneTaskInBothVersions(t *testing.T) {
	t.Parallel()
	s := play(t, rig.Memory(t), bothVersions)
	now := rig.NewJSONRPC(s.Target)
	for _, old := range rig.ClientsV03(t, s.Target) {
		t.Run(old.Binding(), func(t *testing.T) {
			resp, err := old.Send(t.Context(), rig.Text("curious", "one-"+old.Binding()[:4], "High tide"))
			if err != nil {
				t.Fatal(err)
			}
			asked := resp.GetTask()
			sameIn03(t, now, old, asked.GetId())
			done, err := now.Send(t.Context(), answerTo(asked, "two-"+old.Binding()[:4]))
			if err != nil || done.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Fatalf("%v, error %v", done, err)
			}
			sameIn03(t, now, old, asked.GetId())
			again, err := old.Send(t.Context(), rig.Text("curious", "one-"+old.Binding()[:4], "High tide"))
			if err != nil || again.GetTask().GetId() != asked.GetId() {
				t.Errorf("A-15 sent again: %v, error %v", again, err)
			}
		})
	}
}

// sameIn03 compares a task as both versions show it.
func sameIn03(t *testing.T, now, old rig.Client, id string) {
	t.Helper()
	want, err := now.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	got, err := old.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-1.0 +0.3:\n%s", diff)
	}
}
