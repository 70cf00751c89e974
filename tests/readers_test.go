package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/race"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// lazy is a reader that stops after its first event, until it is told to go on.
type lazy struct {
	told
	binding string
	awake   chan struct{}
	err     error // how its stream ended
}

// read follows a task: one event, and after the pause all there is.
func (r *lazy) read(t *testing.T, target rig.Target, id string, stopped func()) {
	next, closeIt, err := r.open(t, target, id)
	if err != nil {
		t.Errorf("%s: %v", r.binding, err)
		stopped()
		return
	}
	defer closeIt()
	for first := true; ; first = false {
		u, err := next()
		if err != nil {
			r.err = err
			return
		}
		if r.take(t, u) {
			return
		}
		if first {
			stopped()
			<-r.awake
		}
	}
}

// open begins a stream whose client takes nothing that it is not asked for.
func (r *lazy) open(t *testing.T, target rig.Target, id string) (next func() (*a2av1.StreamResponse, error), closeIt func(), err error) {
	if r.binding == "grpc" {
		return lazyGRPC(t, target, id)
	}
	return lazyHTTP(t, target, id, r.binding == "jsonrpc")
}

func lazyGRPC(t *testing.T, target rig.Target, id string) (func() (*a2av1.StreamResponse, error), func(), error) {
	conn, err := grpc.NewClient("passthrough:///"+target.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	if err != nil {
		return nil, nil, err
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "a2a-version", "1.0")
	s, err := a2av1.NewA2AServiceClient(conn).SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id})
	return func() (*a2av1.StreamResponse, error) {
		u, err := s.Recv()
		return u, rig.FromGRPC(err)
	}, func() { _ = conn.Close() }, err
}

func lazyHTTP(t *testing.T, target rig.Target, id string, rpc bool) (func() (*a2av1.StreamResponse, error), func(), error) {
	dialer := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	path, body := "/tasks/"+id+":subscribe", "{}"
	if rpc {
		path, body = "/rpc", `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"`+id+`"}}`
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	lines := newLazyEvents(resp.Body, rpc)
	return lines.next, func() {
		_ = resp.Body.Close() // cut or read to its end
		transport.CloseIdleConnections()
	}, nil
}

// lazyEvents reads server-sent events one by one.
type lazyEvents struct {
	from *lineReader
	rpc  bool
}

func newLazyEvents(r io.Reader, rpc bool) *lazyEvents { return &lazyEvents{&lineReader{r: r}, rpc} }

func (e *lazyEvents) next() (*a2av1.StreamResponse, error) {
	for {
		line, err := e.from.line()
		if err != nil {
			return nil, err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		if e.rpc {
			data = data[bytes.Index(data, []byte(`"result":`))+len(`"result":`) : len(data)-1]
		}
		u := &a2av1.StreamResponse{}
		return u, wire.Unmarshal(data, u)
	}
}

// lineReader reads lines, and no more of its source than it has to.
type lineReader struct {
	r    io.Reader
	rest []byte
}

func (l *lineReader) line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.rest, '\n'); i >= 0 {
			line := l.rest[:i]
			l.rest = l.rest[i+1:]
			return line, nil
		}
		b := make([]byte, 4096)
		n, err := l.r.Read(b)
		if l.rest = append(l.rest, b[:n]...); n == 0 && err != nil {
			return nil, err
		}
	}
}

// clocked is a speaker whose words say when they were said.
func clocked(id string, size int) *speaker {
	a := newSpeaker(id)
	filler := strings.Repeat("x", size)
	a.text = func(int) string { return strconv.FormatInt(time.Now().UnixNano(), 10) + " " + filler }
	return a
}

// punctual reads a task to its end, and returns the sequences it was told and how
// late each event came. after is called behind each.
func punctual(t *testing.T, c rig.Client, id string, there, after func()) (seqs []int64, late []time.Duration) {
	for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
		if err != nil {
			t.Errorf("%s: %v", c.Binding(), err)
			break
		}
		there()
		seqs = append(seqs, cursorOf(u))
		if a := u.GetArtifactUpdate().GetArtifact(); a != nil {
			said, _, _ := strings.Cut(a.GetParts()[0].GetText(), " ")
			if ns, err := strconv.ParseInt(said, 10, 64); err == nil {
				late = append(late, time.Since(time.Unix(0, ns)))
				after()
			}
		}
	}
	there()
	return seqs, late
}

