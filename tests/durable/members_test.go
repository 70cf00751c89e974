//go:build linux

package durable

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
)

// members are what the teams of the tests are made of: two agents behind our
// Agent service, one behind A2A, and a model server. What they are asked is
// counted here, whatever the journal says. A call belongs to the life of the
// server in which its connection was made, or began.
type members struct {
	teamv1.UnimplementedAgentServiceServer
	history *history
	gate    func(ctx context.Context, member, text string) error // holds a call; nil is a short time
	arrival bool                                                 // a call belongs to the life in which it comes, whatever its connection
	server  *grpc.Server
	address string
	gamma   *fakeagent.Agent
	llm     *fakellm.Server

	mu    sync.Mutex
	lives map[string]int // by remote address; guarded by mu
	seen  int            // requests of gamma that are in the history; guarded by mu
	asked int            // likewise of the model server; guarded by mu
}

// newMembers starts members that end with the test.
func newMembers(t *testing.T, h *history) *members {
	t.Helper()
	m := &members{history: h, server: grpc.NewServer(), lives: map[string]int{}, llm: fakellm.New(t)}
	pace := make(chan struct{})
	m.gamma = fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Gate: pace}})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address = l.Addr().String()
	teamv1.RegisterAgentServiceServer(m.server, m)
	m.llm.Answer("mind", func(r *fakellm.Request) fakellm.Turn {
		return fakellm.Turn{Text: mind(r.Last()), Chunks: 3, Delay: worth(r.Last())}
	})
	m.llm.Answer("lead", lead)
	m.llm.Answer("first", func(r *fakellm.Request) fakellm.Turn { return handsOver("led", "relay "+r.Last()) })
	m.llm.Answer("router", func(r *fakellm.Request) fakellm.Turn { return route(r.Last()) })
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() { _ = m.server.Serve(listener{l, m}) })
	work.Go(func() { beat(pace, stop) })
	t.Cleanup(func() {
		m.server.Stop()
		close(stop)
		work.Wait()
	})
	return m
}

// beat lets one task of gamma end every few milliseconds.
func beat(pace chan<- struct{}, stop <-chan struct{}) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		select {
		case pace <- struct{}{}:
		case <-stop:
			return
		}
	}
}

// listener notes in which life each connection is made.
type listener struct {
	net.Listener
	m *members
}

// Accept waits for a connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.m.mu.Lock()
		l.m.lives[c.RemoteAddr().String()] = l.m.history.lifeNow()
		l.m.mu.Unlock()
	}
	return c, err
}

func (m *members) lifeOf(ctx context.Context) int {
	if m.arrival {
		return m.history.lifeNow()
	}
	p, _ := peer.FromContext(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives[p.Addr.String()]
}

// Info describes a member.
func (m *members) Info(_ context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	return &teamv1.InfoResponse{Info: &teamv1.AgentInfo{Id: req.GetAgentId(), Name: req.GetAgentId(), Description: "says what it was told"}}, nil
}

// HealthCheck says that a member is healthy.
func (m *members) HealthCheck(context.Context, *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	return &teamv1.HealthCheckResponse{Healthy: true, Usable: true}, nil
}

// Cancel is not needed here.
func (m *members) Cancel(context.Context, *teamv1.CancelRequest) (*teamv1.CancelResponse, error) {
	return &teamv1.CancelResponse{State: a2av1.TaskState_TASK_STATE_CANCELED}, nil
}

// ProcessStream answers with what the member was told. The same key gets the
// same task with the same events.
func (m *members) ProcessStream(req *teamv1.ProcessStreamRequest, stream grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	r, ctx := req.GetRequest(), stream.Context()
	text := agent.Text(r.GetMessage())
	m.history.add(entry{Op: opCall, Life: m.lifeOf(ctx), Member: r.GetAgentId(), Key: r.GetKey(), Text: text})
	for i, e := range script(r, echo(r.GetAgentId(), text)) {
		if i == 2 {
			if err := m.labour(ctx, r.GetAgentId(), text); err != nil {
				return err
			}
		}
		if e.Seq = int64(i + 1); e.GetSeq() <= req.GetAfter() {
			continue
		}
		if err := stream.Send(&teamv1.ProcessStreamResponse{Event: e, TaskId: "peer-" + r.GetKey()}); err != nil {
			return err
		}
	}
	return nil
}

// labour keeps a call for a while.
func (m *members) labour(ctx context.Context, member, text string) error {
	if m.gate != nil {
		return m.gate(ctx, member, text)
	}
	return agent.Sleep(ctx, worth(text))
}

// script are the events of a member's task.
func script(r *teamv1.ProcessRequest, answer string) []*teamv1.Event {
	begin, rest := answer[:len(answer)/2], answer[len(answer)/2:]
	all := []*teamv1.Event{
		{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: "peer-" + r.GetKey(), Message: proto.CloneOf(r.GetMessage())}}},
		{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "answer", Text: begin}}},
		{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "answer", Text: rest}}},
		{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: &a2av1.Message{
			MessageId: "answer-" + r.GetKey(), Role: a2av1.Role_ROLE_AGENT, Parts: agent.TextParts(answer),
		}}}}},
	}
	for _, e := range all {
		e.Time = timestamppb.Now()
	}
	return all
}

