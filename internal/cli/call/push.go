package call

import (
	"context"
	"fmt"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Push holds the flags that configure a webhook for a task.
type Push struct {
	Flags
	// ID is the id of the configuration; "" lets the server choose one.
	ID string
	// Token is sent to the webhook with each notification.
	Token string
	// Scheme and Credentials authenticate the server to the webhook.
	Scheme, Credentials string
}

// SetPush registers a webhook for updates of a task.
func (c *Commands) SetPush(ctx context.Context, target, task, address string, f *Push) error {
	if err := webhook("WEBHOOK", address); err != nil {
		return err
	}
	if f.Credentials != "" && f.Scheme == "" {
		return console.Usagef("--auth-credentials requires --auth-scheme, for example Bearer")
	}
	req := &a2av1.TaskPushNotificationConfig{Tenant: f.Tenant, Id: f.ID, TaskId: task, Url: address, Token: f.Token}
	if f.Scheme != "" {
		req.Authentication = &a2av1.AuthenticationInfo{Scheme: f.Scheme, Credentials: f.Credentials}
	}
	return c.withClient(ctx, target, &f.Flags, func(ctx context.Context, server *a2aclient.Client) error {
		made, err := server.CreateTaskPushNotificationConfig(ctx, req)
		if err != nil {
			return err
		}
		return c.showPush(made)
	})
}

// GetPush prints a webhook of a task.
func (c *Commands) GetPush(ctx context.Context, target, task, id string, f *Flags) error {
	return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
		p, err := server.GetTaskPushNotificationConfig(ctx, &a2av1.GetTaskPushNotificationConfigRequest{Tenant: f.Tenant, TaskId: task, Id: id})
		if err != nil {
			return err
		}
		return c.showPush(p)
	})
}

// ListPush prints all webhooks of a task, page by page.
func (c *Commands) ListPush(ctx context.Context, target, task string, f *Flags) error {
	return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
		req := &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: f.Tenant, TaskId: task}
		for n := 0; ; {
			page, err := server.ListTaskPushNotificationConfigs(ctx, req)
			if err != nil {
				return err
			}
			if c.Console.JSON {
				err = c.Console.Print(page)
			} else {
				for _, p := range page.GetConfigs() {
					_, err = fmt.Fprintf(c.Console.Text(), "%-36s  %s\n", console.Line(p.GetId()), console.Line(p.GetUrl()))
				}
			}
			if err != nil {
				return err
			}
			n += len(page.GetConfigs())
			switch next := page.GetNextPageToken(); next {
			case "":
				c.Console.Sayf("%s of task %s", count(n, "webhook"), task)
				return nil
			case req.GetPageToken():
				return fmt.Errorf("the server returned the same page token twice: %s", next)
			default:
				req.PageToken = next
			}
		}
	})
}

// DeletePush deletes a webhook of a task.
func (c *Commands) DeletePush(ctx context.Context, target, task, id string, f *Flags) error {
	return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
		if err := server.DeleteTaskPushNotificationConfig(ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{Tenant: f.Tenant, TaskId: task, Id: id}); err != nil {
			return err
		}
		c.Console.Sayf("webhook %s of task %s deleted", id, task)
		return nil
	})
}

// showPush prints a webhook. Secrets are masked in text; JSON is printed as received.
func (c *Commands) showPush(p *a2av1.TaskPushNotificationConfig) error {
	if c.Console.JSON {
		return c.Console.Print(p)
	}
	fmt.Fprintf(c.Console.Text(), "webhook  %s\ntask     %s\nurl      %s\n", console.Line(p.GetId()), console.Line(p.GetTaskId()), console.Line(p.GetUrl()))
	if p.GetToken() != "" {
		fmt.Fprintln(c.Console.Text(), "token    ***")
	}
	if scheme := p.GetAuthentication().GetScheme(); scheme != "" {
		fmt.Fprintf(c.Console.Text(), "auth     %s ***\n", console.Line(scheme))
	}
	return nil
}
