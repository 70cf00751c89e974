package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// FindTasks returns a page of tasks.
func (t *Team) FindTasks(ctx context.Context, req *teamv1.FindTasksRequest) (*teamv1.FindTasksResponse, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"agentId": req.GetAgentId(), "text": req.GetText(), "principal": req.GetPrincipal(), "taskId": req.GetTaskId(), "contextId": req.GetContextId(), "pageToken": req.GetPageToken(),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if req.GetState() != a2av1.TaskState_TASK_STATE_UNSPECIFIED {
		q.Set("state", req.GetState().String())
	}
	for name, value := range map[string]int64{"minCostMicros": req.GetMinCostMicros(), "pageSize": int64(req.GetPageSize())} {
		if value != 0 {
			q.Set(name, strconv.FormatInt(value, 10))
		}
	}
	for name, at := range map[string]*timestamppb.Timestamp{"since": req.GetSince(), "until": req.GetUntil()} {
		if at != nil {
			q.Set(name, at.AsTime().Format(time.RFC3339Nano))
		}
	}
	out := &teamv1.FindTasksResponse{}
	return out, t.call(ctx, http.MethodGet, "/monitor/tasks?"+q.Encode(), nil, out)
}

// GetTrace returns the trace of a task.
func (t *Team) GetTrace(ctx context.Context, id string) (*teamv1.Trace, error) {
	out := &teamv1.GetTraceResponse{}
	err := t.call(ctx, http.MethodGet, "/monitor/tasks/"+url.PathEscape(id)+":trace", nil, out)
	return out.GetTrace(), err
}

// WatchTask yields the events of a task whose sequence numbers are larger than after, until the task has ended; if these
// are not stored any more, first its state. An error is the last element.
func (t *Team) WatchTask(ctx context.Context, id string, after int64) iter.Seq2[*teamv1.WatchTaskResponse, error] {
	path := "/monitor/tasks/" + url.PathEscape(id) + ":watch?after=" + strconv.FormatInt(after, 10)
	return stream(t, func() (*http.Response, error) { return t.send(ctx, http.MethodGet, path, nil, wire.TypeSSE) },
		func() *teamv1.WatchTaskResponse { return &teamv1.WatchTaskResponse{} })
}

// CancelTask cancels a task of an agent.
func (t *Team) CancelTask(ctx context.Context, agentID, id string) (*teamv1.CancelResponse, error) {
	out := &teamv1.CancelResponse{}
	return out, t.call(ctx, http.MethodPost, "/agents/"+url.PathEscape(agentID)+":cancel", &teamv1.CancelRequest{TaskId: id}, out)
}

// RetryTask begins a task that does the work of another one again.
func (t *Team) RetryTask(ctx context.Context, id, requestID string) (*teamv1.RetryTaskResponse, error) {
	out := &teamv1.RetryTaskResponse{}
	return out, t.call(ctx, http.MethodPost, "/monitor/tasks/"+url.PathEscape(id)+":retry", &teamv1.RetryTaskRequest{RequestId: requestID}, out)
}
