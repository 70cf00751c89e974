package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// act is an agent that answers with what f makes of a text.
func act(id string, f func(ctx context.Context, text string) (string, error)) *agent.Func {
	return &agent.Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		text, err := f(ctx, agent.Text(m))
		if err != nil {
			return nil, err
		}
		return agent.NewMessage(text), nil
	}}
}

// counted is an agent that counts its calls, and answers once its gate is open.
type counted struct {
	*agent.Func
	calls atomic.Int64
	gate  chan struct{}
	open  func()
}

func newCounted(id string) *counted {
	c := &counted{gate: make(chan struct{})}
	c.open = sync.OnceFunc(func() { close(c.gate) })
	c.Func = act(id, func(ctx context.Context, text string) (string, error) {
		c.calls.Add(1)
		select {
		case <-c.gate:
			return "did " + text, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return c
}

// atOnce is a request that waits for nothing.
func atOnce(req *a2av1.SendMessageRequest) *a2av1.SendMessageRequest {
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	return req
}

// storm sends a request n times at once, over all bindings, and returns the
// tasks and the errors that came.
func storm(t *testing.T, target rig.Target, n int, req *a2av1.SendMessageRequest) (tasks []*a2av1.Task, errs []error) {
	t.Helper()
	clients := rig.Clients(t, target)
	var wg sync.WaitGroup
	var mu sync.Mutex
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			resp, err := clients[i%len(clients)].Send(t.Context(), proto.CloneOf(req))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			tasks = append(tasks, resp.GetTask())
		})
	}
	close(begin)
	wg.Wait()
	return tasks, errs
}

// one wants all of them to be one task, and the only one of its owner.
func one(t *testing.T, target rig.Target, tasks []*a2av1.Task) string {
	t.Helper()
	ids := map[string]bool{}
	for _, task := range tasks {
		ids[task.GetId()] = true
	}
	list, err := rig.Clients(t, target)[0].List(t.Context(), &a2av1.ListTasksRequest{})
	if err != nil || len(ids) != 1 || list.GetTotalSize() != 1 || !ids[list.GetTasks()[0].GetId()] {
		t.Fatalf("%d tasks for one message: %v; listed: %v, %v", len(ids), ids, list, err)
	}
	return list.GetTasks()[0].GetId()
}

func TestP4_A_15_ManySendsAreOneTask(t *testing.T) {
	t.Parallel()
	const sends = 100
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		t.Run("P4 A-15 a hundred at once", func(t *testing.T) {
			a := newCounted("once")
			a.open()
			s, _ := at.Open(t)
			target, stop := rig.Start(t, server.Config{Agent: a, Store: s, Settings: rig.Keys(rig.Key("p4", "ann"))})
			defer stop()
			target = target.As("p4", "ann")
			tasks, errs := storm(t, target, sends, rig.Text("once", "m", "it"))
			if len(errs) > 0 {
				t.Fatalf("%d sends failed: %v", len(errs), errs[0])
			}
			one(t, target, tasks)
			for _, task := range tasks {
				if diff := cmp.Diff(tasks[0], task, protocmp.Transform()); diff != "" {
					t.Fatalf("answers differ:\n%s", diff)
				}
			}
			if n := a.calls.Load(); n != 1 {
				t.Errorf("the agent was called %d times", n)
			}
		})
	})
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		t.Run("P4 A-15 a hundred across a restart", func(t *testing.T) {
			a := newCounted("once")
			c := server.Config{Agent: a, Settings: rig.Keys(rig.Key("p4", "bob"))}
			var done func()
			c.Store, done = at.Open(t)
			target, stop := rig.Start(t, c)
			before, errs := storm(t, target.As("p4", "bob"), sends, atOnce(rig.Text("once", "m", "it")))
			if len(errs) > 0 {
				t.Fatal(errs[0])
			}
			stop()
			done()
			c.Store, _ = at.Open(t)
			target, stop = rig.Start(t, c)
			defer stop()
			a.open()
			after, errs := storm(t, target.As("p4", "bob"), sends, rig.Text("once", "m", "it"))
			if len(errs) > 0 {
				t.Fatal(errs[0])
			}
			one(t, target.As("p4", "bob"), append(before, after...))
			for _, task := range after {
				wantText(t, task, "did it")
			}
			if n := a.calls.Load(); n > 2 {
				t.Errorf("the agent was called %d times, with one restart", n)
			}
		})
	})
}

// wantText wants a task that is completed, with one artifact that says text.
func wantText(t *testing.T, task *a2av1.Task, text string) {
	t.Helper()
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || len(task.GetArtifacts()) != 1 ||
		agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}) != text {
		t.Fatalf("want the answer %q: %v", text, task)
	}
}

