package monitor

import (
	"context"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// FindTasks returns a page of the tasks that a request selects: those of the caller or, with the permission WATCH, those
// of its account. The errors include INVALID_REQUEST, and PERMISSION_DENIED for another principal without WATCH.
func (m *Monitor) FindTasks(ctx context.Context, req *teamv1.FindTasksRequest) (*teamv1.FindTasksResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	q, err := query(req)
	if err != nil {
		return nil, err
	}
	q.Account = who.Account
	switch p := req.GetPrincipal(); {
	case p == "-" || p == who.Principal, p == "" && !who.May(identity.PermissionWatch):
		q.Owner = who.Owner()
	case !who.May(identity.PermissionWatch):
		return nil, identity.Denied(identity.PermissionWatch)
	case p != "":
		q.Owner = who.Account + "/" + p
	}
	o, err := m.overview()
	if err != nil {
		return nil, err
	}
	page, err := o.Find(ctx, q)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	return &teamv1.FindTasksResponse{Tasks: page.Tasks, NextPageToken: page.NextToken}, nil
}

// query returns the query of a request, without the account and the owner.
func query(req *teamv1.FindTasksRequest) (runs.TaskQuery, error) {
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	if err != nil {
		return runs.TaskQuery{}, err
	}
	var faults []agent.Violation
	fault := func(field, text string) { faults = append(faults, agent.Violation{Field: field, Description: text}) }
	for field, text := range map[string]string{"agentId": req.GetAgentId(), "contextId": req.GetContextId(), "taskId": req.GetTaskId(), "principal": req.GetPrincipal()} {
		if len(text) > maxID || strings.ContainsRune(text, 0) {
			fault(field, "must have at most 256 bytes, and no NUL")
		}
	}
	if _, known := a2av1.TaskState_name[int32(req.GetState())]; !known {
		fault("state", "is unknown; use one of the states of A2A, such as TASK_STATE_FAILED")
	}
	if t := req.GetText(); t != "" && !strings.ContainsFunc(t, isInWord) || len(t) > maxQuery {
		fault("text", "must have a word, and at most 1000 bytes")
	}
	if req.GetMinCostMicros() < 0 {
		fault("minCostMicros", "must be 0 or more")
	}
	q := runs.TaskQuery{
		ID: req.GetTaskId(), Agent: req.GetAgentId(), ContextID: req.GetContextId(), State: req.GetState(), Text: req.GetText(), MinCostMicros: req.GetMinCostMicros(),
		Since: timeOf(req.GetSince()), Until: timeOf(req.GetUntil()), PageSize: size, PageToken: req.GetPageToken(),
	}
	for field, at := range map[string]*timestamppb.Timestamp{"since": req.GetSince(), "until": req.GetUntil()} {
		if at != nil && !at.IsValid() {
			fault(field, "is not a time between the years 1 and 9999")
		}
	}
	if len(faults) > 0 {
		return q, a2aerror.Invalid(faults...)
	}
	return q, nil
}

// Limits of the texts of a request, in bytes.
const (
	maxID    = 256
	maxQuery = 1000
)

// isInWord reports whether a character can be in a word.
func isInWord(c rune) bool { return unicode.In(c, unicode.Letter, unicode.Number) }

// timeOf returns a time of a request, the zero time if it is unset. Times are stored in milliseconds: a part of one
// counts as a whole.
func timeOf(at *timestamppb.Timestamp) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.AsTime().Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// RetryTask begins a task that does the work of an ended one of the caller again, except for what had succeeded. Its
// errors are those of Handler.Retry.
func (m *Monitor) RetryTask(ctx context.Context, req *teamv1.RetryTaskRequest) (*teamv1.RetryTaskResponse, error) {
	return m.h.Retry(ctx, req)
}