// worth is how long a piece of work takes: 2 to 20 ms, the same every time.
func worth(text string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return time.Duration(2+h.Sum32()%19) * time.Millisecond
}

// collect moves what gamma and the model server were asked into the history, as
// late calls of the life that ends now. No server may run; what one has sent
// before it died may still be on its way in.
func (m *members) collect() {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	_ = m.llm.Quiet(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.gamma.Requests("")
	for _, r := range all[m.seen:] {
		if req, ok := r.Body.(*a2av1.SendMessageRequest); ok {
			m.history.add(entry{Op: opCall, Late: true, Member: "gamma", Key: req.GetMessage().GetMessageId(), Text: agent.Text(req.GetMessage())})
		}
	}
	m.seen = len(all)
	asked := m.llm.Requests()
	for _, r := range asked[m.asked:] {
		key := ""
		for name, values := range r.Header {
			if strings.EqualFold(name, "idempotency-key") {
				key = values[0]
			}
		}
		m.history.add(entry{At: r.Arrived, Op: opCall, Late: true, Member: r.Model, Key: key, Text: r.Last()})
	}
	m.asked = len(asked)
}

// What the members answer.
func echo(member, text string) string { return member + "<" + text + ">" }
func mind(text string) string         { return echo("mind", text) }
func gamma(text string) string        { return "echo: " + text }

// route is the choice of the router of the team desk: alpha, beta, gamma, end. The last response follows
// the task in the same message.
func route(last string) fakellm.Turn {
	next := `"finish"`
	switch {
	case strings.Contains(last, "\n\nLast response, by alpha "):
		next = `["beta"]`
	case strings.Contains(last, "\n\nLast response, by beta "):
		next = `["gamma"]`
	}
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "route", Arguments: fmt.Sprintf(`{"next": %s, "reason": "its turn"}`, next)}}, Delay: worth(last)}
}

// lead is a turn of the leader of the team led: alpha and gamma at the same time,
// then beta with what they said, whose words are the answer, or go to the next one
// where there is one.
func lead(r *fakellm.Request) fakellm.Turn {
	var said []string
	for _, m := range r.Messages {
		if m.Role == "tool" {
			_, text, _ := strings.Cut(m.Text, "\n\n")
			said = append(said, text)
		}
	}
	in := r.Messages[0].Text
	t := fakellm.Turn{Delay: worth(r.Last())}
	switch len(said) {
	case 0:
		t.Calls = []fakellm.Call{gives("alpha", "one "+in), gives("gamma", "two "+in)}
	case 2:
		t.Calls = []fakellm.Call{gives("beta", "three "+said[0]+" "+said[1])}
	default:
		if slices.Contains(r.Tools, "transfer_to_agent") {
			return handsOver("thinker", said[2])
		}
		t.Text = said[2]
	}
	return t
}

func gives(member, task string) fakellm.Call {
	return fakellm.Call{ID: "call-" + member, Name: "delegate_to_" + member, Arguments: fmt.Sprintf(`{"task": %q}`, task)}
}

func handsOver(to, message string) fakellm.Turn {
	arguments := fmt.Sprintf(`{"agent_name": %q, "message": %q}`, to, message)
	return fakellm.Turn{Calls: []fakellm.Call{{ID: "to-" + to, Name: "transfer_to_agent", Arguments: arguments}}}
}
