package a2aclient

import (
	"cmp"
	"context"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// The operations of A2A. A request that names no tenant goes to that of the interface.
// Requests are not changed.

// SendMessage sends a message and waits for the answer: a message, or a task.
func (c *Client) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	resp, err := c.via.send(ctx, addressed(c, req))
	if err == nil && resp.GetMessage() == nil && resp.GetTask().GetId() == "" {
		return nil, badAnswer("the answer holds neither a message nor a task")
	}
	return resp, err
}

// StreamMessage sends a message and yields what comes, until the task ends or asks for
// something. An error is the last thing that it yields. If it breaks before the server has
// named a task, the message may have arrived; a team-server does not work twice on a
// message that is sent again with its id. The sequence can be read once.
func (c *Client) StreamMessage(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	req = addressed(c, req)
	return c.resuming(ctx, position{tenant: req.GetTenant()}, c.via.stream(ctx, req))
}

// GetTask reads a task.
func (c *Client) GetTask(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	t, err := c.via.task(ctx, addressed(c, req))
	return c.askedFor(req.GetId(), t, err)
}

// ListTasks reads a page of tasks. In 0.3 few servers have it.
func (c *Client) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return c.via.tasks(ctx, addressed(c, req))
}

// CancelTask asks the server to end a task, and returns the task as it is then.
func (c *Client) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	t, err := c.via.cancel(ctx, addressed(c, req))
	return c.askedFor(req.GetId(), t, err)
}

// askedFor returns a task that a server answered with, if it is the one with an id.
func (c *Client) askedFor(id string, t *a2av1.Task, err error) (*a2av1.Task, error) {
	switch {
	case err != nil:
		return nil, err
	case t.GetId() != id:
		return nil, otherTask(id, t.GetId())
	case t.GetStatus() == nil && !c.cfg.Lenient:
		return nil, badAnswer("the server does not say how task %s stands", id)
	}
	return t, nil
}

func otherTask(id, got string) error {
	return badAnswer("the server was asked for task %s, and answers with %.100s", id, cmp.Or(got, "none"))
}

// SubscribeToTask yields what comes of a task, until the task ends or asks for something.
// after is a cursor behind which it begins, see Cursor; with 0 it begins with the task as
// it is. An error is the last thing that it yields. The sequence can be read once.
func (c *Client) SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	req = addressed(c, req)
	all := c.resuming(ctx, position{tenant: req.GetTenant(), task: req.GetId(), cursor: after}, c.via.subscribe(ctx, req, after))
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		for r, err := range all {
			if id, ok := taskOf(r); ok && id != req.GetId() {
				if c.cfg.Lenient {
					continue
				}
				r, err = nil, otherTask(req.GetId(), id)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// CreateTaskPushNotificationConfig registers a webhook of a task, or replaces the one
// with the same id.
func (c *Client) CreateTaskPushNotificationConfig(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	p, err := c.via.setPush(ctx, addressed(c, req))
	return aWebhook(p, err)
}

// aWebhook returns a webhook that a server answered with, if it is one.
func aWebhook(p *a2av1.TaskPushNotificationConfig, err error) (*a2av1.TaskPushNotificationConfig, error) {
	if err == nil && p.GetUrl() == "" {
		return nil, badAnswer("the answer holds no webhook")
	}
	return p, err
}

// GetTaskPushNotificationConfig reads a webhook of a task.
func (c *Client) GetTaskPushNotificationConfig(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	p, err := c.via.push(ctx, addressed(c, req))
	return aWebhook(p, err)
}

// ListTaskPushNotificationConfigs reads a page of a task's webhooks.
func (c *Client) ListTaskPushNotificationConfigs(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return c.via.pushes(ctx, addressed(c, req))
}

// DeleteTaskPushNotificationConfig deletes a webhook of a task.
func (c *Client) DeleteTaskPushNotificationConfig(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	return c.via.deletePush(ctx, addressed(c, req))
}

// GetExtendedAgentCard reads the card that the agent shows to callers it knows. With
// Config.Verifier it returns what was signed of it.
func (c *Client) GetExtendedAgentCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	card, err := c.via.extendedCard(ctx, addressed(c, req))
	if err != nil || c.cfg.Verifier == nil {
		return card, err
	}
	signed, _, err := c.cfg.Verifier.Verify(card)
	if err != nil {
		return nil, untrusted("the extended card", err)
	}
	return signed, nil
}

// addressed returns a request with the tenant of the interface where it names none.
func addressed[M proto.Message](c *Client, req M) M {
	tenant := req.ProtoReflect().Descriptor().Fields().ByName("tenant")
	if c.tenant == "" || req.ProtoReflect().Has(tenant) {
		return req
	}
	req = proto.CloneOf(req)
	req.ProtoReflect().Set(tenant, protoreflect.ValueOfString(c.tenant))
	return req
}
