package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// say returns an agent that answers every message with f of its text.
func say(id string, f func(ctx context.Context, text string) (string, error)) *agent.Func {
	return &agent.Func{ID: id, Skills: []*teamv1.Skill{{Id: "talk", Name: "Talk"}}, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		text, err := f(ctx, agent.Text(m))
		if err != nil {
			return nil, err
		}
		return agent.NewMessage(text), nil
	}}
}

func upper() *agent.Func {
	return say("upper", func(_ context.Context, text string) (string, error) { return strings.ToUpper(text), nil })
}

// gated returns an agent that works until the gate is opened or its context ends.
func gated(gate <-chan struct{}) *agent.Func {
	return say("gated", func(ctx context.Context, text string) (string, error) {
		select {
		case <-gate:
			return text, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
}

// serve serves agents on free ports of the loopback until the test ends.
func serve(t *testing.T, c server.Config, agents ...*agent.Func) rig.Target {
	t.Helper()
	m := manager.New(manager.Config{})
	t.Cleanup(m.Close)
	for _, a := range agents {
		if err := m.Register(a.ID, a); err != nil {
			t.Fatal(err)
		}
	}
	c.Agents, c.GRPC, c.HTTP = m, "127.0.0.1:0", "127.0.0.1:0"
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return rig.Target{GRPC: s.Addrs().GRPC, HTTP: s.Addrs().URL}
}

func resultText(task *a2av1.Task) string {
	var b strings.Builder
	for _, a := range task.GetArtifacts() {
		for _, p := range a.GetParts() {
			b.WriteString(p.GetText())
		}
	}
	return b.String()
}

func TestA_01_EveryOperationOnEveryBinding(t *testing.T) {
	target := serve(t, server.Config{}, upper())
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		ctx := t.Context()
		resp, err := c.Send(ctx, rig.Text("upper", "send-"+c.Binding(), "tides"))
		if err != nil {
			t.Fatal(err)
		}
		sent := resp.GetTask()
		if sent.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || resultText(sent) != "TIDES" {
			t.Fatalf("sent: %v", sent)
		}
		t.Run("get", func(t *testing.T) {
			got, err := c.Get(ctx, &a2av1.GetTaskRequest{Tenant: "upper", Id: sent.GetId()})
			if diff := cmp.Diff(sent, got, protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
		t.Run("list", func(t *testing.T) {
			got, err := c.List(ctx, &a2av1.ListTasksRequest{ContextId: sent.GetContextId()})
			if err != nil || got.GetTotalSize() != 1 || got.GetTasks()[0].GetId() != sent.GetId() {
				t.Errorf("%v %v", got, err)
			}
		})
		t.Run("stream", func(t *testing.T) {
			got, err := rig.Collect(c.Stream(ctx, rig.Text("upper", "stream-"+c.Binding(), "tides")))
			if err != nil || len(got) < 2 || got[0].GetTask() == nil ||
				got[len(got)-1].GetStatusUpdate().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Errorf("%v %v", got, err)
			}
		})
		t.Run("the same message again is the same task", func(t *testing.T) {
			again, err := c.Send(ctx, rig.Text("upper", "send-"+c.Binding(), "tides"))
			if err != nil || again.GetTask().GetId() != sent.GetId() {
				t.Errorf("%v %v", again, err)
			}
		})
		t.Run("card", func(t *testing.T) {
			_, err := c.Card(ctx, &a2av1.GetExtendedAgentCardRequest{Tenant: "upper"})
			if f := rig.Fault(err); f == nil || f.Reason != "UNSUPPORTED_OPERATION" {
				t.Errorf("%v", f)
			}
		})
	})
}

func TestA_09_ImmediateCancelSubscribe(t *testing.T) {
	gate := make(chan struct{})
	target := serve(t, server.Config{}, gated(gate))
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		ctx := t.Context()
		req := rig.Text("gated", "cancel-"+c.Binding(), "x")
		req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
		resp, err := c.Send(ctx, req)
		if err != nil || resp.GetTask() == nil {
			t.Fatalf("%v %v", resp, err)
		}
		id := resp.GetTask().GetId()
		var states []a2av1.TaskState
		for u, err := range c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Tenant: "gated", Id: id}, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if len(states) == 0 {
				if u.GetTask().GetId() != id {
					t.Fatalf("first update %v", u)
				}
				if _, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: id}); err != nil {
					t.Fatal(err)
				}
			}
			states = append(states, u.GetStatusUpdate().GetStatus().GetState())
		}
		if last := states[len(states)-1]; last != a2av1.TaskState_TASK_STATE_CANCELED {
			t.Errorf("states %v", states)
		}
		again, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: id})
		if err != nil || again.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
			t.Errorf("cancel again: %v %v", again, err)
		}
	})
	close(gate)
}

