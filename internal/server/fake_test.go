package server_test

import (
	"context"
	"iter"
	"net"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// probe is a handler whose methods a test sets, so that the test covers only the transport.
// Methods that are not set panic.
type probe struct {
	service.Handler
	calls     atomic.Int64
	send      func(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	stream    func(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error)
	subscribe func(context.Context, *a2av1.SubscribeToTaskRequest, int64) (iter.Seq2[feed.Update, error], error)
	get       func(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	cancel    func(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	list      func(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	card      func(context.Context, string) (*a2av1.AgentCard, error)
	extended  func(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
	info      func(context.Context, *teamv1.InfoRequest) (*teamv1.InfoResponse, error)
	process   func(context.Context, *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error)
	health    func(context.Context, *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error)
}

func (p *probe) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	p.calls.Add(1)
	return p.send(ctx, req)
}

func (p *probe) SendStreamingMessage(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
	p.calls.Add(1)
	return p.stream(ctx, req)
}

func (p *probe) SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[feed.Update, error], error) {
	p.calls.Add(1)
	return p.subscribe(ctx, req, after)
}

func (p *probe) GetTask(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	p.calls.Add(1)
	return p.get(ctx, req)
}

func (p *probe) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	p.calls.Add(1)
	return p.cancel(ctx, req)
}

func (p *probe) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	p.calls.Add(1)
	return p.list(ctx, req)
}

func (p *probe) Card(ctx context.Context, tenant string) (card *a2av1.AgentCard, public bool, err error) {
	card, err = p.card(ctx, tenant)
	return card, true, err
}

func (p *probe) GetExtendedAgentCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	return p.extended(ctx, req)
}

func (p *probe) Info(ctx context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	return p.info(ctx, req)
}

func (p *probe) ProcessStream(ctx context.Context, req *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error) {
	return p.process(ctx, req)
}

func (p *probe) HealthCheck(ctx context.Context, req *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	return p.health(ctx, req)
}

// echo answers SendMessage with the message's text.
func echo(_ context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	m := &a2av1.Message{MessageId: "reply", Role: a2av1.Role_ROLE_AGENT, Parts: req.GetMessage().GetParts()}
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: m}}, nil
}

// task is what GetTask finds.
func task(_ context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	if req.GetId() != "t1" {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no %q", req.GetId())
	}
	return &a2av1.Task{Id: "t1", Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING}}, nil
}

// start serves config on two free ports of the loopback until the test ends.
func start(t *testing.T, config server.Config) rig.Target {
	t.Helper()
	if config.Log == nil {
		config.Log = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	}
	target, stop := serve(t, config)
	t.Cleanup(stop)
	return target
}

// serve serves config until stop, which waits for the end.
func serve(t *testing.T, config server.Config) (target rig.Target, stop func()) {
	t.Helper()
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	l := server.Listeners{GRPC: listen(t), HTTP: listen(t)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	return rig.Target{GRPC: l.GRPC.Addr().String(), HTTP: "http://" + l.HTTP.Addr().String()}, stop
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
