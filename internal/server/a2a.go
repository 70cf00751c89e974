package server

import (
	"context"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/a2a"
)

// This file has the methods of the A2A service. gRPC and the REST gateway call the exported
// methods; JSON-RPC calls those with one response, and the streams of JSON-RPC and REST call the
// unexported methods, because they write server-sent events.

// SendMessage sends a message to an agent. For a JSON-RPC notification it does not wait for
// the task, because its caller reads no response.
func (s *Server) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	if inboundOf(ctx).notified {
		if req.GetConfiguration() == nil {
			req.Configuration = &a2av1.SendMessageConfiguration{}
		}
		req.Configuration.ReturnImmediately = true
	}
	return unary(ctx, s, "SendMessage", true, req, s.h.SendMessage)
}

// SendStreamingMessage sends a message to an agent and streams the updates of its task.
func (s *Server) SendStreamingMessage(req *a2av1.SendMessageRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	return s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.sendStreaming(ctx, req, begin, sendEncoded(ctx, send))
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
func (s *Server) SubscribeToTask(req *a2av1.SubscribeToTaskRequest, to grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	return s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.subscribe(ctx, req, begin, sendEncoded(ctx, send))
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

// GetTask returns a task.
func (s *Server) GetTask(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	return unary(ctx, s, "GetTask", false, req, s.h.GetTask)
}

// ListTasks returns a page of tasks. Over gRPC a page size of 0 means the default: the
// official Go client sends it if its caller sets no page size.
func (s *Server) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	if inboundOf(ctx).binding == bindingGRPC && req.GetPageSize() == 0 {
		req.PageSize = nil
	}
	return unary(ctx, s, "ListTasks", false, req, s.h.ListTasks)
}

// CancelTask cancels a task and returns it after it has ended.
func (s *Server) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return unary(ctx, s, "CancelTask", true, req, s.h.CancelTask)
}

// CreateTaskPushNotificationConfig registers a webhook.
func (s *Server) CreateTaskPushNotificationConfig(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	return unary(ctx, s, "CreateTaskPushNotificationConfig", false, req, s.h.CreateTaskPushNotificationConfig)
}

// GetTaskPushNotificationConfig returns a webhook.
func (s *Server) GetTaskPushNotificationConfig(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	return unary(ctx, s, "GetTaskPushNotificationConfig", false, req, s.h.GetTaskPushNotificationConfig)
}

// ListTaskPushNotificationConfigs returns the webhooks of a task.
func (s *Server) ListTaskPushNotificationConfigs(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return unary(ctx, s, "ListTaskPushNotificationConfigs", false, req, s.h.ListTaskPushNotificationConfigs)
}

// DeleteTaskPushNotificationConfig removes a webhook.
func (s *Server) DeleteTaskPushNotificationConfig(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) (*emptypb.Empty, error) {
	return unary(ctx, s, "DeleteTaskPushNotificationConfig", false, req, s.h.DeleteTaskPushNotificationConfig)
}

// GetExtendedAgentCard returns the card of an agent with the parts that only authenticated
// callers may see.
func (s *Server) GetExtendedAgentCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	return unary(ctx, s, "GetExtendedAgentCard", false, req, s.h.GetExtendedAgentCard)
}
