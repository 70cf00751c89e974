package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// chatterbox says a thousand things of every kind, 25 each time it may: text that
// grows and begins anew, what it does, and artifacts.
func chatterbox(may <-chan struct{}, filler string) speaker {
	return speaker{id: "chatterbox", speak: func(ctx context.Context, req *teamv1.ProcessRequest, emit func(*teamv1.Event) bool) *teamv1.Reply {
		id := agent.From(ctx).ID(req.GetScope(), "artifact", 1)
		for i := range 1000 {
			if i%25 == 0 {
				select {
				case <-may:
				case <-ctx.Done():
					return nil
				}
			}
			text := fmt.Sprint(i, " ", filler)
			ev := &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: id, Text: text, Restart: i%50 == 0}}}
			switch i % 10 {
			case 3:
				ev = &teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: agent.NewMessage(text)}}}
			case 7:
				ev = &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
					Artifact: &a2av1.Artifact{ArtifactId: "drawing", Parts: agent.TextParts(text)}, Append: i > 10,
				}}}
			}
			if !emit(ev) {
				return nil
			}
		}
		return &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("said")}}
	}}
}

// follower reads a task from somewhere on its way.
type follower struct {
	how, way, tenant string
	updates          []*a2av1.StreamResponse
}

// follows reads to the end; each is called behind every update.
func (f *follower) follows(t *testing.T, by map[string]rig.Client, id string, each func(n int)) {
	for u, err := range by[f.way].Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Tenant: f.tenant, Id: id}, 0) {
		if err != nil {
			t.Errorf("%s: %v", f.how, err)
			return
		}
		f.updates = append(f.updates, u)
		each(len(f.updates))
	}
}

// tells wants what a reader was told to make the task, once it was told it first.
func (f *follower) tells(t *testing.T, task *a2av1.Task) {
	t.Helper()
	var v view
	for _, u := range f.updates {
		if err := v.take(u); err != nil {
			t.Errorf("%s: %v", f.how, err)
			return
		}
	}
	if len(f.updates) == 0 || f.updates[0].GetTask().GetId() != task.GetId() {
		t.Errorf("%s is told %d updates, the first of %q", f.how, len(f.updates), f.updates[:min(1, len(f.updates))])
		return
	}
	if diff := sameTask(v.task, task); diff != "" {
		t.Errorf("%s (-task +told):\n%.2000s", f.how, diff)
	}
}

// ways are the forms of a subscription.
func ways(t *testing.T, target rig.Target) map[string]rig.Client {
	clients := rig.Clients(t, target)
	get := rig.NewREST(target)
	get.GetSubscribe = true
	return map[string]rig.Client{"grpc": clients[0], "rest POST": clients[1], "rest GET": get, "jsonrpc": clients[2]}
}

// begun returns the id of a new task of the chatterbox, which works: what comes next waits for the test.
func begun(t *testing.T, c rig.Client) string {
	t.Helper()
	req := rig.Text("chatterbox", "m", "x")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := c.Send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	id := resp.GetTask().GetId()
	for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if max(u.GetTask().GetStatus().GetState(), u.GetStatusUpdate().GetStatus().GetState()) == a2av1.TaskState_TASK_STATE_WORKING {
			break
		}
	}
	return id
}

// TestA_07_SnapshotAndUpdates: whoever joins a task in the middle of a thousand
// events, in whatever form, is told the task first and then exactly what follows;
// put together it is what GetTask says.
func TestA_07_SnapshotAndUpdates(t *testing.T) {
	for _, place := range sample.Of(t, []func(testing.TB) rig.Place{rig.Memory, rig.SQLite}) {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			may := make(chan struct{}, 100)
			s, _ := at.Open(t)
			target := rig.Serve(t, server.Config{Agents: rig.Manager(t, chatterbox(may, "")), Store: s})
			by := ways(t, target)
			id := begun(t, by["grpc"])
			var followers []*follower
			for round := range 3 { // each form three times, at another moment
				for way := range by {
					for _, tenant := range []string{"", "chatterbox"} {
						followers = append(followers, &follower{how: fmt.Sprintf("%s of tenant %q, round %d", way, tenant, round), way: way, tenant: tenant})
					}
				}
			}
			var there, reading sync.WaitGroup
			first := &follower{how: "the first", way: "grpc"}
			first.follows(t, by, id, func(n int) {
				if n%20 != 1 { // it goes on 25 events with each 20 that were read
					return
				}
				switch i := n / 20; {
				case i < len(followers): // one after the other joins the race
					there.Add(1)
					reading.Go(func() { followers[i].follows(t, by, id, once(there.Done)) })
				case i == len(followers):
					there.Wait() // before it ends
				}
				may <- struct{}{}
			})
			reading.Wait()
			task, err := by["jsonrpc"].Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range append(followers, first) {
				f.tells(t, task)
				if len(f.updates) == 0 {
					continue
				}
				if diff := cmp.Diff(texts(behind(first.updates, seqOf(f.updates[0]))), texts(f.updates[1:])); diff != "" {
					t.Errorf("%s is told otherwise than who was there before (-before +after):\n%.2000s", f.how, diff)
				}
			}
		})
	}
}

