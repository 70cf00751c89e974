package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// counting yields updates 1 to n, then err.
func counting(n int64, err error) iter.Seq2[feed.Update, error] {
	return func(yield func(feed.Update, error) bool) {
		for i := range n {
			if !yield(update(i+1), nil) {
				return
			}
		}
		if err != nil {
			yield(feed.Update{}, err)
		}
	}
}

func update(seq int64) feed.Update {
	return feed.Update{Seq: seq, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{
		Task: &a2av1.Task{Id: strconv.FormatInt(seq, 10), Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING}},
	}}}
}

func TestA_01_Streams(t *testing.T) {
	var cursor int64
	p := &probe{
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
			return counting(3, nil), nil
		},
		subscribe: func(_ context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[feed.Update, error], error) {
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
	t.Run("A-15 a send with a cursor", func(t *testing.T) {
		var after int64
		p.stream = func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
			after = a2a.CursorOf(ctx)
			return counting(1, nil), nil
		}
		at := target
		at.Headers = map[string]string{"last-event-id": "17"}
		rig.Each(t, at, func(t *testing.T, c rig.Client) {
			after = 0
			if _, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x"))); err != nil || after != 17 {
				t.Errorf("cursor %d, %v", after, err)
			}
		})
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

// TestA_20_StreamBeginsInSilence: the headers of a stream are sent as soon as it is open,
// before there is an event; later errors are events.
func TestA_20_StreamBeginsInSilence(t *testing.T) {
	news := make(chan error)
	silent := func(ctx context.Context) (iter.Seq2[feed.Update, error], error) {
		return func(yield func(feed.Update, error) bool) {
			select {
			case err := <-news:
				yield(update(7), err)
			case <-ctx.Done():
				yield(feed.Update{}, ctx.Err())
			}
		}, nil
	}
	target := start(t, server.Config{Log: quiet(), Handler: &probe{
		stream: func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
			return silent(ctx)
		},
		subscribe: func(ctx context.Context, _ *a2av1.SubscribeToTaskRequest, _ int64) (iter.Seq2[feed.Update, error], error) {
			return silent(ctx)
		},
		process: func(ctx context.Context, _ *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error) {
			return func(yield func(*teamv1.ProcessStreamResponse, error) bool) {
				updates, _ := silent(ctx)
				for u, err := range updates {
					yield(&teamv1.ProcessStreamResponse{Event: &teamv1.Event{Seq: u.Seq}}, err)
				}
			}, nil
		},
	}})
	const rpc = `{"jsonrpc":"2.0","id":7,"method":%q,"params":{"id":"t1"}}`
	for _, c := range []struct{ name, path, body string }{
		{"subscribe", "/tasks/t1:subscribe", "{}"},
		{"send", "/message:stream", "{}"},
		{"process", "/team/v1/agents/a:processStream", "{}"},
		{"subscribe over JSON-RPC", "/rpc", fmt.Sprintf(rpc, "SubscribeToTask")},
		{"send over JSON-RPC", "/rpc", fmt.Sprintf(rpc, "SendStreamingMessage")},
		{"subscribe in 0.3", "/v1/tasks/t1:subscribe", "{}"},
		{"subscribe in 0.3 over JSON-RPC", "/rpc", fmt.Sprintf(rpc, "tasks/resubscribe")},
		{"send in 0.3 over JSON-RPC", "/rpc", strings.Replace(sendV03, "message/send", "message/stream", 1)},
	} {
		for _, fault := range []error{nil, a2aerror.TaskNotFound("t1")} {
			t.Run(fmt.Sprint(c.name, ", then ", fault), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, target.HTTP+c.path, strings.NewReader(c.body))
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
					t.Fatalf("%d %v", resp.StatusCode, resp.Header)
				}
				news <- fault
				b, err := io.ReadAll(resp.Body)
				if fault == nil && !strings.HasPrefix(string(b), "id: 7\n") || fault != nil && !strings.Contains(string(b), "TASK_NOT_FOUND") || err != nil {
					t.Errorf("%s %v", b, err)
				}
			})
		}
	}
	t.Run("gRPC", func(t *testing.T) {
		g, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		stream, err := a2av1.NewA2AServiceClient(g.Conn).SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		if md, err := stream.Header(); err != nil || len(md.Get("x-request-id")) == 0 {
			t.Fatalf("%v %v", md, err)
		}
		news <- nil
		if u, err := stream.Recv(); err != nil || u.GetTask().GetId() != "7" {
			t.Errorf("%v %v", u, err)
		}
	})
}

