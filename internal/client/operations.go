package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// The operations of A2A. A request that names no tenant goes to the card's.

// Send sends a message and waits for the answer. One that is neither a message nor a
// task is an error.
func (c *Client) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	resp, err := c.via.send(ctx, addressed(c, req))
	if err == nil && resp.GetMessage() == nil && resp.GetTask().GetId() == "" {
		return nil, errors.New("the answer holds neither a message nor a task")
	}
	return resp, err
}

// Stream sends a message and yields what comes, until the task rests.
func (c *Client) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return c.via.stream(ctx, addressed(c, req))
}

// Task reads a task. An answer with another one is an error.
func (c *Client) Task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	t, err := c.via.task(ctx, addressed(c, req))
	return askedFor(req.GetId(), t, err)
}

// Tasks reads a page of tasks. In 0.3 this is the official Go SDK's alone.
func (c *Client) Tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return c.via.tasks(ctx, addressed(c, req))
}

// Cancel asks for a task to be stopped. An answer with another one is an error.
func (c *Client) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	t, err := c.via.cancel(ctx, addressed(c, req))
	return askedFor(req.GetId(), t, err)
}

// askedFor is a task that a server answered with, if it is the one that was asked for.
func askedFor(id string, t *a2av1.Task, err error) (*a2av1.Task, error) {
	switch {
	case err != nil:
		return nil, err
	case t.GetId() != id:
		return nil, otherTask(id, t.GetId())
	case t.GetStatus() == nil:
		return nil, fmt.Errorf("the server does not say how task %s stands", id)
	}
	return t, nil
}

func otherTask(id, got string) error {
	return fmt.Errorf("the server was asked for task %s, and answers with %s", id, cmp.Or(got, "none"))
}

// Subscribe yields what comes of a task, until it rests. after is a cursor of a
// team-server behind which it begins; 0 begins with the task. What is of another task
// is an error.
func (c *Client) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		for r, err := range c.via.subscribe(ctx, addressed(c, req), after) {
			if id, ok := taskOf(r); ok && id != req.GetId() {
				r, err = nil, otherTask(req.GetId(), id)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// taskOf is the id of the task that a response tells of, if it does.
func taskOf(r *a2av1.StreamResponse) (id string, ok bool) {
	switch k := r.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		return k.Task.GetId(), true
	case *a2av1.StreamResponse_StatusUpdate:
		return k.StatusUpdate.GetTaskId(), true
	case *a2av1.StreamResponse_ArtifactUpdate:
		return k.ArtifactUpdate.GetTaskId(), true
	}
	return "", false
}

// SetPush makes or replaces a webhook of a task.
func (c *Client) SetPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	p, err := c.via.setPush(ctx, addressed(c, req))
	return aWebhook(p, err)
}

// aWebhook is a webhook that a server answered with, if it is one.
func aWebhook(p *a2av1.TaskPushNotificationConfig, err error) (*a2av1.TaskPushNotificationConfig, error) {
	if err == nil && p.GetUrl() == "" {
		return nil, errors.New("the answer holds no webhook")
	}
	return p, err
}

// Push reads a webhook of a task.
func (c *Client) Push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	p, err := c.via.push(ctx, addressed(c, req))
	return aWebhook(p, err)
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