func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// audience follows tasks to their end, a third over each binding. Each task says
// the next when all who follow it were told the last: what is late is then late
// on its way.
type audience struct {
	seqs [][]int64 // by reader: what it was told
	late []time.Duration
}

func listen(t *testing.T, target rig.Target, ids []string, agents []*speaker, n, events int) *audience {
	t.Helper()
	a := &audience{seqs: make([][]int64, n)}
	heard := make([]chan struct{}, len(ids))
	for i := range heard {
		heard[i] = make(chan struct{}, n)
	}
	var mu sync.Mutex
	var reading, there sync.WaitGroup
	clients := rig.Clients(t, target)
	more := connections(t, target, "grpc", n) // there are only so many streams of one
	for i := range n {
		there.Add(1)
		reading.Go(func() {
			task := i % len(ids)
			c := clients[i/len(ids)%len(clients)]
			if c.Binding() == "grpc" {
				c = more[i%len(more)]
			}
			seqs, late := punctual(t, c, ids[task], sync.OnceFunc(there.Done), func() { heard[task] <- struct{}{} })
			mu.Lock()
			defer mu.Unlock()
			a.seqs[i] = seqs
			a.late = append(a.late, late...)
		})
	}
	there.Wait()
	for i, agent := range agents {
		reading.Go(func() { agent.converse(t, events, n/len(ids), heard[i]) })
	}
	reading.Wait()
	return a
}

// converse says things one by one, each when so many have heard the last.
func (a *speaker) converse(t *testing.T, n, hearers int, heard <-chan struct{}) {
	defer close(a.allowed)
	for range n {
		a.allowed <- 1
		for range hearers {
			select {
			case <-heard:
			case <-time.After(time.Minute):
				t.Error("a reader does not hear what is said")
				return
			}
		}
	}
}

// TestP10_StalledReaders has readers stop in the middle of a stream, beside
// others that read on.
func TestP10_StalledReaders(t *testing.T) {
	stall(t, crowd{stalled: 50, lively: 20 / sample.Stride(), events: 150, size: 8192, limit: 2 * time.Second})
}

// TestA_08_ThousandSubscribers has 1,000 streams of one task, of which 100 are
// never read: all others are told the same, in the same order, and nothing is left
// behind. The limit of streams of a task is raised to that.
func TestA_08_ThousandSubscribers(t *testing.T) {
	before, start := runtime.NumGoroutine(), time.Now()
	t.Run("A-08 P10 the crowd", func(t *testing.T) {
		stall(t, crowd{stalled: 100 / sample.Stride(), lively: 900 / sample.Stride(), alone: true, events: 30, size: 24 << 10, limit: 10 * time.Second})
	})
	patience := time.Now().Add(10 * time.Second)
	for now := range time.Tick(10 * time.Millisecond) {
		after := runtime.NumGoroutine()
		if after <= before {
			t.Logf("%v; %d goroutines before, %d after", now.Sub(start).Round(time.Millisecond), before, after)
			return
		}
		if now.After(patience) {
			t.Fatalf("%d goroutines are left, %d were there before", after, before)
		}
	}
}

// crowd is who follows a task.
type crowd struct {
	stalled int  // readers that stop behind the first event
	lively  int  // readers of each task that read on
	alone   bool // there is one task; else another one is followed beside it
	events  int
	size    int           // of an event, in bytes
	limit   time.Duration // after which who does not read is cut; the lively must read within it on a busy machine
}

