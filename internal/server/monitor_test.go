package server_test

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// watchers is a Monitor that keeps what it was asked.
type watchers struct {
	team  *teamv1.WatchTeamRequest
	task  *teamv1.WatchTaskRequest
	asked *teamv1.ListQuestionsRequest
	who   identity.Caller
}

func (w *watchers) WatchTeam(ctx context.Context, req *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error) {
	w.team = req
	w.who, _ = identity.CallerOf(ctx)
	if req.GetTeamId() == "none" {
		return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is none")
	}
	return func(yield func(*teamv1.WatchTeamResponse, error) bool) {
		if yield(&teamv1.WatchTeamResponse{Cursor: "here"}, nil) && req.GetTeamId() == "breaks" {
			yield(nil, agent.Errorf(agent.CodeUnavailable, agent.ReasonStoreUnavailable, "not now"))
		}
	}, nil
}

func (w *watchers) WatchTask(_ context.Context, req *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error) {
	w.task = req
	return func(yield func(*teamv1.WatchTaskResponse, error) bool) { yield(&teamv1.WatchTaskResponse{Seq: 7}, nil) }, nil
}

func (*watchers) FindTasks(context.Context, *teamv1.FindTasksRequest) (*teamv1.FindTasksResponse, error) {
	return &teamv1.FindTasksResponse{}, nil
}

func (*watchers) RetryTask(_ context.Context, req *teamv1.RetryTaskRequest) (*teamv1.RetryTaskResponse, error) {
	return &teamv1.RetryTaskResponse{TaskId: req.GetTaskId()}, nil
}

func (*watchers) GetTrace(_ context.Context, req *teamv1.GetTraceRequest) (*teamv1.GetTraceResponse, error) {
	return &teamv1.GetTraceResponse{Trace: &teamv1.Trace{TaskId: req.GetTaskId()}}, nil
}

func (*watchers) ListCosts(context.Context, *teamv1.ListCostsRequest) (*teamv1.ListCostsResponse, error) {
	return &teamv1.ListCostsResponse{}, nil
}

func (w *watchers) ListQuestions(_ context.Context, req *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error) {
	w.asked = req
	return &teamv1.ListQuestionsResponse{}, nil
}

func (*watchers) AnswerQuestion(_ context.Context, req *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error) {
	return nil, a2aerror.TaskNotFound(req.GetTaskId() + " " + req.GetText())
}

// TestA_01_MonitorPaths: the monitor's paths are no tenants and no parts of ids; a
// cursor comes as a header, a parameter or a field.
func TestA_01_MonitorPaths(t *testing.T) {
	w := &watchers{}
	target := start(t, server.Config{Handler: &probe{}, Monitor: w})
	get := func(path string, headers map[string]string) (int, string, string) {
		t.Helper()
		resp, err := target.Do(t.Context(), http.MethodGet, "/team/v1/monitor"+path, nil, headers)
		if err != nil {
			t.Fatal(err)
		}
		body, err := resp.Body()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status, resp.Header.Get("Content-Type"), string(body)
	}
	status, kind, body := get("/teams/news:watch", map[string]string{"Last-Event-ID": "there"})
	if status != 200 || kind != "text/event-stream" || body != "id: here\ndata: {\"cursor\":\"here\"}\n\n" || w.team.GetTeamId() != "news" || w.team.GetCursor() != "there" || w.who.Owner() != "local/local" {
		t.Errorf("%d %s %q: %v", status, kind, body, w.team)
	}
	if get("/teams/news:watch?cursor=that", nil); w.team.GetCursor() != "that" {
		t.Error(w.team)
	}
	if status, kind, body = get("/teams/none:watch", nil); status != 404 || kind != "application/json" || !strings.Contains(body, "AGENT_NOT_FOUND") {
		t.Errorf("%d %s %q", status, kind, body)
	}
	if status, _, body = get("/teams/breaks:watch", nil); status != 200 || !strings.Contains(body, "\nevent: error\ndata: {") || !strings.Contains(body, "STORE_UNAVAILABLE") {
		t.Errorf("%d %q", status, body)
	}
	status, _, body = get("/tasks/t1~1.2:watch?after=3", map[string]string{"Last-Event-ID": "5"})
	if status != 200 || body != "id: 7\ndata: {\"seq\":\"7\"}\n\n" || w.task.GetTaskId() != "t1~1.2" || w.task.GetAfter() != 5 {
		t.Errorf("%d %q: %v", status, body, w.task)
	}
	for _, bad := range []map[string]string{{"Last-Event-ID": "x"}, {"Last-Event-ID": "-1"}} {
		if status, _, body = get("/tasks/t1:watch", bad); status != 400 || !strings.Contains(body, "Last-Event-ID") {
			t.Errorf("%d %q", status, body)
		}
	}
	if status, _, body = get("/tasks/t1:watch?after=x", nil); status != 400 || !strings.Contains(body, "after") {
		t.Errorf("%d %q", status, body)
	}
	if status, _, body = get("/tasks/t1~1.2:trace", nil); status != 200 || body != `{"trace":{"taskId":"t1~1.2"}}` {
		t.Errorf("%d %q", status, body)
	}
	if status, _, body = get("/questions?page_size=3&taskId=t1", nil); status != 200 || w.asked.GetPageSize() != 3 || w.asked.GetTaskId() != "t1" {
		t.Errorf("%d %q: %v", status, body, w.asked)
	}
	resp, err := target.Do(t.Context(), http.MethodPost, "/team/v1/monitor/tasks/t1~2:answer", []byte(`{"text": "yes"}`), map[string]string{"Content-Type": "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := resp.Body(); resp.Status != 404 || !strings.Contains(string(b), "t1~2 yes") {
		t.Errorf("%d %s", resp.Status, b)
	}
	if status, _, body = get("/tasks/t1:watch?after=-1", nil); status != 400 || !strings.Contains(body, `"field":"after"`) {
		t.Errorf("%d %q", status, body)
	}
	var refusal error
	for _, refusal = range rig.Monitors(t, target)[0].WatchTask(t.Context(), "t1", -1) { // over gRPC
	}
	if f := rig.Fault(refusal); f == nil || f.Reason != "INVALID_REQUEST" || strings.Join(f.Fields, " ") != "after" {
		t.Errorf("behind -1: %v", refusal)
	}
	for _, m := range rig.Monitors(t, target) {
		for resp, err := range m.WatchTeam(t.Context(), "news", "back") {
			if err != nil || resp.GetCursor() != "here" || w.team.GetCursor() != "back" {
				t.Errorf("%s: %v, %v", m.Binding(), resp, err)
			}
		}
	}
}

// TestA_01_NoMonitor: without one its paths are nothing.
func TestA_01_NoMonitor(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{}})
	for _, m := range rig.Monitors(t, target) {
		if _, err := m.Trace(t.Context(), "t1"); rig.Fault(err).Code != "Unimplemented" {
			t.Errorf("%s: %v", m.Binding(), err)
		}
	}
}
