package call

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Get prints a task. history is the maximum number of history messages; nil means the server's
// default.
func (c *Commands) Get(ctx context.Context, target, id string, history *int32, f *Flags) error {
	if history != nil && *history < 0 {
		return console.Usagef("--history %d: expected 0 or more", *history)
	}
	return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
		t, err := server.GetTask(ctx, &a2av1.GetTaskRequest{Tenant: f.Tenant, Id: id, HistoryLength: history})
		if err != nil {
			return err
		}
		return c.showTask(t)
	})
}

// Cancel cancels a task and prints it.
func (c *Commands) Cancel(ctx context.Context, target, id string, f *Flags) error {
	return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
		t, err := server.CancelTask(ctx, &a2av1.CancelTaskRequest{Tenant: f.Tenant, Id: id})
		if err != nil {
			return err
		}
		return c.showTask(t)
	})
}

// Subscribe prints the events of a task, starting after a cursor unless after is 0, until the task has ended or waits
// for an answer.
func (c *Commands) Subscribe(ctx context.Context, target, id string, after int64, f *Flags) error {
	if after < 0 {
		return console.Usagef("--after %d: expected the number of an event, above 0", after)
	}
	return c.withClient(ctx, target, f, func(ctx context.Context, server *a2aclient.Client) error {
		events := server.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Tenant: f.Tenant, Id: id}, after)
		return c.follow(untilAsked(events, func() bool {
			if after == 0 {
				return true // the first event is the task as it is, and all others are new
			}
			t, err := server.GetTask(ctx, &a2av1.GetTaskRequest{Tenant: f.Tenant, Id: id})
			return err != nil || t.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
		}), target, f)
	})
}

// untilAsked yields the events of a subscription up to the first one with which the task waits for an answer. Servers
// keep subscriptions open while tasks wait. waits reports whether the task still waits, as an old event may say that it
// did.
func untilAsked(events iter.Seq2[*a2av1.StreamResponse, error], waits func() bool) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		for resp, err := range events {
			state := cmp.Or(resp.GetStatusUpdate().GetStatus().GetState(), resp.GetTask().GetStatus().GetState())
			if !yield(resp, err) || state == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && waits() {
				return
			}
		}
	}
}

// showTask prints everything that a task contains.
func (c *Commands) showTask(t *a2av1.Task) error {
	if c.Console.JSON {
		return c.Console.Print(t)
	}
	out := c.Console.Text()
	fmt.Fprintf(out, "task     %s\ncontext  %s\nstate    %s", console.Line(t.GetId()), console.Line(t.GetContextId()), stateWord(t.GetStatus().GetState()))
	if at := since(t); at != "" {
		fmt.Fprintf(out, "  %s", at)
	}
	fmt.Fprintln(out)
	if text := content(t.GetStatus().GetMessage().GetParts()); text != "" {
		fmt.Fprintf(out, "message  %s\n", console.Below(text))
	}
	c.artifacts(t)
	c.history(t)
	return nil
}

// since returns the time of the last status change, or "".
func since(t *a2av1.Task) string {
	if at := t.GetStatus().GetTimestamp(); at != nil {
		return at.AsTime().Format(time.RFC3339)
	}
	return ""
}

func (c *Commands) artifacts(t *a2av1.Task) {
	for _, a := range t.GetArtifacts() {
		name := a.GetName()
		if name == "" {
			name = a.GetArtifactId()
		}
		fmt.Fprintf(c.Console.Text(), "artifact %s\n%s", console.Line(name), indented(content(a.GetParts())))
	}
}

func (c *Commands) history(t *a2av1.Task) {
	for _, m := range t.GetHistory() {
		who := "agent"
		if m.GetRole() == a2av1.Role_ROLE_USER {
			who = "user"
		}
		fmt.Fprintf(c.Console.Text(), "%-8s %s\n%s", who, console.Line(m.GetMessageId()), indented(content(m.GetParts())))
	}
}

