package tests

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// streamCycles is the environment variable with how often a stream is cut, over
// each binding.
const streamCycles = "TEAM_STREAM_CYCLES"

// speaker is an agent that says as many things as it is allowed to, and then
// answers. It begins anew in each process.
type speaker struct {
	id      string
	text    func(i int) string
	allowed chan int // so many more; closed: it answers
}

func newSpeaker(id string) *speaker {
	return &speaker{id: id, text: func(i int) string { return fmt.Sprint("piece ", i, ". ") }, allowed: make(chan int)}
}

func (a *speaker) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: a.id, Name: a.id}, nil
}

func (a *speaker) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (a *speaker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		said := 0
		for {
			select {
			case n, more := <-a.allowed:
				if !more {
					yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("done")}}), nil)
					return
				}
				for range n {
					d := &teamv1.Delta{ArtifactId: "text", Text: a.text(said), Restart: said == 0}
					if !yield(&teamv1.Event{Scope: req.GetScope(), Agent: agent.Path(req), Kind: &teamv1.Event_Delta{Delta: d}}, nil) {
						return
					}
					said++
				}
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// cursorOf is the sequence behind a response; 0 where more of its event follows.
func cursorOf(u *a2av1.StreamResponse) int64 {
	switch k := u.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		return a2a.RunOf(k.Task.GetMetadata()).GetSeq()
	case *a2av1.StreamResponse_StatusUpdate:
		return a2a.RunOf(k.StatusUpdate.GetMetadata()).GetSeq()
	case *a2av1.StreamResponse_ArtifactUpdate:
		return a2a.RunOf(k.ArtifactUpdate.GetMetadata()).GetSeq()
	}
	return 0
}

// told is what a reader has put together over several streams: only what came
// with its cursor counts, the rest is told again.
type told struct {
	task    *a2av1.Task
	updates []*a2av1.StreamResponse
	cursor  int64
	open    []*a2av1.StreamResponse // of an event that is not told to its end
}

// take reports whether the task has ended.
func (r *told) take(t *testing.T, u *a2av1.StreamResponse) (over bool) {
	t.Helper()
	if task := u.GetTask(); task != nil {
		if r.task != nil {
			t.Errorf("the task is told again behind %d", r.cursor)
		}
		r.task, r.cursor = task, cursorOf(u)
		return false
	}
	r.open = append(r.open, u)
	if seq := cursorOf(u); seq != 0 {
		if seq <= r.cursor {
			t.Errorf("%d comes behind %d", seq, r.cursor)
		}
		r.updates, r.cursor, r.open = append(r.updates, r.open...), seq, nil
	}
	return isEnd(u)
}

// isEnd reports whether a response is the end of its task.
func isEnd(u *a2av1.StreamResponse) bool {
	switch u.GetStatusUpdate().GetStatus().GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED:
		return true
	}
	return false
}

// cut reads at most n updates behind the cursor and breaks.
func (r *told) cut(t *testing.T, c rig.Client, id string, n int) (over bool) {
	t.Helper()
	r.open = nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for u, err := range c.Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, r.cursor) {
		if err != nil {
			t.Fatalf("behind %d: %v", r.cursor, err)
		}
		if r.take(t, u) {
			return true
		}
		if n--; n <= 0 {
			return false
		}
	}
	return false
}

// since is what followed in a log the task as the reader was told it.
func (r *told) since(whole []*a2av1.StreamResponse) []*a2av1.StreamResponse {
	seen := a2a.RunOf(r.task.GetMetadata()).GetSeq()
	i := slices.IndexFunc(whole, func(u *a2av1.StreamResponse) bool { return cursorOf(u) > seen })
	for i > 0 && cursorOf(whole[i-1]) == 0 { // the same event's
		i--
	}
	return whole[max(i, 0):]
}

// lines are updates as texts to compare.
func lines(updates []*a2av1.StreamResponse) []string {
	out := make([]string, len(updates))
	for i, u := range updates {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(u)
		out[i] = string(b)
	}
	return out
}