// rich is a message with something of everything that a binding could write differently.
func rich(t *testing.T, id string) *a2av1.SendMessageRequest {
	t.Helper()
	data, err := structpb.NewValue(map[string]any{
		"b": 1.0, "a": []any{true, nil, "ü", 1e21, 0.1, -0.5}, "": map[string]any{"z": "", "y": map[string]any{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	req := rig.Text("rich", id, "tides & <waves> \u2028")
	m := req.GetMessage()
	m.ContextId, m.Extensions = "rich-context", []string{"https://example.com/ext/b", "https://example.com/ext/a"}
	m.Metadata = data.GetStructValue()
	m.Parts = append(m.Parts,
		&a2av1.Part{Content: &a2av1.Part_Data{Data: data}, MediaType: "application/json"},
		&a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte{0, 255, 254, '>'}}, Filename: "raw.bin"},
		&a2av1.Part{Content: &a2av1.Part_Url{Url: "https://example.com/?a=b&c=d"}, Metadata: data.GetStructValue()})
	return req
}

func TestA_15_TheBindingDoesNotCount(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		a := newCounted("rich")
		a.open()
		s, _ := at.Open(t)
		target, _ := rig.Start(t, server.Config{Agent: a, Store: s})
		clients := rig.Clients(t, target)
		for i, first := range clients {
			t.Run("A-15 first over "+first.Binding(), func(t *testing.T) {
				req := rich(t, fmt.Sprint("m", i))
				resp, err := first.Send(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, again := range clients {
					same, err := again.Send(t.Context(), proto.CloneOf(req))
					if err != nil {
						t.Fatalf("again over %s: %v", again.Binding(), err)
					}
					if diff := cmp.Diff(resp, same, protocmp.Transform()); diff != "" {
						t.Errorf("again over %s:\n%s", again.Binding(), diff)
					}
					updates, err := rig.Collect(again.Stream(t.Context(), proto.CloneOf(req)))
					if err != nil || len(updates) == 0 || updates[0].GetTask().GetId() != resp.GetTask().GetId() {
						t.Errorf("again as a stream over %s: %v, %v", again.Binding(), updates, err)
					}
				}
				if n := a.calls.Load(); n != int64(i+1) {
					t.Errorf("%d calls for %d messages", n, i+1)
				}
			})
		}
	})
}

func TestA_15_OtherContentIsRefused(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		a := newCounted("rich")
		a.open()
		s, _ := at.Open(t)
		target, _ := rig.Start(t, server.Config{Agents: rig.Manager(t, a, says("other")), Store: s})
		clients := rig.Clients(t, target)
		first, err := clients[0].Send(t.Context(), rich(t, "m"))
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*a2av1.SendMessageRequest){
			"another text":    func(r *a2av1.SendMessageRequest) { r.Message.Parts[0] = agent.TextParts("other")[0] },
			"another part":    func(r *a2av1.SendMessageRequest) { r.Message.Parts = r.Message.GetParts()[:3] },
			"other metadata":  func(r *a2av1.SendMessageRequest) { delete(r.Message.GetMetadata().GetFields(), "b") },
			"another context": func(r *a2av1.SendMessageRequest) { r.Message.ContextId = "other" },
			"a filename":      func(r *a2av1.SendMessageRequest) { r.Message.Parts[0].Filename = "x.txt" },
		} {
			t.Run("A-15 "+name, func(t *testing.T) {
				req := rich(t, "m")
				change(req)
				for _, c := range clients {
					_, err := c.Send(t.Context(), proto.CloneOf(req))
					wantReused(t, c.Binding(), err)
					_, err = rig.Collect(c.Stream(t.Context(), proto.CloneOf(req)))
					wantReused(t, c.Binding()+" stream", err)
				}
				if got := rpcCode(t, target, req); got != -32602 {
					t.Errorf("JSON-RPC says %d, want -32602", got)
				}
			})
		}
		one(t, target, []*a2av1.Task{first.GetTask()})
	})
}

func wantReused(t *testing.T, binding string, err error) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil || f.Code != "InvalidArgument" || f.Reason != agent.ReasonMessageIDReused || f.Domain != wire.DomainTeam {
		t.Errorf("%s: %+v", binding, f)
	}
	if binding == "rest" && f != nil && f.HTTP != http.StatusBadRequest {
		t.Errorf("%s: status %d", binding, f.HTTP)
	}
}

// rpcCode is the code of the error that JSON-RPC answers a send with.
func rpcCode(t *testing.T, target rig.Target, req *a2av1.SendMessageRequest) int {
	t.Helper()
	params, err := wire.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	call := fmt.Appendf(nil, `{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": %s}`, params)
	a, err := target.Do(t.Context(), http.MethodPost, "/rpc", call, map[string]string{"Content-Type": wire.TypeJSON})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Body()
	if err != nil {
		t.Fatal(err)
	}
	var resp wire.RPCResponse
	if err := json.Unmarshal(b, &resp); err != nil || resp.Error == nil {
		t.Fatalf("%s: %v", b, err)
	}
	return resp.Error.Code
}