// once calls done with the first update.
func once(done func()) func(int) {
	return func(n int) {
		if n == 1 {
			done()
		}
	}
}

// behind are the updates behind a sequence.
func behind(all []*a2av1.StreamResponse, seq int64) []*a2av1.StreamResponse {
	last := seq // what tells no sequence belongs to the next that does
	for i, u := range all {
		if n := seqOf(u); n > 0 {
			last = n
		}
		if last > seq {
			for ; i > 1 && seqOf(all[i-1]) == 0; i-- { // begins earlier
			}
			return all[i:]
		}
	}
	return nil
}

func texts(all []*a2av1.StreamResponse) []string {
	out := make([]string, len(all))
	for i, u := range all {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(u)
		out[i] = fmt.Sprint(string(b), err)
	}
	return out
}

// TestA_08_AHundredReaders: over all bindings they are told the same in the same
// order. One that never reads holds up neither them nor the task, and is told why
// it is cut.
func TestA_08_AHundredReaders(t *testing.T) {
	may := make(chan struct{})
	cut := logged{"SLOW_READER", make(chan struct{}, 10)}
	target := rig.Serve(t, server.Config{
		Log:       zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), cut, zap.InfoLevel)),
		Agents:    rig.Manager(t, chatterbox(may, strings.Repeat("x", 512))),
		StallTime: 5 * time.Second,
		Settings:  &teamv1.ServerSettings{Streams: &teamv1.StreamSettings{PerTask: proto.Int32(200)}},
	})
	by := ways(t, target)
	id := begun(t, by["grpc"])
	unread := neverReads(t, target, id)
	followers := make([]*follower, 100/sample.Stride())
	var there, reading sync.WaitGroup
	forms := []string{"grpc", "rest POST", "rest GET", "jsonrpc"}
	for i := range followers {
		f := &follower{how: fmt.Sprint("reader ", i, " over ", forms[i%4]), way: forms[i%4]}
		followers[i] = f
		there.Add(1)
		reading.Go(func() { f.follows(t, by, id, once(there.Done)) })
	}
	there.Wait()
	close(may)
	reading.Wait()
	task, err := by["grpc"].Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	want := texts(followers[0].updates[1:])
	for _, f := range followers {
		f.tells(t, task)
		if !slices.Equal(want, texts(f.updates[1:])) {
			t.Errorf("%s is told something else", f.how)
		}
	}
	<-cut.seen
	told := 0
	for ; err == nil; told++ {
		_, err = unread.Recv()
	}
	if f := rig.Fault(rig.FromGRPC(err)); told >= len(want) || f == nil || f.Reason != "SLOW_READER" || f.Details["last_event_id"] == "" {
		t.Errorf("who does not read has got %d updates of %d, and: %v", told, len(want), err)
	}
}

// logged receives when a word is logged.
type logged struct {
	word string
	seen chan struct{}
}

func (l logged) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.word) {
		l.seen <- struct{}{}
	}
	return len(line), nil
}

func (logged) Sync() error { return nil }

// neverReads subscribes and takes no more than fits on the way.
func neverReads(t *testing.T, target rig.Target, id string) grpc.ServerStreamingClient[a2av1.StreamResponse] {
	t.Helper()
	conn, err := grpc.NewClient(target.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := a2av1.NewA2AServiceClient(conn).SubscribeToTask(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	return stream
}