func atLeast(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// begin sends a message and does not wait.
func begin(t testing.TB, c rig.Client, tenant, messageID string) string {
	t.Helper()
	req := rig.Text(tenant, messageID, "x")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := c.Send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask().GetId()
}

// TestP5_CutAndResubscribe cuts a stream again and again while the task goes on.
func TestP5_CutAndResubscribe(t *testing.T) {
	t.Parallel()
	cycles := atLeast(t, streamCycles, 200)
	for i, binding := range []string{"grpc", "rest", "jsonrpc"} {
		t.Run(binding, func(t *testing.T) {
			a := newSpeaker("speaker")
			target := rig.Serve(t, server.Config{Agent: a})
			c := rig.Clients(t, target)[i]
			id := begin(t, c, "speaker", "m")
			random := rand.New(rand.NewPCG(uint64(i), 5))
			r, n := &told{}, 0
			over := r.cut(t, c, id, 1) // the task, before anything is said
			var allowing sync.WaitGroup
			for ; !over && n < cycles; n++ {
				allowing.Go(func() { a.allowed <- 4 }) // while the reader subscribes, reads and leaves
				over = r.cut(t, c, id, 1+random.IntN(4))
			}
			for range cycles { // what is still to be said
				a.allowed <- 0
			}
			allowing.Wait()
			close(a.allowed)
			if !r.cut(t, c, id, 1<<30) {
				t.Fatal("the stream ended before the task")
			}
			whole, err := rig.Collect(c.Stream(t.Context(), rig.Text("speaker", "m", "x"))) // the log from its beginning
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(lines(r.since(whole)), lines(r.updates)); diff != "" {
				t.Errorf("%d cycles (-log +told):\n%.2000s", n, diff)
			}
			t.Logf("%d cycles, %d updates", n, len(r.updates))
		})
	}
}

// TestP5_FromReplicaToReplica cuts streams and goes on elsewhere.
func TestP5_FromReplicaToReplica(t *testing.T) {
	t.Parallel()
	place := rig.PostgreSQL(t)
	a := newSpeaker("speaker") // whichever replica drives it
	var clients []rig.Client
	for range 2 {
		kept, done := place.Open(t)
		defer done()
		target, stop := rig.Start(t, server.Config{Agent: a, Store: kept})
		defer stop()
		clients = append(clients, rig.Clients(t, target)...)
	}
	id := begin(t, clients[0], "speaker", "m")
	r := &told{}
	r.cut(t, clients[0], id, 1)
	var allowing sync.WaitGroup
	for n := range 60 {
		allowing.Go(func() { a.allowed <- 4 })
		r.cut(t, clients[n%len(clients)], id, 3)
	}
	for range 60 {
		a.allowed <- 0
	}
	allowing.Wait()
	close(a.allowed)
	if !r.cut(t, clients[5], id, 1<<30) {
		t.Fatal("the stream ended before the task")
	}
	whole, err := rig.Collect(clients[3].Stream(t.Context(), rig.Text("speaker", "m", "x")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines(r.since(whole)), lines(r.updates)); diff != "" {
		t.Errorf("(-log +told):\n%.2000s", diff)
	}
}

// TestP10_DefaultLimits opens as many streams of a task as there may be, and one more.
func TestP10_DefaultLimits(t *testing.T) {
	t.Parallel()
	a := newSpeaker("speaker")
	target := rig.Serve(t, server.Config{Agent: a})
	clients := rig.Clients(t, target)
	id := begin(t, clients[0], "speaker", "m")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var there, done sync.WaitGroup
	for i := range 64 {
		there.Add(1)
		done.Go(func() {
			first := sync.OnceFunc(there.Done)
			for _, err := range clients[i%3].Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				first()
			}
			first()
		})
	}
	there.Wait()
	for _, c := range clients {
		_, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0))
		f := rig.Fault(err)
		if f == nil || f.Code != "ResourceExhausted" || f.Reason != "INSUFFICIENT_RESOURCES" || f.Details["max_streams"] != "64" || f.Retry <= 0 || c.Binding() != "grpc" && f.HTTP != 429 {
			t.Errorf("%s: the 65th stream: %+v", c.Binding(), f)
		}
	}
	cancel()
	done.Wait()
	close(a.allowed)
}

