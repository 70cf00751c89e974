package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
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
	s := &teamv1.ServerSettings{}
	proto.Merge(s, c.Settings)
	s.Grpc, s.Http = "127.0.0.1:0", "127.0.0.1:0"
	c.Agents, c.Settings = m, s
	started, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- started.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return rig.Target{GRPC: started.Addrs().GRPC, HTTP: started.Addrs().URL}
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

func TestA_22_AnAgentsFaultShowsNothing(t *testing.T) {
	target := serve(t, server.Config{}, say("broken", func(context.Context, string) (string, error) {
		return "", errors.New("the password is 1234")
	}), say("panics", func(context.Context, string) (string, error) { panic("the password is 1234") }))
	rig.Each(t, target, func(t *testing.T, client rig.Client) {
		for _, id := range []string{"broken", "panics"} {
			resp, err := client.Send(t.Context(), rig.Text(id, "fault-"+id+client.Binding(), "x"))
			if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED || strings.Contains(fmt.Sprint(resp), "the password") {
				t.Errorf("%s: %v %v", id, resp, err)
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
			tenant := "" // it is part of the URL: some clients do not read it
			if i.GetProtocolBinding() == "GRPC" {
				tenant = id
			}
			if i.GetTenant() != tenant || i.GetProtocolVersion() != "1.0" {
				t.Errorf("%v", i)
			}
			urls[i.GetProtocolBinding()] = i.GetUrl()
		}
		want := map[string]string{"GRPC": target.GRPC, "HTTP+JSON": target.HTTP + "/" + id, "JSONRPC": target.HTTP + "/" + id + "/rpc"}
		if diff := cmp.Diff(want, urls); diff != "" {
			t.Error(diff)
		}
	}
	_, _, err := rig.PublicCard(t.Context(), target, "")
	if f := rig.Fault(err); f == nil || f.HTTP != http.StatusNotFound {
		t.Errorf("the card of no agent: %v", f)
	}
}

func TestA_21_T_1_T_3_ForeignTasksAreUnknown(t *testing.T) {
	keys := []*teamv1.ApiKey{
		{Name: "ann", Sha256: "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"}, // password
		{Name: "bob", Sha256: "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"}, // alice
	}
	target := serve(t, server.Config{Settings: rig.Keys(keys...)}, upper())
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
		"an invalid id":          {Agent: say("No Id", nil)},
		"the world without keys": {Agent: upper(), Settings: &teamv1.ServerSettings{Grpc: "off", Http: "0.0.0.0:0"}},
		"no port":                {Agent: upper(), Settings: &teamv1.ServerSettings{Grpc: "off", Http: "127.0.0.1"}},
		"an address that cannot": {Agent: upper(), Settings: &teamv1.ServerSettings{Grpc: "off", Http: "256.0.0.1:0"}},
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
	target.Headers = map[string]string{"Grpc-Timeout": "500m"} // gRPC's own clients stop waiting themselves
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
