package server_test

import (
	"bufio"
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// counting yields updates 1 to n, then err.
func counting(n int64, err error) iter.Seq2[a2a.Update, error] {
	return func(yield func(a2a.Update, error) bool) {
		for i := range n {
			if !yield(update(i+1), nil) {
				return
			}
		}
		if err != nil {
			yield(a2a.Update{}, err)
		}
	}
}

func update(seq int64) a2a.Update {
	return a2a.Update{Seq: seq, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{
		Task: &a2av1.Task{Id: strconv.FormatInt(seq, 10), Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING}},
	}}}
}

func TestA_01_Streams(t *testing.T) {
	var cursor int64
	p := &probe{
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[a2a.Update, error], error) {
			return counting(3, nil), nil
		},
		subscribe: func(_ context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[a2a.Update, error], error) {
			cursor = after
			if req.GetId() != "t1" || req.GetTenant() != "team" {
				return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no %q of %q", req.GetId(), req.GetTenant())
			}
			return counting(2, nil), nil
		},
	}
	target := start(t, server.Config{Handler: p})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		t.Run("send", func(t *testing.T) {
			got, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
			want := []*a2av1.StreamResponse{update(1).Response, update(2).Response, update(3).Response}
			if err != nil || cmp.Diff(want, got, protocmp.Transform()) != "" {
				t.Errorf("%v %v", got, err)
			}
		})
		t.Run("subscribe behind a cursor", func(t *testing.T) {
			got, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Tenant: "team", Id: "t1"}, 41))
			if err != nil || len(got) != 2 || cursor != 41 {
				t.Errorf("%d updates, cursor %d, %v", len(got), cursor, err)
			}
		})
		t.Run("an error before the first event is plain", func(t *testing.T) {
			_, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Tenant: "team", Id: "t2"}, 0))
			f := rig.Fault(err)
			if f == nil || f.Code != "NotFound" || c.Binding() == "rest" && f.HTTP != 404 {
				t.Errorf("got %+v", f)
			}
		})
	})
	t.Run("A-07 subscribe by GET", func(t *testing.T) {
		c := rig.NewREST(target)
		c.GetSubscribe = true
		if got, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Tenant: "team", Id: "t1"}, 7)); err != nil || len(got) != 2 || cursor != 7 {
			t.Errorf("%d updates, cursor %d, %v", len(got), cursor, err)
		}
	})
	t.Run("a bad cursor is refused", func(t *testing.T) {
		resp, body := request(t, http.MethodGet, target.HTTP+"/team/tasks/t1:subscribe", "", map[string]string{"Last-Event-ID": "x"})
		if resp.StatusCode != http.StatusBadRequest || violation(body) != "Last-Event-ID" {
			t.Errorf("%d %v", resp.StatusCode, body)
		}
	})
	t.Run("A-20 headers and ids of SSE", func(t *testing.T) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+"/message:stream", strings.NewReader("{}"))
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("headers %v", resp.Header)
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Scan()
		if lines.Text() != "id: 1" {
			t.Errorf("first line %q", lines.Text())
		}
	})
}

func TestA_22_StreamThatFails(t *testing.T) {
	p := &probe{stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[a2a.Update, error], error) {
		return counting(1, errors.New("the password is 1234")), nil
	}}
	target := start(t, server.Config{Handler: p, Log: quiet()})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		got, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
		f := rig.Fault(err)
		if len(got) != 1 || f == nil || f.Code != "Internal" || f.Reason != "INTERNAL" || strings.Contains(f.Message, "1234") {
			t.Errorf("%d updates, %+v", len(got), f)
		}
	})
}

func TestA_22_Panics(t *testing.T) {
	p := &probe{
		get: func(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error) { panic("the password is 1234") },
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[a2a.Update, error], error) {
			return func(yield func(a2a.Update, error) bool) {
				yield(update(1), nil)
				panic("the password is 1234")
			}, nil
		},
		send: echo,
	}
	target := start(t, server.Config{Handler: p, Log: quiet()})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		check := func(err error) {
			t.Helper()
			if f := rig.Fault(err); f == nil || f.Code != "Internal" || strings.Contains(f.Message, "1234") {
				t.Errorf("got %+v", f)
			}
		}
		_, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
		check(err)
		_, err = rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
		check(err)
		if _, err := c.Send(t.Context(), rig.Text("", "m", "still there")); err != nil {
			t.Errorf("the server is gone: %v", err)
		}
	})
}

func TestA_09_ClientLeavesStream(t *testing.T) {
	left := make(chan error, 3)
	p := &probe{stream: func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[a2a.Update, error], error) {
		return func(yield func(a2a.Update, error) bool) {
			yield(update(1), nil)
			<-ctx.Done()
			left <- context.Cause(ctx)
		}, nil
	}}
	target := start(t, server.Config{Handler: p})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		for range c.Stream(ctx, rig.Text("", "m", "x")) {
			cancel()
			break
		}
		cancel()
		if cause := <-left; !errors.Is(cause, context.Canceled) {
			t.Errorf("cause %v", cause)
		}
	})
}

func TestA_19_ShutdownEndsStreams(t *testing.T) {
	open := make(chan struct{}, 3)
	p := &probe{stream: func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[a2a.Update, error], error) {
		return func(yield func(a2a.Update, error) bool) {
			yield(update(1), nil)
			open <- struct{}{}
			<-ctx.Done()
		}, nil
	}, send: func(ctx context.Context, _ *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
		open <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for _, blocking := range []bool{false, true} {
		target, stop := serve(t, server.Config{Handler: p})
		faults := make(chan *rig.Error, 3)
		clients := rig.Clients(t, target)
		for _, c := range clients {
			go func() {
				var err error
				if blocking {
					_, err = c.Send(t.Context(), rig.Text("", "m", "x"))
				} else {
					_, err = rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
				}
				faults <- rig.Fault(err)
			}()
		}
		for range clients {
			<-open
		}
		stop()
		for range clients {
			if f := <-faults; f == nil || f.Code != "Unavailable" || f.Reason != "SHUTTING_DOWN" {
				t.Errorf("blocking %v: got %+v", blocking, f)
			}
		}
	}
}

func TestS_61_ProcessStreamOverREST(t *testing.T) {
	var got *teamv1.ProcessStreamRequest
	p := &probe{process: func(_ context.Context, req *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error) {
		got = req
		return func(yield func(*teamv1.ProcessStreamResponse, error) bool) {
			yield(&teamv1.ProcessStreamResponse{TaskId: "t", Event: &teamv1.Event{Seq: 5}}, nil)
		}, nil
	}}
	target := start(t, server.Config{Handler: p})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+"/team/v1/agents/writer:processStream",
		strings.NewReader(`{"request":{"agentId":"other","key":"k"},"after":"4"}`))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	if lines.Text() != "id: 5" || got.GetRequest().GetAgentId() != "writer" || got.GetAfter() != 4 {
		t.Errorf("%q %v", lines.Text(), got)
	}
}