// TestA_14_Cursors asks each binding for what lies behind cursors of all kinds.
func TestA_14_Cursors(t *testing.T) {
	t.Parallel()
	a := newSpeaker("speaker")
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, a, says("echo"))})
	clients := rig.Clients(t, target)
	id := begin(t, clients[0], "speaker", "m")
	a.allowed <- 5
	ids := map[string]string{"works": id}
	resp, err := clients[0].Send(t.Context(), rig.Text("echo", "m2", "x"))
	if err != nil {
		t.Fatal(err)
	}
	ids["ended"] = resp.GetTask().GetId()
	end := a2a.RunOf(resp.GetTask().GetMetadata()).GetSeq()
	subscribe := func(t *testing.T, binding int, task, cursor string, n int) ([]*a2av1.StreamResponse, *rig.Error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		at := target
		at.Headers = map[string]string{"last-event-id": cursor}
		var got []*a2av1.StreamResponse
		for u, err := range rig.Clients(t, at)[binding].Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: task}, 0) {
			if err != nil {
				return got, rig.Fault(err)
			}
			if got = append(got, u); len(got) == n {
				break
			}
		}
		return got, nil
	}
	for i, c := range clients {
		t.Run(c.Binding(), func(t *testing.T) {
			for _, cursor := range []string{"", "0", "00", "100", "9223372036854775807", "9223372036854775808", strings.Repeat("9", 100)} {
				got, f := subscribe(t, i, id, cursor, 1)
				if f != nil || len(got) != 1 || got[0].GetTask().GetId() != id {
					t.Errorf("behind %q: %v %v", cursor, got, f)
				}
			}
			for _, cursor := range []string{"x", "-1", "+1", "1.0", "1e3", "0x10", " ", "1,2", "1 2", "٣"} {
				if c.Binding() == "grpc" && strings.ContainsAny(cursor, "٣") {
					continue // no metadata
				}
				got, f := subscribe(t, i, id, cursor, 1)
				if cursor == " " && f == nil {
					continue // HTTP takes the space away
				}
				if f == nil || f.Reason != "INVALID_REQUEST" || !slices.Equal(f.Fields, []string{"Last-Event-ID"}) || c.Binding() == "rest" && f.HTTP != 400 {
					t.Errorf("behind %q: %v %+v", cursor, got, f)
				}
			}
			got, f := subscribe(t, i, id, "3", 3)
			if f != nil || len(got) != 3 || got[0].GetArtifactUpdate() == nil || cursorOf(got[0]) != 4 {
				t.Errorf("behind 3: %v %v", got, f)
			}
			got, f = subscribe(t, i, ids["ended"], "1", 0)
			if f != nil || len(got) == 0 || !isEnd(got[len(got)-1]) || got[0].GetTask() != nil {
				t.Errorf("an ended task behind 1: %v %v", got, f)
			}
			for _, cursor := range []string{"", fmt.Sprint(end), fmt.Sprint(end + 1)} {
				if got, f = subscribe(t, i, ids["ended"], cursor, 0); f == nil || f.Reason != "UNSUPPORTED_OPERATION" || len(got) > 0 {
					t.Errorf("an ended task behind %q, %d is its end: %v %v", cursor, end, got, f)
				}
			}
		})
	}
	close(a.allowed)
}