// TestA_01_A_02_A_04_ErrorsAreTheSame asks for every kind of error on all bindings.
func TestA_01_A_02_A_04_ErrorsAreTheSame(t *testing.T) {
	target := serve(t, server.Config{}, upper(), say("broken", func(context.Context, string) (string, error) {
		return "", errors.New("the password is 1234")
	}), say("panics", func(context.Context, string) (string, error) { panic("the password is 1234") }))
	clients := rig.Clients(t, target)
	done, err := clients[0].Send(t.Context(), rig.Text("upper", "done", "x"))
	if err != nil {
		t.Fatal(err)
	}
	id := done.GetTask().GetId()
	send := func(change func(*a2av1.SendMessageRequest)) func(context.Context, rig.Client) error {
		return func(ctx context.Context, c rig.Client) error {
			req := rig.Text("upper", "bad", "x")
			change(req)
			_, err := c.Send(ctx, req)
			return err
		}
	}
	stream := func(change func(*a2av1.SendMessageRequest)) func(context.Context, rig.Client) error {
		return func(ctx context.Context, c rig.Client) error {
			req := rig.Text("upper", "bad", "x")
			change(req)
			_, err := rig.Collect(c.Stream(ctx, req))
			return err
		}
	}
	get := func(req *a2av1.GetTaskRequest) func(context.Context, rig.Client) error {
		return func(ctx context.Context, c rig.Client) error {
			_, err := c.Get(ctx, req)
			return err
		}
	}
	list := func(req *a2av1.ListTasksRequest) func(context.Context, rig.Client) error {
		return func(ctx context.Context, c rig.Client) error {
			_, err := c.List(ctx, req)
			return err
		}
	}
	for _, c := range []struct {
		name, code, reason string
		http               int
		do                 func(context.Context, rig.Client) error
	}{
		{"unknown agent", "NotFound", "AGENT_NOT_FOUND", 404, send(func(r *a2av1.SendMessageRequest) { r.Tenant = "nobody" })},
		{"unknown agent, stream", "NotFound", "AGENT_NOT_FOUND", 404, stream(func(r *a2av1.SendMessageRequest) { r.Tenant = "nobody" })},
		{"no agent named", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Tenant = "" })},
		{"no message", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message = nil })},
		{"no message id", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.MessageId = "" })},
		{"no parts", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.Parts = nil })},
		{"no parts, stream", "InvalidArgument", "INVALID_REQUEST", 400, stream(func(r *a2av1.SendMessageRequest) { r.Message.Parts = nil })},
		{"an empty part", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.Parts = []*a2av1.Part{{}} })},
		{"no role", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.Role = 0 })},
		{"role of an agent", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.Role = a2av1.Role_ROLE_AGENT })},
		{"unknown role", "InvalidArgument", "INVALID_REQUEST", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.Role = 42 })},
		{"unknown task in a message", "NotFound", "TASK_NOT_FOUND", 404, send(func(r *a2av1.SendMessageRequest) { r.Message.TaskId = "nothing" })},
		{"a task that has ended", "FailedPrecondition", "UNSUPPORTED_OPERATION", 400, send(func(r *a2av1.SendMessageRequest) { r.Message.TaskId = id })},
		{"a task that has ended, stream", "FailedPrecondition", "UNSUPPORTED_OPERATION", 400, stream(func(r *a2av1.SendMessageRequest) { r.Message.TaskId = id })},
		{"message id reused", "InvalidArgument", "MESSAGE_ID_REUSED", 400, send(func(r *a2av1.SendMessageRequest) {
			r.Message.MessageId, r.Message.Parts[0].Filename = "done", "other.txt"
		})},
		{"negative history", "InvalidArgument", "INVALID_REQUEST", 400, get(&a2av1.GetTaskRequest{Id: id, HistoryLength: new(int32(-1))})},
		{"unknown task", "NotFound", "TASK_NOT_FOUND", 404, get(&a2av1.GetTaskRequest{Id: "nothing"})},
		{"task of another agent", "NotFound", "TASK_NOT_FOUND", 404, get(&a2av1.GetTaskRequest{Tenant: "broken", Id: id})},
		{"task of an unknown agent", "NotFound", "TASK_NOT_FOUND", 404, get(&a2av1.GetTaskRequest{Tenant: "nobody", Id: id})},
		{"a zero byte in an id", "InvalidArgument", "INVALID_REQUEST", 400, get(&a2av1.GetTaskRequest{Id: "a\x00b"})},
		{"page size 0", "InvalidArgument", "INVALID_REQUEST", 400, list(&a2av1.ListTasksRequest{PageSize: new(int32(0))})},
		{"page size 101", "InvalidArgument", "INVALID_REQUEST", 400, list(&a2av1.ListTasksRequest{PageSize: new(int32(101))})},
		{"a page token that is none", "InvalidArgument", "INVALID_REQUEST", 400, list(&a2av1.ListTasksRequest{PageToken: "x"})},
		{"list of an unknown agent", "NotFound", "AGENT_NOT_FOUND", 404, list(&a2av1.ListTasksRequest{Tenant: "nobody"})},
		{"cancel of what has ended", "FailedPrecondition", "TASK_NOT_CANCELABLE", 400, func(ctx context.Context, c rig.Client) error {
			_, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: id})
			return err
		}},
		{"cancel of an unknown task", "NotFound", "TASK_NOT_FOUND", 404, func(ctx context.Context, c rig.Client) error {
			_, err := c.Cancel(ctx, &a2av1.CancelTaskRequest{Id: "nothing"})
			return err
		}},
		{"subscribe to what has ended", "FailedPrecondition", "UNSUPPORTED_OPERATION", 400, func(ctx context.Context, c rig.Client) error {
			_, err := rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0))
			return err
		}},
		{"subscribe to an unknown task", "NotFound", "TASK_NOT_FOUND", 404, func(ctx context.Context, c rig.Client) error {
			_, err := rig.Collect(c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: "nothing"}, 0))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var first *rig.Error
			for _, client := range clients {
				f := rig.Fault(c.do(t.Context(), client))
				if f == nil || f.Code != c.code || f.Reason != c.reason {
					t.Fatalf("%s: got %+v, want %s %s", client.Binding(), f, c.code, c.reason)
				}
				if client.Binding() == "rest" && f.HTTP != c.http {
					t.Errorf("status %d, want %d", f.HTTP, c.http)
				}
				if first == nil {
					first = f
				}
				if !rig.Same(first, f) {
					t.Errorf("%s says %+v, %s says %+v", clients[0].Binding(), first, client.Binding(), f)
				}
			}
		})
	}
	t.Run("A-22 an agent's fault shows nothing", func(t *testing.T) {
		for _, client := range clients {
			for _, id := range []string{"broken", "panics"} {
				resp, err := client.Send(t.Context(), rig.Text(id, "fault-"+id+client.Binding(), "x"))
				if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED || strings.Contains(fmt.Sprint(resp), "1234") {
					t.Errorf("%s of %s: %v %v", client.Binding(), id, resp, err)
				}
			}
		}
	})
}

