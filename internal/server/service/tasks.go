package service

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/pkg/a2a"
)

// taskService is the A2A service and the Agent service.
type taskService struct {
	Handler
	chain *call.Chain
}

// SendMessage sends a message to an agent. For a JSON-RPC notification it does not wait for
// the task, because its caller reads no response.
func (t taskService) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	if call.InboundOf(ctx).Notified {
		if req.GetConfiguration() == nil {
			req.Configuration = &a2av1.SendMessageConfiguration{}
		}
		req.Configuration.ReturnImmediately = true
	}
	return t.Handler.SendMessage(ctx, req)
}

// ListTasks returns a page of tasks. Over gRPC a page size of 0 means the default: the
// official Go client sends it if its caller sets no page size.
func (t taskService) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	if call.InboundOf(ctx).Binding == call.GRPC && req.GetPageSize() == 0 {
		req.PageSize = nil
	}
	return t.Handler.ListTasks(ctx, req)
}

// SendStreamingMessage sends a message to an agent and streams the updates of its task.
func (t taskService) SendStreamingMessage(req *a2av1.SendMessageRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	return call.Stream(to, t.chain, "SendStreamingMessage", req, func(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		after, err := call.InboundOf(ctx).After()
		if err != nil {
			return nil, err
		}
		return t.Handler.SendStreamingMessage(a2a.WithCursor(ctx, after), req)
	})
}

// SubscribeToTask streams the updates of an existing task.
func (t taskService) SubscribeToTask(req *a2av1.SubscribeToTaskRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	return call.Stream(to, t.chain, "SubscribeToTask", req, func(ctx context.Context, req *a2av1.SubscribeToTaskRequest) (iter.Seq2[feed.Update, error], error) {
		after, err := call.InboundOf(ctx).After()
		if err != nil {
			return nil, err
		}
		return t.Handler.SubscribeToTask(ctx, req, after)
	})
}

// ProcessStream sends one message to an agent and streams the events of its run.
func (t taskService) ProcessStream(req *teamv1.ProcessStreamRequest, to grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	return call.Stream(to, t.chain, "ProcessStream", req, func(ctx context.Context, req *teamv1.ProcessStreamRequest) (_ iter.Seq2[*teamv1.ProcessStreamResponse, error], err error) {
		if req.After, err = call.InboundOf(ctx).Behind(req.GetAfter()); err != nil {
			return nil, err
		}
		return t.Handler.ProcessStream(ctx, req)
	})
}