// TestA_15_RepeatedStream repeats a send whose stream broke, with its cursor.
func TestA_15_RepeatedStream(t *testing.T) {
	t.Parallel()
	for i, binding := range []string{"grpc", "rest", "jsonrpc"} {
		t.Run(binding, func(t *testing.T) {
			a := newSpeaker("speaker")
			target := rig.Serve(t, server.Config{Agent: a})
			stream := func(cursor int64, n int, r *told) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				at := target
				at.Headers = map[string]string{"last-event-id": strconv.FormatInt(cursor, 10)}
				for u, err := range rig.Clients(t, at)[i].Stream(ctx, rig.Text("speaker", "m", "x")) {
					if err != nil {
						t.Fatal(err)
					}
					r.take(t, u)
					if n--; n == 0 {
						return
					}
				}
			}
			go func() {
				a.allowed <- 20
				close(a.allowed)
			}()
			r, whole := &told{}, &told{}
			stream(0, 5, r)
			stream(r.cursor, 7, r)
			stream(r.cursor, 0, r)
			stream(0, 0, whole)
			if diff := cmp.Diff(lines(whole.updates), lines(r.updates)); diff != "" {
				t.Errorf("(-whole +pieces):\n%.2000s", diff)
			}
			if task, err := rig.Clients(t, target)[i].List(t.Context(), &a2av1.ListTasksRequest{}); err != nil || task.GetTotalSize() != 1 {
				t.Errorf("%v %v", task, err)
			}
		})
	}
}

// TestS_25_A_13_RestartUnderStream has the server go while clients read, drop
// their stream, and read on behind it from the one that follows.
func TestS_25_A_13_RestartUnderStream(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		kept, done := place.Open(t)
		a := newSpeaker("speaker")
		target, stop := rig.Start(t, server.Config{Agent: a, Store: kept})
		clients := rig.Clients(t, target)
		id := begin(t, clients[0], "speaker", "m")
		readers := make([]*told, len(clients))
		var reading, there sync.WaitGroup
		for i, c := range clients {
			readers[i] = &told{}
			there.Add(1)
			reading.Go(func() {
				first := sync.OnceFunc(there.Done)
				for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
					if f := rig.Fault(err); f != nil {
						if f.Code != "Unavailable" || f.Reason != "SHUTTING_DOWN" {
							t.Errorf("%s ends with %+v", c.Binding(), f)
						}
						return
					}
					readers[i].take(t, u)
					first()
				}
				t.Errorf("%s ends without an error", c.Binding())
			})
		}
		there.Wait()
		a.allowed <- 10
		stop()
		reading.Wait()
		done()

		kept, done = place.Open(t)
		defer done()
		b := newSpeaker("speaker")
		target, stop = rig.Start(t, server.Config{Agent: b, Store: kept})
		defer stop()
		go func() {
			b.allowed <- 10
			close(b.allowed)
		}()
		clients = rig.Clients(t, target)
		whole, err := rig.Collect(clients[0].Stream(t.Context(), rig.Text("speaker", "m", "x")))
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range clients {
			r := readers[i]
			for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, r.cursor) {
				if err != nil {
					t.Fatal(err)
				}
				r.take(t, u)
			}
			if diff := cmp.Diff(lines(r.since(whole)), lines(r.updates)); diff != "" {
				t.Errorf("%s (-log +told):\n%.2000s", c.Binding(), diff)
			}
		}
	})
}

// TestS_25_ClientDropsStream leaves a stream that a message began.
func TestS_25_ClientDropsStream(t *testing.T) {
	t.Parallel()
	for i, binding := range []string{"grpc", "rest", "jsonrpc"} {
		t.Run(binding, func(t *testing.T) {
			a := newSpeaker("speaker")
			target := rig.Serve(t, server.Config{Agent: a})
			c := rig.Clients(t, target)[i]
			ctx, cancel := context.WithCancel(t.Context())
			r := &told{}
			for u, err := range c.Stream(ctx, rig.Text("speaker", "m", "x")) {
				if err != nil {
					t.Fatal(err)
				}
				if r.take(t, u); len(r.updates) == 0 {
					continue
				}
				break
			}
			cancel()
			a.allowed <- 5 // it works on
			close(a.allowed)
			r.cut(t, c, r.task.GetId(), 1<<30)
			var text strings.Builder
			for _, u := range r.updates {
				if p := u.GetArtifactUpdate(); p != nil && !p.GetLastChunk() {
					text.WriteString(p.GetArtifact().GetParts()[0].GetText())
				}
			}
			if want := "piece 0. piece 1. piece 2. piece 3. piece 4. "; text.String() != want {
				t.Errorf("read %q, want %q", text.String(), want)
			}
		})
	}
}
