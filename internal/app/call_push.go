package app

import (
	"context"
	"fmt"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Push says how a webhook is told of a task.
type Push struct {
	Calling
	// ID of the configuration; empty is the server's choice.
	ID string
	// Token is what the receiver is shown.
	Token string
	// Scheme and Credentials are how the server authenticates itself there.
	Scheme, Credentials string
}

// CallPushSet has a webhook told of a task.
func (s *Shell) CallPushSet(ctx context.Context, target, task, address string, f *Push) error {
	if err := webhook("WEBHOOK", address); err != nil {
		return err
	}
	if f.Credentials != "" && f.Scheme == "" {
		return usagef("--auth-credentials goes with --auth-scheme, such as Bearer")
	}
	req := &a2av1.TaskPushNotificationConfig{Tenant: f.Tenant, Id: f.ID, TaskId: task, Url: address, Token: f.Token}
	if f.Scheme != "" {
		req.Authentication = &a2av1.AuthenticationInfo{Scheme: f.Scheme, Credentials: f.Credentials}
	}
	return s.calling(ctx, target, &f.Calling, func(ctx context.Context, c *a2aclient.Client) error {
		made, err := c.CreateTaskPushNotificationConfig(ctx, req)
		if err != nil {
			return err
		}
		return s.showPush(made)
	})
}

// CallPushGet prints a webhook of a task.
func (s *Shell) CallPushGet(ctx context.Context, target, task, id string, f *Calling) error {
	return s.calling(ctx, target, f, func(ctx context.Context, c *a2aclient.Client) error {
		p, err := c.GetTaskPushNotificationConfig(ctx, &a2av1.GetTaskPushNotificationConfigRequest{Tenant: f.Tenant, TaskId: task, Id: id})
		if err != nil {
			return err
		}
		return s.showPush(p)
	})
}

// CallPushList prints all webhooks of a task.
func (s *Shell) CallPushList(ctx context.Context, target, task string, f *Calling) error {
	return s.calling(ctx, target, f, func(ctx context.Context, c *a2aclient.Client) error {
		req := &a2av1.ListTaskPushNotificationConfigsRequest{Tenant: f.Tenant, TaskId: task}
		for n := 0; ; {
			page, err := c.ListTaskPushNotificationConfigs(ctx, req)
			if err != nil {
				return err
			}
			if s.JSON {
				err = s.print(page)
			} else {
				for _, p := range page.GetConfigs() {
					_, err = fmt.Fprintf(s.text(), "%-36s  %s\n", line(p.GetId()), line(p.GetUrl()))
				}
			}
			if err != nil {
				return err
			}
			n += len(page.GetConfigs())
			switch next := page.GetNextPageToken(); next {
			case "":
				s.sayf("%s of task %s", count(n, "webhook"), task)
				return nil
			case req.GetPageToken():
				return fmt.Errorf("the server sends the same page token again and again: %s", next)
			default:
				req.PageToken = next
			}
		}
	})
}

// CallPushDelete deletes a webhook of a task.
func (s *Shell) CallPushDelete(ctx context.Context, target, task, id string, f *Calling) error {
	return s.calling(ctx, target, f, func(ctx context.Context, c *a2aclient.Client) error {
		if err := c.DeleteTaskPushNotificationConfig(ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{Tenant: f.Tenant, TaskId: task, Id: id}); err != nil {
			return err
		}
		s.sayf("webhook %s of task %s is gone", id, task)
		return nil
	})
}

// showPush prints a webhook: of its secrets, that there are some. As JSON it is
// printed as it came.
func (s *Shell) showPush(p *a2av1.TaskPushNotificationConfig) error {
	if s.JSON {
		return s.print(p)
	}
	fmt.Fprintf(s.text(), "webhook  %s\ntask     %s\nurl      %s\n", line(p.GetId()), line(p.GetTaskId()), line(p.GetUrl()))
	if p.GetToken() != "" {
		fmt.Fprintln(s.text(), "token    ***")
	}
	if scheme := p.GetAuthentication().GetScheme(); scheme != "" {
		fmt.Fprintf(s.text(), "auth     %s ***\n", line(scheme))
	}
	return nil
}
