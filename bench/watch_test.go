package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
)

// BenchmarkWatch is goal 12: one task's events to its readers over gRPC, from
// the moment the agent may speak to the last reader's end of the stream. The
// yardsticks are bare gRPC servers that know all events beforehand: one encodes
// each for each reader, one encodes each once. Nobody decodes.
func BenchmarkWatch(b *testing.B) {
	const most = 1000
	t := &measure.Table{
		Title: fmt.Sprintf("SubscribeToTask over gRPC, streams per task and owner raised to %d", most),
		Head:  "readers\tevents\trival\tdeliveries/s\tcpu/delivery\tallocs\tB\txeach\txonce",
		Goals: []string{
			"goal 12: readers=1000, rival=server: xeach >= 1.5", "goal 12: readers=1000, rival=server: xonce >= 0.85",
			"goal 12: readers=1, events=500, rival=server: deliveries/s >= 38,700", "38,700 is 100 times what the official Go SDK delivers",
		},
	}
	w := measure.BudgetOf(b)
	var alone []float64 // time of a delivery to one reader, by number of events
	for _, readers := range []int{1, 100, most} {
		for _, events := range []int{20, 500} {
			b.Run(fmt.Sprintf("subs=%d/events=%d", readers, events), func(b *testing.B) {
				if testing.Short() && readers == most {
					b.Skip("takes a minute; run without -short")
				}
				all := watchAll(b, w, readers, events, most)
				b.ReportMetric(0, "ns/op") // of the whole race: says nothing
				for i, name := range watchRivals {
					addWatched(t, readers, events, name, all[i], all)
				}
				b.ReportMetric(measure.Median(all[2], rate), "deliveries/s")
				b.ReportMetric(measure.Ratio(all[2], all[0], rate), "xeach")
				b.ReportMetric(measure.Ratio(all[2], all[1], rate), "xonce")
				if readers == 1 {
					alone = append(alone, measure.Median(all[2], measure.Each))
				}
			})
		}
	}
	if len(alone) == 2 {
		t.Goals = append(t.Goals, fmt.Sprintf("one reader: an event of 500 takes %.2f of the time of an event of 20", alone[1]/alone[0]))
	}
	t.Print()
}

var watchRivals = []string{"encode each", "encode once", "server"}

func addWatched(t *measure.Table, readers, events int, name string, own []measure.Figures, all [][]measure.Figures) {
	t.Add("%d\t%d\t%s\t%.0f\t%s\t%.1f\t%.0f\t%.2f\t%.2f", readers, events, name, measure.Median(own, rate), measure.Short(measure.Median(own, measure.CPU)),
		measure.Median(own, measure.Allocs), measure.Median(own, measure.Bytes), measure.Ratio(own, all[0], rate), measure.Ratio(own, all[1], rate))
}

// watchAll runs the rivals in turn.
func watchAll(b *testing.B, w measure.Budget, readers, events, most int) [][]measure.Figures {
	b.Helper()
	all := make([][]measure.Figures, len(watchRivals))
	for range measure.Rounds {
		for i := range watchRivals {
			begin := [](func(*testing.B, int, int) *show){
				func(b *testing.B, _, events int) *show { return hub(b, events, false) },
				func(b *testing.B, _, events int) *show { return hub(b, events, true) },
				func(b *testing.B, most, events int) *show { return speaker(b, events, most) },
			}[i]
			s := begin(b, most, events)
			all[i] = append(all[i], s.measure(b, w, readers))
			s.stop()
		}
	}
	return all
}

// show is a server with something to watch.
type show struct {
	addr   string
	events int
	// open makes what is watched; start begins it, once everybody is there.
	open func(ctx context.Context, conn *grpc.ClientConn) (req *a2av1.SubscribeToTaskRequest, start func(), err error)
	stop func()
}

const perConnection = 100 // streams

// measure shows again and again, to so many readers.
func (s *show) measure(b *testing.B, w measure.Budget, readers int) measure.Figures {
	b.Helper()
	conns := make([]*grpc.ClientConn, (readers+perConnection-1)/perConnection)
	for i := range conns {
		conns[i] = dial(b, s.addr)
	}
	defer func() {
		for _, c := range conns {
			_ = c.Close() // nothing is under way
		}
	}()
	s.once(b, conns, readers) // warms up
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used := measure.CPUTime()
	var took time.Duration
	n := 0
	for runs := 0; runs == 0 || w.Ops == 0 && took < w.Time || runs < w.Ops; runs++ {
		took += s.once(b, conns, readers)
		n += readers * s.events
	}
	used = measure.CPUTime() - used
	runtime.ReadMemStats(&after)
	return measure.Figures{
		Rate: float64(n) / took.Seconds(), CPU: used / time.Duration(n),
		Allocs: float64(after.Mallocs-before.Mallocs) / float64(n), Bytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}
}

// once lets everybody watch it once, and returns how long it took from its start.
func (s *show) once(b *testing.B, conns []*grpc.ClientConn, readers int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	req, start, err := s.open(ctx, conns[0])
	if err != nil {
		b.Fatal(err)
	}
	var there, done sync.WaitGroup
	there.Add(readers)
	for i := range readers {
		done.Go(func() {
			if n, err := watch(ctx, conns[i/perConnection], req, sync.OnceFunc(there.Done)); err != nil || n < s.events {
				b.Errorf("reader %d: %d events, %v", i, n, err)
			}
		})
	}
	there.Wait()
	begin := time.Now()
	start()
	done.Wait()
	took := time.Since(begin)
	if b.Failed() {
		b.FailNow()
	}
	return took
}

