package client

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// The operations of A2A. A request that names no tenant goes to the card's.

// Send sends a message and waits for the answer.
func (c *Client) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return c.via.send(ctx, addressed(c, req))
}

// Stream sends a message and yields what comes, until the task rests.
func (c *Client) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return c.via.stream(ctx, addressed(c, req))
}

// Task reads a task.
func (c *Client) Task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	return c.via.task(ctx, addressed(c, req))
}

// Tasks reads a page of tasks. In 0.3 this is the official Go SDK's alone.
func (c *Client) Tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return c.via.tasks(ctx, addressed(c, req))
}

// Cancel asks for a task to be stopped.
func (c *Client) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return c.via.cancel(ctx, addressed(c, req))
}

// Subscribe yields what comes of a task, until it rests. after is a cursor of a
// team-server behind which it begins; 0 begins with the task.
func (c *Client) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	return c.via.subscribe(ctx, addressed(c, req), after)
}

// SetPush makes or replaces a webhook of a task.
func (c *Client) SetPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	return c.via.setPush(ctx, addressed(c, req))
}

// Push reads a webhook of a task.
func (c *Client) Push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	return c.via.push(ctx, addressed(c, req))
}

// Pushes reads a page of a task's webhooks.
func (c *Client) Pushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return c.via.pushes(ctx, addressed(c, req))
}

// DeletePush deletes a webhook of a task.
func (c *Client) DeletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	return c.via.deletePush(ctx, addressed(c, req))
}

// ExtendedCard reads the card for callers who are known, or of it what is believed.
func (c *Client) ExtendedCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	card, err := c.via.extendedCard(ctx, addressed(c, req))
	if err != nil || c.verify == nil {
		return card, err
	}
	if card, err = c.verify(card); err != nil {
		return nil, fmt.Errorf("the extended card is not to be trusted: %w", err)
	}
	return card, nil
}

// addressed gives a request the card's tenant where it names none.
func addressed[M proto.Message](c *Client, req M) M {
	tenant := req.ProtoReflect().Descriptor().Fields().ByName("tenant")
	if c.tenant == "" || req.ProtoReflect().Has(tenant) {
		return req
	}
	req = proto.CloneOf(req)
	req.ProtoReflect().Set(tenant, protoreflect.ValueOfString(c.tenant))
	return req
}