// stall has a crowd follow a task, and wants the stalled cut, each where it can go
// on, and the lively told everything.
func stall(t *testing.T, crowd crowd) {
	core, logs := observer.New(zapcore.InfoLevel)
	agents := []*speaker{clocked("a", crowd.size), clocked("b", crowd.size), clocked("c", crowd.size)}
	target := rig.Serve(t, server.Config{
		Agents:    rig.Manager(t, agents[0], agents[1], agents[2]),
		StallTime: crowd.limit,
		Log:       zap.New(core),
		Settings: &teamv1.ServerSettings{
			Log:     &teamv1.LogSettings{Sampling: &teamv1.LogSampling{Enabled: proto.Bool(false)}}, // each line is counted
			Streams: &teamv1.StreamSettings{PerTask: proto.Int32(1200), PerCaller: proto.Int32(1200)},
		},
	})
	c := rig.Clients(t, target)[0]
	ids := make([]string, len(agents))
	for i, a := range agents {
		ids[i] = begin(t, c, a.id, a.id)
	}
	if !crowd.alone {
		before := listen(t, target, ids[2:], agents[2:], crowd.lively, crowd.events)
		t.Logf("without: %d events, p99 %v late", len(before.late), p99(before.late))
	}

	before := heap()
	lazies := make([]*lazy, crowd.stalled)
	var reading, stopped sync.WaitGroup
	for i := range lazies {
		lazies[i] = &lazy{binding: []string{"grpc", "rest", "jsonrpc"}[i%3], awake: make(chan struct{})}
		stopped.Add(1)
		reading.Go(func() { lazies[i].read(t, target, ids[0], sync.OnceFunc(stopped.Done)) })
	}
	stopped.Wait()
	start := time.Now()
	tasks := 2
	if crowd.alone {
		tasks = 1
	}
	beside := listen(t, target, ids[:tasks], agents[:tasks], tasks*crowd.lively, crowd.events)
	t.Logf("beside %d that stalled: %d events, p99 %v late", crowd.stalled, len(beside.late), p99(beside.late))
	for i, seqs := range beside.seqs {
		if !slices.Equal(seqs, beside.seqs[i%tasks]) || len(seqs) != 1+crowd.events+2 {
			t.Errorf("reader %d was told %d times, want %d", i, len(seqs), 1+crowd.events+2)
		}
	}
	held := heap()
	cut := func() int { return logs.FilterField(zap.String("reason", "SLOW_READER")).Len() }
	for now := range time.Tick(10 * time.Millisecond) {
		if cut() == crowd.stalled {
			break
		}
		if now.Sub(start) > 2*time.Minute {
			t.Errorf("%d of %d readers were cut", cut(), crowd.stalled)
			break
		}
	}
	each := (int64(held) - int64(before)) / int64(crowd.stalled)
	t.Logf("%d were cut within %v; %d KiB held for each, clients included", cut(), time.Since(start).Round(time.Millisecond), each>>10)
	if each > 1<<20 {
		t.Errorf("a stalled reader holds %d bytes", each)
	}
	for _, l := range lazies {
		close(l.awake)
	}
	reading.Wait()
	whole, err := rig.Collect(c.Stream(t.Context(), rig.Text("a", "a", "x")))
	if err != nil {
		t.Fatal(err)
	}
	resumed(t, target, ids[0], lazies, whole)
}

// resumed wants each lazy reader cut, and the rest of the task behind its cursor.
func resumed(t *testing.T, target rig.Target, id string, lazies []*lazy, whole []*a2av1.StreamResponse) {
	t.Helper()
	clients := rig.Clients(t, target)
	for i, l := range lazies {
		f := rig.Fault(l.err)
		switch {
		case l.err == nil:
			t.Errorf("reader %d (%s) was not cut", i, l.binding)
			continue
		case l.binding == "grpc" && (f.Code != "Unavailable" || f.Reason != "SLOW_READER" || f.Details["last_event_id"] != fmt.Sprint(l.cursor)):
			t.Errorf("reader %d behind %d ends with %+v", i, l.cursor, f)
		case l.binding != "grpc" && !errors.Is(l.err, io.ErrUnexpectedEOF) && !errors.Is(l.err, syscall.ECONNRESET):
			t.Errorf("reader %d (%s) ends with %v", i, l.binding, l.err)
		}
		if !l.cut(t, clients[i%len(clients)], id, 1<<30) {
			t.Errorf("reader %d (%s) does not get the end", i, l.binding)
		}
		if want := l.since(whole); !slices.Equal(lines(l.updates), lines(want)) {
			t.Errorf("reader %d (%s) was told %d updates, want %d", i, l.binding, len(l.updates), len(want))
		}
	}
}

