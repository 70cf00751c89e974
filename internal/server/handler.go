package server

import (
	"context"
	"iter"

	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
)

// Handler answers the calls of every binding; pkg/a2a has it. The caller and the
// depth of nesting are in the context. Errors are *a2a.Error or *agent.Error;
// the text of any other stays inside. A sequence ends with its context; an
// error beside it is one that comes before anything is sent.
type Handler interface {
	SendMessage(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	SendStreamingMessage(context.Context, *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error)
	SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[feed.Update, error], error)
	GetTask(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	ListTasks(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	CancelTask(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	// Part finds a part of a task by the digest of its content.
	Part(ctx context.Context, tenant, id string, is func(*a2av1.Part) bool) (*a2av1.Part, error)
	CreateTaskPushNotificationConfig(context.Context, *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error)
	GetTaskPushNotificationConfig(context.Context, *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error)
	ListTaskPushNotificationConfigs(context.Context, *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error)
	DeleteTaskPushNotificationConfig(context.Context, *a2av1.DeleteTaskPushNotificationConfigRequest) (*emptypb.Empty, error)
	GetExtendedAgentCard(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
	// Card is the public card of an agent, the default one's for an empty tenant.
	Card(ctx context.Context, tenant string) (*a2av1.AgentCard, error)

	Info(context.Context, *teamv1.InfoRequest) (*teamv1.InfoResponse, error)
	Process(context.Context, *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error)
	ProcessStream(context.Context, *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error)
	Cancel(context.Context, *teamv1.CancelRequest) (*teamv1.CancelResponse, error)
	HealthCheck(context.Context, *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error)
}