func TestA_09_ClientThatLeavesCancelsNothing(t *testing.T) {
	gate := make(chan struct{})
	target := serve(t, server.Config{}, gated(gate))
	clients := rig.Clients(t, target)
	ids := map[string]string{}
	for _, c := range clients {
		ctx, leave := context.WithCancel(t.Context())
		for u, err := range c.Stream(ctx, rig.Text("gated", "leave-"+c.Binding(), "x")) {
			if err != nil {
				t.Fatal(err)
			}
			ids[c.Binding()] = u.GetTask().GetId()
			break
		}
		leave()
	}
	close(gate)
	for _, c := range clients {
		last := a2av1.TaskState_TASK_STATE_UNSPECIFIED
		updates, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: ids[c.Binding()]}, 0))
		if f := rig.Fault(err); f != nil && f.Reason == "UNSUPPORTED_OPERATION" {
			task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: ids[c.Binding()]})
			if err != nil {
				t.Fatal(err)
			}
			last = task.GetStatus().GetState()
		} else if len(updates) > 0 {
			last = updates[len(updates)-1].GetStatusUpdate().GetStatus().GetState()
		}
		if last != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("%s: %v, %v", c.Binding(), last, err)
		}
	}
}

func TestA_10_CardsNameTheAddresses(t *testing.T) {
	target := serve(t, server.Config{}, upper(), gated(nil))
	for _, id := range []string{"upper", "gated"} {
		card, _, err := rig.PublicCard(t.Context(), target, id)
		if err != nil {
			t.Fatal(err)
		}
		urls := map[string]string{}
		for _, i := range card.GetSupportedInterfaces() {
			if i.GetTenant() != id || i.GetProtocolVersion() != "1.0" {
				t.Errorf("%v", i)
			}
			urls[i.GetProtocolBinding()] = i.GetUrl()
		}
		want := map[string]string{"GRPC": target.GRPC, "HTTP+JSON": target.HTTP, "JSONRPC": target.HTTP + "/" + id + "/rpc"}
		if diff := cmp.Diff(want, urls); diff != "" {
			t.Error(diff)
		}
	}
	_, _, err := rig.PublicCard(t.Context(), target, "")
	if f := rig.Fault(err); f == nil || f.HTTP != http.StatusNotFound {
		t.Errorf("the card of no agent: %v", f)
	}
}