// indented indents all lines of a text.
func indented(text string) string {
	return "  " + console.Below(text) + "\n"
}

// List holds the flags of the command that lists tasks.
type List struct {
	Flags
	// Context and Status select tasks; "" matches all.
	Context, Status string
	// After selects tasks that changed after this RFC 3339 time; "" matches all.
	After string
	// PageSize is 1 to 100; nil means the server's default. PageToken selects a page.
	PageSize  *int32
	PageToken string
	// All prints all pages, beginning with PageToken.
	All bool
	// Artifacts prints the artifacts too. History is the number of history messages to print; nil
	// prints none.
	Artifacts bool
	History   *int32
}

// states are the values of --status.
var states = []a2av1.TaskState{
	a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING, a2av1.TaskState_TASK_STATE_COMPLETED,
	a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_INPUT_REQUIRED,
	a2av1.TaskState_TASK_STATE_REJECTED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED,
}

func (f *List) request() (*a2av1.ListTasksRequest, error) {
	switch {
	case f.PageSize != nil && (*f.PageSize < 1 || *f.PageSize > 100):
		return nil, console.Usagef("--page-size %d: expected 1 to 100", *f.PageSize)
	case f.History != nil && *f.History < 0:
		return nil, console.Usagef("--history %d: expected 0 or more", *f.History)
	}
	req := &a2av1.ListTasksRequest{
		Tenant: f.Tenant, ContextId: f.Context, PageSize: f.PageSize, PageToken: f.PageToken, HistoryLength: f.History,
	}
	if f.Artifacts {
		req.IncludeArtifacts = proto.Bool(true)
	}
	if f.Status != "" {
		var words []string
		for _, state := range states {
			word := strings.ReplaceAll(stateWord(state), " ", "-")
			if words = append(words, word); strings.EqualFold(f.Status, word) {
				req.Status = state
			}
		}
		if req.Status == 0 {
			return nil, console.Usagef("--status %s: expected one of %s", f.Status, strings.Join(words, ", "))
		}
	}
	if f.After != "" {
		at, err := time.Parse(time.RFC3339, f.After)
		if err != nil {
			return nil, console.Usagef("--after %s: expected a time such as 2026-01-31T15:04:05Z", f.After)
		}
		req.StatusTimestampAfter = timestamppb.New(at)
	}
	return req, nil
}

// List prints tasks, one per line.
func (c *Commands) List(ctx context.Context, target string, f *List) error {
	req, err := f.request()
	if err != nil {
		return err
	}
	return c.withClient(ctx, target, &f.Flags, func(ctx context.Context, server *a2aclient.Client) error {
		for seen := 0; ; {
			page, err := server.ListTasks(ctx, req)
			if err != nil {
				return err
			}
			if err := c.showPage(page, f); err != nil {
				return err
			}
			next := page.GetNextPageToken()
			seen += len(page.GetTasks())
			switch {
			case next == "":
				c.Console.Sayf("%s", count(max(seen, int(page.GetTotalSize())), "task"))
				return nil
			case !f.All:
				c.Console.Sayf("%s of %d; the next page: --page-token %s", count(seen, "task"), max(seen, int(page.GetTotalSize())), console.Line(next))
				return nil
			case next == req.GetPageToken():
				return fmt.Errorf("the server returned the same page token twice: %s", next)
			}
			req.PageToken = next
		}
	})
}

// count returns a number with its noun.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (c *Commands) showPage(page *a2av1.ListTasksResponse, f *List) error {
	if c.Console.JSON {
		return c.Console.Print(page)
	}
	for _, t := range page.GetTasks() {
		fmt.Fprintf(c.Console.Text(), "%-36s  %-14s  %-20s  %s\n", console.Line(t.GetId()), stateWord(t.GetStatus().GetState()), since(t), console.Line(t.GetContextId()))
		if f.Artifacts {
			c.artifacts(t)
		}
		if f.History != nil {
			c.history(t)
		}
	}
	return nil
}
