package tests

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// leastBudget is the smallest budget of memory that a configuration may have.
var leastBudget = &teamv1.LimitSettings{MaxBytesInFlight: proto.Int64(32 << 20)}

// large is the text of a message of 1.9 MB, whose answer has 3.8 MB with the history of its task.
var large = strings.Repeat("abcdefgh", 1_900_000/8)

// memoryOf returns a meter, and a function that returns how many bytes are held for each use.
func memoryOf(t *testing.T) (metric.Meter, func() map[string]int64) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), func() map[string]int64 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		held := map[string]int64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if g, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "team_server.memory.held" {
					for _, p := range g.DataPoints {
						kind, _ := p.Attributes.Value("kind")
						held[kind.AsString()] = p.Value
					}
				}
			}
		}
		return held
	}
}

// released waits until no memory is held.
func released(t *testing.T, held func() map[string]int64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	for {
		left := false
		for _, n := range held() {
			left = left || n != 0
		}
		if !left {
			return
		}
		if agent.Sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("still held: %v", held())
		}
	}
}

// outOfMemory fails unless an error says that an account has used up its memory, and when to try again.
func outOfMemory(t *testing.T, err error) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil || f.Reason != agent.ReasonInsufficientResources || f.Retry <= 0 || f.Details["limit"] != "max_bytes_in_flight" || f.Details["value"] != "33554432" {
		t.Fatalf("the error is %+v", f)
	}
}

// everyClient returns clients of all bindings and versions.
func everyClient(t *testing.T, target rig.Target) []rig.Client {
	return append(rig.Clients(t, target), rig.ClientsV03(t, target)...)
}

// idOf returns the binding of a client as a part of an id.
func idOf(c rig.Client) string { return strings.ReplaceAll(c.Binding(), "/", "-") }

// TestMemoryOfAccounts has one account send large messages to an agent that does not end. What does not fit into its
// share is refused over every binding, until the first ones have ended. Another account sends large messages in the
// meantime, and the first one can cancel.
func TestMemoryOfAccounts(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	slow := &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return agent.NewMessage("done"), nil
	}}
	meter, held := memoryOf(t)
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, slow, says("echo")), Meter: meter, Settings: &teamv1.ServerSettings{Auth: rig.Auth(twoAccounts...), Limits: leastBudget}})
	acme, err := rig.NewGRPC(target.As("acme", "ann"))
	if err != nil {
		t.Fatal(err)
	}
	defer acme.Close()
	var calling sync.WaitGroup
	defer calling.Wait()
	defer open()
	answers := make(chan error, 12)
	for i := range cap(answers) {
		calling.Go(func() {
			_, err := acme.Send(t.Context(), rig.Text("slow", fmt.Sprint("large-", i), large))
			answers <- err
		})
	}
	outOfMemory(t, <-answers)
	for n := 2; n < cap(answers)-4; n++ {
		outOfMemory(t, <-answers)
	}
	for _, c := range everyClient(t, target.As("acme", "ann")) {
		t.Run(c.Binding(), func(t *testing.T) {
			_, err := c.Send(t.Context(), rig.Text("slow", "more-"+idOf(c), large))
			if f := rig.Fault(err); c.Binding() == "jsonrpc/0.3" && f != nil && f.Code == "ResourceExhausted" {
				return // the body that tells the version was not read
			}
			outOfMemory(t, err)
		})
	}
	for _, c := range everyClient(t, target.As("other", "bob")) {
		t.Run("other account over "+c.Binding(), func(t *testing.T) {
			if _, err := c.Send(t.Context(), rig.Text("echo", "large-"+idOf(c), large)); err != nil {
				t.Error(err)
			}
		})
	}
	header := map[string]string{"Content-Type": "application/json"}
	answer, err := target.As("acme", "ann").Do(t.Context(), http.MethodPost, "/slow/message:send", []byte(`{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "`+large+`"}]}}`), header)
	if err != nil || answer.Status != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("%v: %+v", err, answer)
	}
	if _, err := acme.Cancel(t.Context(), &a2av1.CancelTaskRequest{Tenant: "slow", Id: "none"}); rig.Fault(err) == nil || rig.Fault(err).Reason != "TASK_NOT_FOUND" {
		t.Errorf("canceling: %v", err)
	}
	open()
	calling.Wait()
	if _, err := acme.Send(t.Context(), rig.Text("echo", "again", large)); err != nil {
		t.Errorf("after all have ended: %v", err)
	}
	released(t, held)
}

