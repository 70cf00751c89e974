package a2a

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// GetTask returns a task of the caller: a root task, or a delegation by its id root~scope; see
// A2A 1.0, section 3.1.3. Errors: INVALID_REQUEST, and TASK_NOT_FOUND, also for a task of another
// owner.
func (h *Handler) GetTask(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	var c checker
	c.historyLength("historyLength", req.HistoryLength)
	c.task(req.GetTenant(), req.GetId())
	if err := c.Err(); err != nil {
		return nil, err
	}
	who, err := Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	key := Key{who.Owner(), req.GetId()}
	if stored, err := h.stored(ctx, req.GetTenant(), key); err != nil {
		return nil, storeError(req.GetId(), err)
	} else if stored { // the store can return the task without reading the journal
		t, _, err := h.c.Store.Task(ctx, key)
		if err != nil {
			return nil, storeError(req.GetId(), err)
		}
		return project.CutHistory(t, req.HistoryLength), nil
	}
	f, err := h.owned(ctx, req.GetTenant(), req.GetId())
	if err != nil {
		return nil, err
	}
	t := f.Snapshot(details(ctx))
	if details(ctx) {
		if err := h.withPushes(ctx, key, t); err != nil {
			return nil, storeError(req.GetId(), err)
		}
	}
	return project.CutHistory(t, req.HistoryLength), nil
}

// stored reports whether GetTask can answer with the task that the store has. It cannot if the caller wants details,
// or if a tenant asks for a delegation, because only the journal has the agent of a delegation. The error is ErrNotFound
// if the task was sent to an agent other than the tenant.
func (h *Handler) stored(ctx context.Context, tenant string, k Key) (bool, error) {
	switch {
	case details(ctx):
		return false, nil
	case tenant == "":
		return true, nil
	}
	if _, scope := agent.SplitTask(k.ID); scope != "" {
		return false, nil
	}
	of, err := h.c.Store.Agent(ctx, k)
	if err == nil && of != tenant {
		err = ErrNotFound
	}
	return true, err
}

// ListTasks returns a page of the caller's root tasks, latest change of status first; see A2A
// 1.0, section 3.1.4. A page has at most the requested number of tasks and MaxPageBytes, but at
// least one task. Errors: INVALID_REQUEST, and AGENT_NOT_FOUND if the tenant does not exist.
func (h *Handler) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	size := defaultPage
	var c checker
	c.id("tenant", req.GetTenant())
	c.id("contextId", req.GetContextId())
	c.historyLength("historyLength", req.HistoryLength)
	if req.PageSize != nil {
		if size = c.pageSize("pageSize", req.GetPageSize()); req.GetPageSize() == 0 {
			c.pageFault("pageSize", 0) // A2A 1.0 permits 1 to 100 here
		}
	}
	if _, known := a2av1.TaskState_name[int32(req.GetStatus())]; !known {
		c.Add("status", "%d is unknown", req.GetStatus())
	}
	if req.GetStatusTimestampAfter() != nil && !req.GetStatusTimestampAfter().IsValid() {
		c.Add("statusTimestampAfter", "is not a time between the years 1 and 9999")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	who, err := Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetTenant() != "" {
		if _, err := h.Find(ctx, req.GetTenant()); err != nil {
			return nil, err
		}
	}
	f := Filter{Agent: req.GetTenant(), ContextID: req.GetContextId(), State: req.GetStatus(), PageSize: size, PageToken: req.GetPageToken()}
	if t := req.GetStatusTimestampAfter(); t != nil {
		f.StatusAfter = t.AsTime()
	}
	room := MaxPageBytes
	f.Fits = func(t *a2av1.Task) bool {
		room -= proto.Size(listed(t, req))
		return room >= 0
	}
	page, err := h.c.Store.List(ctx, who.Owner(), f)
	if err != nil {
		return nil, storeError("", err)
	}
	resp := &a2av1.ListTasksResponse{
		Tasks: page.Tasks, NextPageToken: page.NextToken, PageSize: int32(size), TotalSize: int32(min(page.Total, 1<<30)), //nolint:gosec // bounded
	}
	if resp.Tasks == nil {
		resp.Tasks = []*a2av1.Task{}
	}
	return resp, nil
}

// listed removes from a task what the client did not ask for.
func listed(t *a2av1.Task, req *a2av1.ListTasksRequest) *a2av1.Task {
	if !req.GetIncludeArtifacts() {
		t.Artifacts = nil
	}
	return project.CutHistory(t, req.HistoryLength)
}

// CancelTask cancels a task of the caller and everything below it; see A2A 1.0, section 3.1.5. It
// waits for the end, at most Config.CancelWait, and then returns the task as it is, with
// cancel_requested in its metadata. A task that is canceled already is returned again. Errors:
// TASK_NOT_FOUND, TASK_NOT_CANCELABLE if the task has ended in another way, and WAIT_TIMEOUT if
// the deadline of ctx passes before.
func (h *Handler) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	f, err := h.owned(ctx, req.GetTenant(), req.GetId())
	if err != nil {
		return nil, err
	}
	if !f.Terminal() {
		if f, err = h.cancel(ctx, f); err != nil {
			return nil, err
		}
	}
	if f.Terminal() && f.State() != a2av1.TaskState_TASK_STATE_CANCELED {
		return nil, TaskNotCancelable(req.GetId(), f.State())
	}
	return project.CutHistory(f.Snapshot(details(ctx)), nil), nil
}

// cancel sends the task the command to cancel and waits for its end.
func (h *Handler) cancel(ctx context.Context, f *Fold) (*Fold, error) {
	return h.command(ctx, f, "cancel/"+f.Scope(), nil, &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}, (*Fold).Terminal)
}

// command adds a command to the inbox of the task and waits until had returns true or the task
// has ended, at most Config.CancelWait. After that time the result shows the command as if it had
// been recorded. key identifies the command within the task or, if digest is not nil, among
// everything that the owner sends.
func (h *Handler) command(ctx context.Context, f *Fold, key string, digest []byte, c *teamv1.Commanded, had func(*Fold) bool) (*Fold, error) {
	who, _ := CallerOf(ctx)
	root := Key{who.Owner(), f.Root()}
	c.By = who.Owner()
	in := &teamv1.Inbound{Scope: f.Scope(), Key: key, Kind: &teamv1.Inbound_Commanded{Commanded: c}}
	if _, _, err := h.c.Store.Put(ctx, root, in, digest, nil); err != nil && !errors.Is(err, ErrTerminal) {
		return nil, storeError(f.ID(), err)
	}
	h.c.Wake(f.Root())
	wait, stop := context.WithTimeout(ctx, h.c.CancelWait)
	defer stop()
	r := h.journals.read(root, 0)
	defer r.stop()
	now := NewFold(f.Root(), f.Scope())
	for ev, err := range r.events(wait) {
		if err != nil {
			if wait.Err() != nil && ctx.Err() == nil {
				now.Expect(c, h.c.Clock())
				return now, nil
			}
			return nil, waitError(f.ID(), becomes(c), err)
		}
		now.Apply(ev.Event)
		if now.Terminal() || had(now) {
			break
		}
	}
	return now, nil
}

// becomes returns what happens, after a command, to a task that is no longer waited for; see
// waitError.
func becomes(c *teamv1.Commanded) string {
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_CANCEL:
		return "is being canceled"
	case teamv1.Commanded_COMMAND_STOP:
		return "is being stopped"
	default:
		return goesOn
	}
}
