package a2aclient

import (
	"context"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// transport is one binding in one version of the protocol. Its errors are those that the
// package comment names. Calls and streams end with their context. Implementations are safe
// for concurrent use.
type transport interface {
	send(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	stream(context.Context, *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error]
	task(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	tasks(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	cancel(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	// subscribe yields the updates of a task, those behind a cursor if after is not 0.
	subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error]
	setPush(context.Context, *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error)
	push(context.Context, *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error)
	pushes(context.Context, *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error)
	deletePush(context.Context, *a2av1.DeleteTaskPushNotificationConfigRequest) error
	extendedCard(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
	close() error
}