// TestLoneLargeAnswer: an account that holds nothing gets an answer of 3.8 MB over every binding with the smallest
// budget, as an answer and in a stream.
func TestLoneLargeAnswer(t *testing.T) {
	t.Parallel()
	meter, held := memoryOf(t)
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Meter: meter, Settings: &teamv1.ServerSettings{Auth: rig.Auth(twoAccounts...), Limits: leastBudget}})
	for _, c := range everyClient(t, target.As("acme", "ann")) {
		t.Run(c.Binding(), func(t *testing.T) {
			resp, err := c.Send(t.Context(), rig.Text("echo", "send-"+idOf(c), large))
			if err != nil || proto.Size(resp) < 2*len(large) {
				t.Fatalf("%d bytes, %v", proto.Size(resp), err)
			}
			for _, err := range c.Stream(t.Context(), rig.Text("echo", "stream-"+idOf(c), large)) {
				if err != nil {
					t.Error(err)
				}
			}
			task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: resp.GetTask().GetId()})
			if err != nil || proto.Size(task) < 2*len(large) {
				t.Errorf("%d bytes, %v", proto.Size(task), err)
			}
		})
	}
	released(t, held)
}

// TestEightLargeMembers has eight members of a team work with a message of 1.9 MB at the same time, for which the
// smallest budget has no room: they follow each other.
func TestEightLargeMembers(t *testing.T) {
	t.Parallel()
	meter, held := memoryOf(t)
	m := rig.Manager(t, says("echo"))
	c := workflow.Config{}
	var members []team.Member
	for i := range 8 {
		id := fmt.Sprint("m", i)
		if err := m.Register(id, says(id)); err != nil {
			t.Fatal(err)
		}
		members = append(members, team.Member{Agent: id})
		c.Steps = append(c.Steps, workflow.Step{ID: id, Member: id})
	}
	w, err := workflow.New(c)
	if err != nil {
		t.Fatal(err)
	}
	all, err := team.New(team.Config{ID: "eight", Mode: "workflow", Members: members, Scheduler: w, Registry: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("eight", all); err != nil {
		t.Fatal(err)
	}
	target := rig.Serve(t, server.Config{Agents: m, Meter: meter, Settings: &teamv1.ServerSettings{Auth: rig.Auth(twoAccounts...), Limits: leastBudget}})
	client := rig.NewREST(target.As("acme", "ann"))
	resp, err := client.Send(t.Context(), rig.Text("eight", "large", large))
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("%v: %v", resp.GetTask().GetStatus().GetState(), err)
	}
	released(t, held)
}

// TestClientsThatDoNotRead has clients not read answers of 3.8 MB, and others leave. They are disconnected after the
// time in which a stream must be read, and what they held is free again.
func TestClientsThatDoNotRead(t *testing.T) {
	meter, held := memoryOf(t)
	target := rig.Serve(t, server.Config{
		Agents:    rig.Manager(t, says("echo")),
		Meter:     meter,
		StallTime: 300 * time.Millisecond,
		Settings:  &teamv1.ServerSettings{Auth: rig.Auth(twoAccounts...), Limits: leastBudget},
	})
	client := rig.NewREST(target.As("acme", "ann"))
	resp, err := client.Send(t.Context(), rig.Text("echo", "large", large))
	if err != nil {
		t.Fatal(err)
	}
	id := resp.GetTask().GetId()
	for method, req := range map[string]proto.Message{
		a2av1.A2AService_GetTask_FullMethodName: &a2av1.GetTaskRequest{Id: id}, teamv1.MonitorService_WatchTask_FullMethodName: &teamv1.WatchTaskRequest{TaskId: id},
	} {
		t.Run("grpc "+method, func(t *testing.T) {
			for range 3 { // one after the other: a refusal would leave the connection open
				_, _ = io.Copy(io.Discard, callWithoutReading(t, target, method, req)) // until the server closes it
				released(t, held)
			}
		})
	}
	t.Run("rest leaves", func(t *testing.T) {
		for range 5 {
			conn := dial(t, strings.TrimPrefix(target.HTTP, "http://"))
			_, _ = fmt.Fprintf(conn, "GET /tasks/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer acme/ann\r\nA2A-Version: 1.0\r\n\r\n", id)
			_, _ = io.ReadFull(conn, make([]byte, 100))
			_ = conn.Close()
		}
		released(t, held)
	})
	t.Run("rest, a part of a message", func(t *testing.T) {
		conn := dial(t, strings.TrimPrefix(target.HTTP, "http://"))
		_, _ = fmt.Fprintf(conn, "POST /echo/message:send HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer acme/ann\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n{")
		_ = conn.Close()
		released(t, held)
	})
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// callWithoutReading makes a call over gRPC on a connection of its own that grants the server no window.
func callWithoutReading(t *testing.T, target rig.Target, method string, req proto.Message) net.Conn {
	t.Helper()
	conn := dial(t, target.GRPC)
	var out, head bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer, fields := http2.NewFramer(&out, nil), hpack.NewEncoder(&head)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "localhost"},
		{Name: ":path", Value: method}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		{Name: "authorization", Value: "Bearer acme/ann"}, {Name: "a2a-version", Value: "1.0"},
	} {
		if err := fields.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	body, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	_ = framer.WriteSettingsAck()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true})
	_ = framer.WriteData(1, true, append([]byte{0, 0, 0, 0, byte(len(body))}, body...))
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	return conn
}
