package a2a

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
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
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	key := runs.Key{Owner: who.Owner(), ID: req.GetId()}
	t, _, err := h.tasks.task(ctx, req.GetTenant(), key)
	if err != nil {
		return nil, err
	}
	if details(ctx) {
		if err := h.hooks.show(ctx, key, t); err != nil {
			return nil, runs.StoreError(req.GetId(), err)
		}
	}
	return project.CutHistory(t, req.HistoryLength), nil
}

// ListTasks returns a page of the caller's root tasks, latest change of status first; see A2A
// 1.0, section 3.1.4. A page has at most the requested number of tasks and MaxPageBytes, but at
// least one task. Errors: INVALID_REQUEST, and AGENT_NOT_FOUND if the tenant does not exist.
func (h *Handler) ListTasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	size := a2aerror.DefaultPage
	var c checker
	c.id("tenant", req.GetTenant())
	c.id("contextId", req.GetContextId())
	c.historyLength("historyLength", req.HistoryLength)
	if req.PageSize != nil {
		if size = c.PageSize("pageSize", req.GetPageSize()); req.GetPageSize() == 0 {
			c.WrongPageSize("pageSize", 0) // A2A 1.0 permits 1 to 100 here
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
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetTenant() != "" {
		if _, err := h.agents.find(ctx, req.GetTenant()); err != nil {
			return nil, err
		}
	}
	f := runs.Filter{Agent: req.GetTenant(), ContextID: req.GetContextId(), State: req.GetStatus(), PageSize: size, PageToken: req.GetPageToken()}
	if t := req.GetStatusTimestampAfter(); t != nil {
		f.StatusAfter = t.AsTime()
	}
	room := runs.MaxPageBytes
	f.Fits = func(t *a2av1.Task) bool {
		room -= proto.Size(listed(t, req))
		return room >= 0
	}
	page, err := h.c.Store.List(ctx, who.Owner(), f)
	if err != nil {
		return nil, runs.StoreError("", err)
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

// Part returns the first part of a task of the caller for which is returns true. It looks at
// artifacts first, then at messages, then at values of metadata, which count as parts; see
// MetadataPart. It returns TASK_NOT_FOUND if there is no such task or no such part.
func (h *Handler) Part(ctx context.Context, tenant, id string, is func(*a2av1.Part) bool) (*a2av1.Part, error) {
	k, err := keyOf(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	t, _, err := h.tasks.task(ctx, tenant, k)
	if err != nil {
		return nil, err
	}
	var lists [][]*a2av1.Part
	metadata := []*structpb.Struct{t.GetMetadata()}
	for _, a := range t.GetArtifacts() {
		lists, metadata = append(lists, a.GetParts()), append(metadata, a.GetMetadata())
	}
	for _, m := range append(t.GetHistory(), t.GetStatus().GetMessage()) {
		lists, metadata = append(lists, m.GetParts()), append(metadata, m.GetMetadata())
	}
	for _, parts := range lists {
		for _, p := range parts {
			if is(p) {
				return p, nil
			}
			metadata = append(metadata, p.GetMetadata())
		}
	}
	for _, s := range metadata {
		for _, v := range s.GetFields() {
			if p := MetadataPart(v); is(p) {
				return p, nil
			}
		}
	}
	return nil, &a2aerror.Error{Reason: a2aerror.ReasonTaskNotFound, Code: agent.CodeNotFound, Message: "task \"" + a2aerror.Clip(id) + "\" has no such part; get the task again"}
}

// MetadataPart returns a value of metadata as a data part, so that it can be downloaded from a
// URL like other parts.
func MetadataPart(v *structpb.Value) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Data{Data: v}}
}
