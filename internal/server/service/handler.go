package service

import (
	"context"
	"iter"

	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
)

// Handler implements the calls of every binding; *a2a.Handler does. The context carries the
// caller and the depth of nesting. The errors are *a2aerror.Error or *agent.Error; any other
// error is logged, and the caller gets INTERNAL without its text. A sequence ends when its
// context does. The error returned beside a sequence occurs before anything is sent.
// Implementations are safe for concurrent use.
type Handler interface {
	SendMessage(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	SendStreamingMessage(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error)
	SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[feed.Update, error], error)
	GetTask(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	ListTasks(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	CancelTask(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	// Part returns the first part of a task for which match returns true, or
	// TASK_NOT_FOUND.
	Part(ctx context.Context, tenant, id string, match func(*a2av1.Part) bool) (*a2av1.Part, error)
	CreateTaskPushNotificationConfig(context.Context, *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error)
	GetTaskPushNotificationConfig(context.Context, *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error)
	ListTaskPushNotificationConfigs(context.Context, *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error)
	DeleteTaskPushNotificationConfig(context.Context, *a2av1.DeleteTaskPushNotificationConfigRequest) (*emptypb.Empty, error)
	GetExtendedAgentCard(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
	// Card returns the card of an agent, and whether it may be read without authentication; an empty
	// tenant names the default agent.
	Card(ctx context.Context, tenant string) (card *a2av1.AgentCard, public bool, err error)

	Info(context.Context, *teamv1.InfoRequest) (*teamv1.InfoResponse, error)
	Process(context.Context, *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error)
	ProcessStream(context.Context, *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error)
	Cancel(context.Context, *teamv1.CancelRequest) (*teamv1.CancelResponse, error)
	HealthCheck(context.Context, *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error)
}