func TestA_21_ForeignTasksAreUnknown(t *testing.T) {
	keys := []server.APIKey{
		{Name: "ann", SHA256: "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"}, // password
		{Name: "bob", SHA256: "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"}, // alice
	}
	target := serve(t, server.Config{Keys: keys}, upper())
	target.Key = "password"
	resp, err := rig.Clients(t, target)[0].Send(t.Context(), rig.Text("upper", "m", "x"))
	if err != nil {
		t.Fatal(err)
	}
	target.Key = "alice"
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		_, foreign := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()})
		_, unknown := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "nothing"})
		a, b := rig.Fault(foreign), rig.Fault(unknown)
		if a == nil || b == nil || a.Code != "NotFound" || a.Reason != b.Reason || strings.Replace(a.Message, resp.GetTask().GetId(), "nothing", 1) != b.Message {
			t.Errorf("%v, %v", a, b)
		}
		list, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
		if err != nil || list.GetTotalSize() != 0 {
			t.Errorf("%v %v", list, err)
		}
	})
}

func TestA_21_ConfigIsRefused(t *testing.T) {
	for name, c := range map[string]server.Config{
		"no agent":               {},
		"agent and agents":       {Agent: upper(), Agents: manager.New(manager.Config{})},
		"an id that is none":     {Agent: say("No Id", nil)},
		"the world without keys": {Agent: upper(), GRPC: server.NoListener, HTTP: "0.0.0.0:0"},
		"no address":             {Agent: upper(), GRPC: server.NoListener, HTTP: server.NoListener},
		"an address that cannot": {Agent: upper(), GRPC: server.NoListener, HTTP: "256.0.0.1:0"},
	} {
		if s, err := server.New(c); err == nil {
			t.Errorf("%s: accepted", name)
			s.Close()
		}
	}
}

func TestA_09_WaitTimeout(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	target := serve(t, server.Config{}, gated(gate))
	target.Headers = map[string]string{"Grpc-Timeout": "50m"} // gRPC's own clients stop waiting themselves
	for _, c := range rig.Clients(t, target)[1:] {
		_, err := c.Send(t.Context(), rig.Text("gated", "wait-"+c.Binding(), "x"))
		f := rig.Fault(err)
		if f == nil || f.Code != "DeadlineExceeded" || f.Reason != "WAIT_TIMEOUT" || c.Binding() == "rest" && f.HTTP != http.StatusGatewayTimeout {
			t.Fatalf("%s: %+v", c.Binding(), f)
		}
		var id string
		for _, v := range f.Details {
			id = v
		}
		task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
		if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING {
			t.Errorf("the task of %s does not go on: %v %v", c.Binding(), task, err)
		}
	}
}