// watch reads a stream to its end and counts what follows its first message.
func watch(ctx context.Context, conn *grpc.ClientConn, req *a2av1.SubscribeToTaskRequest, there func()) (n int, err error) {
	defer there()
	desc := &grpc.StreamDesc{ServerStreams: true}
	stream, err := conn.NewStream(ctx, desc, a2av1.A2AService_SubscribeToTask_FullMethodName, grpc.ForceCodecV2(sealed{encoding.GetCodecV2(grpcproto.Name)}))
	if err == nil {
		err = stream.SendMsg(req)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for n = -1; err == nil; n++ {
		var size int
		if err = stream.RecvMsg(&size); n == -1 {
			there()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n - 1, err
}

// sealed is a codec that neither decodes what comes nor encodes what is encoded.
type sealed struct{ encoding.CodecV2 }

func (c sealed) Unmarshal(data mem.BufferSlice, v any) error {
	if size, ok := v.(*int); ok {
		*size = data.Len()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

func (c sealed) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(*[]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

const textBytes = 850 // of an event, of some 1,000 altogether

// hub is a yardstick.
func hub(b *testing.B, events int, once bool) *show {
	b.Helper()
	h := &hubServer{once: once}
	for i := range events {
		h.events = append(h.events, told(i))
	}
	h.encode()
	addr, stop := bare(b, func(s *grpc.Server) { a2av1.RegisterA2AServiceServer(s, h) },
		grpc.ForceServerCodecV2(sealed{encoding.GetCodecV2(grpcproto.Name)}))
	return &show{addr: addr, events: events, stop: stop, open: func(context.Context, *grpc.ClientConn) (*a2av1.SubscribeToTaskRequest, func(), error) {
		h.gate = make(chan struct{})
		return &a2av1.SubscribeToTaskRequest{Id: "t"}, sync.OnceFunc(func() { close(h.gate) }), nil
	}}
}

type hubServer struct {
	a2av1.UnimplementedA2AServiceServer

	once    bool
	events  []*a2av1.StreamResponse
	encoded [][]byte
	gate    chan struct{} // of the run that is on
}

// told is an event as the server tells it.
func told(i int) *a2av1.StreamResponse {
	run := &structpb.Struct{Fields: map[string]*structpb.Value{
		"seq": structpb.NewStringValue(fmt.Sprint(i)), "path": structpb.NewStringValue("bench"),
	}}
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
		TaskId: strings.Repeat("t", 36), ContextId: strings.Repeat("c", 36), Append: i > 0,
		Artifact: &a2av1.Artifact{ArtifactId: "text", Name: "result", Parts: agent.TextParts(strings.Repeat("x", textBytes))},
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{a2a.TeamRunURI: structpb.NewStructValue(run)}},
	}}}
}

func (h *hubServer) encode() {
	for _, ev := range h.events {
		b, _ := proto.Marshal(ev) // of valid text
		h.encoded = append(h.encoded, b)
	}
}

func (h *hubServer) SubscribeToTask(_ *a2av1.SubscribeToTaskRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	gate := h.gate
	if err := to.Send(told(0)); err != nil {
		return err
	}
	<-gate
	for i, ev := range h.events {
		var err error
		if h.once {
			err = to.SendMsg(&h.encoded[i])
		} else {
			err = to.Send(ev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// speaker is a team server whose agent says so many things.
func speaker(b *testing.B, events, most int) *show {
	b.Helper()
	a := &speech{n: events, text: strings.Repeat("x", textBytes), entered: make(chan struct{}, 1)}
	s, err := server.New(server.Config{Agent: a, Settings: &teamv1.ServerSettings{Grpc: loopback, Http: loopback, Streams: &teamv1.StreamSettings{PerTask: proto.Int32(int32(most)), PerCaller: proto.Int32(int32(most))}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return &show{addr: s.Addrs().GRPC, events: events, open: a.open, stop: func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("serving: %v", err)
		}
	}}
}

// speech is an agent that says something so many times, once it may.
type speech struct {
	n       int
	text    string
	entered chan struct{}
	gate    chan struct{} // of the run that is on
}

func (a *speech) open(ctx context.Context, conn *grpc.ClientConn) (*a2av1.SubscribeToTaskRequest, func(), error) {
	a.gate = make(chan struct{})
	resp, err := a2av1.NewA2AServiceClient(conn).SendMessage(ctx, &a2av1.SendMessageRequest{
		Message: message(time.Now().UnixNano()), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: true},
	})
	if err != nil {
		return nil, nil, err
	}
	<-a.entered
	return &a2av1.SubscribeToTaskRequest{Id: resp.GetTask().GetId()}, sync.OnceFunc(func() { close(a.gate) }), nil
}

func (a *speech) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: "bench", Name: "bench"}, nil
}

func (a *speech) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (a *speech) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		a.entered <- struct{}{}
		select {
		case <-a.gate:
		case <-ctx.Done():
			return
		}
		for range a.n {
			ev := &teamv1.Event{Scope: req.GetScope(), Agent: agent.Path(req), Kind: &teamv1.Event_Delta{
				Delta: &teamv1.Delta{ArtifactId: "text", Text: a.text},
			}}
			if !yield(ev, nil) {
				return
			}
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("done")}}), nil)
	}
}
