package server

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/a2a"
)

// taskService is the A2A service and the Agent service. gRPC calls the methods of streams here; JSON-RPC and REST call the
// unexported ones of Server, because they write server-sent events.
type taskService struct {
	Handler
	s *Server
}

// SendMessage sends a message to an agent. For a JSON-RPC notification it does not wait for
// the task, because its caller reads no response.
func (t taskService) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	if inboundOf(ctx).notified {
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
	if inboundOf(ctx).binding == bindingGRPC && req.GetPageSize() == 0 {
		req.PageSize = nil
	}
	return t.Handler.ListTasks(ctx, req)
}

// SendStreamingMessage sends a message to an agent and streams the updates of its task.
func (t taskService) SendStreamingMessage(req *a2av1.SendMessageRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	return t.s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return t.s.sendStreaming(ctx, req, begin, sendEncoded(ctx, send))
	})
}

func (s *Server) sendStreaming(ctx context.Context, req *a2av1.SendMessageRequest, begin func(), send func(feed.Update) error) error {
	open := func(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
		after, err := inboundOf(ctx).after()
		if err != nil {
			return nil, err
		}
		return s.h.SendStreamingMessage(a2a.WithCursor(ctx, after), req)
	}
	return stream(ctx, s, "SendStreamingMessage", req, open, begin, send)
}

// SubscribeToTask streams the updates of an existing task.
func (t taskService) SubscribeToTask(req *a2av1.SubscribeToTaskRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	return t.s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return t.s.subscribe(ctx, req, begin, sendEncoded(ctx, send))
	})
}

func (s *Server) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, begin func(), send func(feed.Update) error) error {
	open := func(ctx context.Context, req *a2av1.SubscribeToTaskRequest) (iter.Seq2[feed.Update, error], error) {
		after, err := inboundOf(ctx).after()
		if err != nil {
			return nil, err
		}
		return s.h.SubscribeToTask(ctx, req, after)
	}
	return stream(ctx, s, "SubscribeToTask", req, open, begin, send)
}