// TestA_15_AnAnswerCountsOnce sends the answer to a question again and again: it
// is taken once, before a restart and after it.
func TestA_15_AnAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		a, err := scripted.New(scripted.Config{ID: "asks", Steps: []*teamv1.ScriptedStep{
			{Do: &teamv1.ScriptedStep_Ask{Ask: "first?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
			{Do: &teamv1.ScriptedStep_Ask{Ask: "second?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		s, done := at.Open(t)
		target, stop := rig.Start(t, server.Config{Agent: a, Store: s})
		resp, err := rig.Clients(t, target)[0].Send(t.Context(), rig.Text("asks", "m", "x"))
		if err != nil {
			t.Fatal(err)
		}
		id := resp.GetTask().GetId()
		answer := func(messageID, text string) *a2av1.SendMessageRequest {
			req := rig.Text("asks", messageID, text)
			req.Message.TaskId = id
			return req
		}
		tasks, errs := storm(t, target, 20, answer("a1", "one"))
		if len(errs) > 0 {
			t.Fatal(errs[0])
		}
		stop()
		done()
		s, _ = at.Open(t)
		target, _ = rig.Start(t, server.Config{Agent: a, Store: s})
		more, errs := storm(t, target, 20, answer("a1", "one"))
		if len(errs) > 0 {
			t.Fatal(errs[0])
		}
		for _, task := range append(tasks, more...) {
			if got := task.GetStatus(); got.GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || agent.Text(got.GetMessage()) != "second?" {
				t.Fatalf("after the first answer: %v", got)
			}
		}
		for _, c := range rig.Clients(t, target) {
			_, err := c.Send(t.Context(), answer("a1", "another one"))
			wantReused(t, c.Binding(), err)
			_, err = c.Send(t.Context(), answer("m", "x"))
			wantReused(t, c.Binding(), err)
		}
		tasks, errs = storm(t, target, 20, answer("a2", "two"))
		if len(errs) > 0 {
			t.Fatal(errs[0])
		}
		for _, task := range tasks {
			wantText(t, task, "one\ntwo")
			if n := len(task.GetHistory()); n != 5 {
				t.Errorf("history has %d messages, want 5: %v", n, task.GetHistory())
			}
		}
		one(t, target, tasks)
	})
}

// TestS_55_NothingCrosses: two principals use the same context id, and the same
// message ids, with the same content and with other content.
func TestS_55_NothingCrosses(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		a := newCounted("a")
		a.open()
		s, _ := at.Open(t)
		keys := []*teamv1.ApiKey{rig.Key("one", "ann"), rig.Key("one", "bob"), rig.Key("two", "ann")}
		target, _ := rig.Start(t, server.Config{Agent: a, Store: s, Settings: rig.Keys(keys...)})
		target.Version = "1.0"
		type owner struct{ account, principal, text string }
		owners := []owner{{"one", "ann", "secret"}, {"one", "bob", "secret"}, {"two", "ann", "another secret"}}
		seen := map[string]string{}
		for _, o := range owners {
			for _, c := range rig.Clients(t, target.As(o.account, o.principal)) {
				req := rig.Text("a", "m-"+c.Binding(), o.text)
				req.Message.ContextId = "shared"
				resp, err := c.Send(t.Context(), req)
				if err != nil {
					t.Fatalf("%v over %s: %v", o, c.Binding(), err)
				}
				task := resp.GetTask()
				wantText(t, task, "did "+o.text)
				if other := seen[task.GetId()]; other != "" || task.GetContextId() != "shared" || len(task.GetHistory()) != 1 {
					t.Fatalf("%v got the task of %s: %v", o, other, task)
				}
				seen[task.GetId()] = o.account + "/" + o.principal
			}
		}
		for _, o := range owners {
			for _, c := range rig.Clients(t, target.As(o.account, o.principal)) {
				t.Run(fmt.Sprintf("S-55 %s/%s over %s", o.account, o.principal, c.Binding()), func(t *testing.T) {
					ownOnly(t, c, o.account+"/"+o.principal, seen)
				})
			}
		}
	})
}

// ownOnly wants a client to see what is its owner's and nothing else.
func ownOnly(t *testing.T, c rig.Client, owner string, tasks map[string]string) {
	t.Helper()
	list, err := c.List(t.Context(), &a2av1.ListTasksRequest{ContextId: "shared"})
	if err != nil || list.GetTotalSize() != 3 {
		t.Errorf("listed: %v, %v", list, err)
	}
	for _, task := range list.GetTasks() {
		if tasks[task.GetId()] != owner {
			t.Errorf("lists a task of %s", tasks[task.GetId()])
		}
	}
	_, unknown := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "nothing"})
	for id, of := range tasks {
		_, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
		if f := rig.Fault(err); of != owner && (f == nil || f.Reason != rig.Fault(unknown).Reason || f.Code != "NotFound") {
			t.Errorf("gets the task of %s: %v", of, err)
		} else if of == owner && err != nil {
			t.Error(err)
		}
		if of == owner {
			continue
		}
		req := rig.Text("a", "into-"+id, "mine now")
		req.Message.TaskId = id
		_, err = c.Send(t.Context(), req)
		if f := rig.Fault(err); f == nil || f.Reason != "TASK_NOT_FOUND" {
			t.Errorf("writes into the task of %s: %v", of, err)
		}
	}
}