// heap is what is in use after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestP9_IdleStreams keeps many streams of waiting tasks open, and then has
// something to say to each.
func TestP9_IdleStreams(t *testing.T) {
	idle := atLeast(t, idleStreams, 2000/sample.Stride())
	for _, c := range []struct {
		binding string
		n       int
		most    uint64 // bytes for each, of client and server
	}{{"grpc", idle, 48 << 10}, {"rest", idle / 5, 120 << 10}} { // the client has some 20 KiB of it
		t.Run(c.binding, func(t *testing.T) {
			tasks := min(c.n, 500)
			asks, err := scripted.New(scripted.Config{ID: "asks", Steps: []*teamv1.ScriptedStep{
				{Do: &teamv1.ScriptedStep_Ask{Ask: "who?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			target := rig.Serve(t, server.Config{Agent: asks, Settings: &teamv1.ServerSettings{Streams: &teamv1.StreamSettings{PerCaller: proto.Int32(int32(c.n)), PerTask: proto.Int32(int32(c.n))}}})
			ids := make([]string, tasks)
			clients := connections(t, target, c.binding, c.n)
			for i := range ids {
				resp, err := clients[0].Send(t.Context(), rig.Text("", fmt.Sprint("m", i), "x"))
				if err != nil {
					t.Fatal(err)
				}
				ids[i] = resp.GetTask().GetId()
			}
			before := heap()
			var there, done sync.WaitGroup
			var mu sync.Mutex
			var late []time.Duration
			var said time.Time // guarded by mu
			for i := range c.n {
				there.Add(1)
				done.Go(func() {
					end := waitFor(t, clients[i%len(clients)], ids[i%tasks], sync.OnceFunc(there.Done))
					mu.Lock()
					defer mu.Unlock()
					late = append(late, end.Sub(said))
				})
			}
			there.Wait()
			each := (heap() - before) / uint64(c.n)
			t.Logf("%d streams of %d tasks: %.1f KiB each, client and server", c.n, tasks, float64(each)/1024)
			if each > c.most && !race.Enabled {
				t.Errorf("a stream takes %d bytes, want at most %d", each, c.most)
			}
			mu.Lock()
			said = time.Now()
			mu.Unlock()
			answerAll(t, clients[0], ids)
			done.Wait()
			t.Logf("all were told to the end, p99 after the first answer %v", p99(late).Round(time.Millisecond))
		})
	}
}

// idleStreams is the environment variable with how many.
const idleStreams = "TEAM_IDLE_STREAMS"

// connections are clients for so many streams.
func connections(t *testing.T, target rig.Target, binding string, n int) []rig.Client {
	t.Helper()
	if binding == "rest" {
		return []rig.Client{rig.NewREST(target)}
	}
	var clients []rig.Client
	for range (n + 99) / 100 {
		c, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return clients
}

// waitFor follows a task that asks to its end, and returns when that came. It
// keeps nothing of what it reads.
func waitFor(t *testing.T, c rig.Client, id string, there func()) time.Time {
	defer there()
	for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
		if err != nil {
			t.Error(err)
			break
		}
		there()
		if isEnd(u) {
			return time.Now()
		}
	}
	t.Errorf("task %s: its end was not told", id)
	return time.Now()
}

func answerAll(t *testing.T, c rig.Client, ids []string) {
	t.Helper()
	for i, id := range ids {
		req := rig.Text("", fmt.Sprint("answer", i), "me")
		req.Message.TaskId = id
		req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
		if _, err := c.Send(context.WithoutCancel(t.Context()), req); err != nil {
			t.Error(err)
		}
	}
}
