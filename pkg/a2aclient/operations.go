package a2aclient

import (
	"cmp"
	"context"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// SendMessage sends a message and returns the answer, which is a message or a task. After a
// *TransportError the server may have accepted the message. A server that recognizes ids of
// messages, such as team-server, does not process it again if it is sent again with its id.
func (c *Client) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	resp, err := c.via.send(ctx, addressed(c, req))
	if err == nil && resp.GetMessage() == nil && resp.GetTask().GetId() == "" {
		return nil, badAnswer("the response contains neither a message nor a task")
	}
	return resp, err
}

// StreamMessage sends a message and yields the responses: the task and its updates, until
// the task ends or requires input or authentication, or messages without a task. The
// message is sent when the sequence is read, which can be done once. An error is the last
// element. A stream that ends early is resumed if the responses have cursors (see
// Config.Resumes), but the message is never sent again; for that see SendMessage. If the
// server closes the stream while the task is working, the sequence ends without an error.
func (c *Client) StreamMessage(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	req = addressed(c, req)
	return c.resuming(ctx, position{tenant: req.GetTenant()}, c.via.stream(ctx, req))
}

// GetTask returns a task.
func (c *Client) GetTask(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	t, err := c.via.task(ctx, addressed(c, req))
	return c.askedFor(req.GetId(), t, err)
}

// ListTasks returns a page of tasks. Few servers of A2A 0.3 support it.
func (c *Client) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return c.via.tasks(ctx, addressed(c, req))
}

// CancelTask asks the server to cancel a task, and returns the task, which may still be
// working. The error is ErrTaskNotCancelable if the server cannot cancel it.
func (c *Client) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	t, err := c.via.cancel(ctx, addressed(c, req))
	return c.askedFor(req.GetId(), t, err)
}

// askedFor returns the task with which a server answered a request for the task with an id.
func (c *Client) askedFor(id string, t *a2av1.Task, err error) (*a2av1.Task, error) {
	switch {
	case err != nil:
		return nil, err
	case t.GetId() != id:
		return nil, otherTask(id, t.GetId())
	case t.GetStatus() == nil && !c.cfg.Lenient:
		return nil, badAnswer("the response has no status for task %s", id)
	}
	return t, nil
}

func otherTask(id, got string) error {
	return badAnswer("the server was asked for task %s, but returned %.100s", id, cmp.Or(got, "none"))
}

// SubscribeToTask yields a task and then its updates, until the task ends or begins to
// require input or authentication. If after is not 0, it is a cursor (see Cursor), and the
// sequence begins with the first update behind it; a server that no longer has all of them
// begins with the task. The error is ErrUnsupportedOperation if the task has ended and there
// is nothing to yield. The server is called when the sequence is read, which can be done
// once. An error is the last element. A stream that ends early is resumed, as described for
// StreamMessage.
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

// CreateTaskPushNotificationConfig registers a webhook for a task, or replaces the one with
// the same id, and returns it as the server stores it.
func (c *Client) CreateTaskPushNotificationConfig(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	p, err := c.via.setPush(ctx, addressed(c, req))
	return checkWebhook(p, err)
}

// checkWebhook returns the webhook with which a server answered, if it has a URL.
func checkWebhook(p *a2av1.TaskPushNotificationConfig, err error) (*a2av1.TaskPushNotificationConfig, error) {
	if err == nil && p.GetUrl() == "" {
		return nil, badAnswer("the response contains no push configuration")
	}
	return p, err
}

// GetTaskPushNotificationConfig returns a webhook of a task.
func (c *Client) GetTaskPushNotificationConfig(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	p, err := c.via.push(ctx, addressed(c, req))
	return checkWebhook(p, err)
}

// ListTaskPushNotificationConfigs returns a page of the webhooks of a task.
func (c *Client) ListTaskPushNotificationConfigs(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return c.via.pushes(ctx, addressed(c, req))
}

// DeleteTaskPushNotificationConfig deletes a webhook of a task.
func (c *Client) DeleteTaskPushNotificationConfig(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	return c.via.deletePush(ctx, addressed(c, req))
}

// GetExtendedAgentCard returns the card of the agent for authenticated callers. With
// Config.Verifier it returns the part of it that was signed.
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

// addressed returns a request with the tenant of the client, unless it names one.
func addressed[M proto.Message](c *Client, req M) M {
	tenant := req.ProtoReflect().Descriptor().Fields().ByName("tenant")
	if c.tenant == "" || req.ProtoReflect().Has(tenant) {
		return req
	}
	req = proto.CloneOf(req)
	req.ProtoReflect().Set(tenant, protoreflect.ValueOfString(c.tenant))
	return req
}