func TestA_22_StreamThatFails(t *testing.T) {
	p := &probe{stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		return counting(1, errors.New("the password is 1234")), nil
	}}
	target := start(t, server.Config{Handler: p, Log: quiet()})
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		got, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
		f := rig.Fault(err)
		if len(got) != 1 || f == nil || f.Code != "Internal" || f.Reason != "INTERNAL" || strings.Contains(f.Message, "the password") {
			t.Errorf("%d updates, %+v", len(got), f)
		}
	})
}

func TestA_22_Panics(t *testing.T) {
	p := &probe{
		get: func(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error) { panic("the password is 1234") },
		stream: func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
			return func(yield func(feed.Update, error) bool) {
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
			if f := rig.Fault(err); f == nil || f.Code != "Internal" || strings.Contains(f.Message, "the password") {
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
	p := &probe{stream: func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		return func(yield func(feed.Update, error) bool) {
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
	p := &probe{stream: func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		return func(yield func(feed.Update, error) bool) {
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

// flood sends more than the reader accepts until the stream is ended.
func flood(ended chan<- error) func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
	text := strings.Repeat("x", 64<<10)
	return func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		return func(yield func(feed.Update, error) bool) {
			begin := time.Now()
			for i := int64(1); ; i++ {
				u := update(i)
				u.Response.GetTask().ContextId = text
				if !yield(u, nil) {
					ended <- nil
					return
				}
				if time.Since(begin) > 20*time.Second {
					ended <- errors.New("the reader takes all")
					return
				}
			}
		}, nil
	}
}

// TestP10_StalledReaderIsCut: a reader that accepts no data is disconnected; over gRPC the
// error has the cursor to continue from.
func TestP10_StalledReaderIsCut(t *testing.T) {
	ended := make(chan error, 1)
	target := start(t, server.Config{Handler: &probe{stream: flood(ended)}, StallTime: 200 * time.Millisecond})
	t.Run("grpc", func(t *testing.T) {
		stream := eventError(t, target)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		last, err := int64(0), error(nil)
		for err == nil {
			var u *a2av1.StreamResponse
			if u, err = stream.Recv(); err == nil {
				last, _ = strconv.ParseInt(u.GetTask().GetId(), 10, 64)
			}
		}
		f := rig.Fault(rig.FromGRPC(err))
		if f.Code != "Unavailable" || f.Reason != "SLOW_READER" || f.Details["last_event_id"] != strconv.FormatInt(last, 10) || last == 0 {
			t.Errorf("behind %d: %+v", last, f)
		}
	})
	for _, path := range []string{"/message:stream", "/rpc"} {
		t.Run(path, func(t *testing.T) {
			body := "{}"
			if path == "/rpc" {
				body = `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{}}`
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("the stream ended as if it were complete")
			}
		})
	}
}

// unread begins a stream without reading it.
func eventError(t *testing.T, target rig.Target) grpc.ServerStreamingClient[a2av1.StreamResponse] {
	t.Helper()
	conn, err := grpc.NewClient(target.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := a2av1.NewA2AServiceClient(conn).SendStreamingMessage(t.Context(), rig.Text("", "m", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestA_19_ShutdownWithStalledReaders: who does not read is cut when the time to
// drain is over.
func TestA_19_ShutdownWithStalledReaders(t *testing.T) {
	ended := make(chan error, 1)
	told := make(chan struct{}, 1)
	p := &probe{stream: func(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		told <- struct{}{}
		return flood(ended)(ctx, req)
	}}
	target, stop := serve(t, server.Config{Handler: p, Settings: settings.Of(&teamv1.ServerSettings{ShutdownTimeout: durationpb.New(200 * time.Millisecond)})})
	stream := eventError(t, target)
	<-told
	stop()
	<-ended
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	if f := rig.Fault(rig.FromGRPC(err)); f.Code != "Unavailable" {
		t.Errorf("%+v", f)
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
