package rig

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Monitor is a client of the monitor service.
type Monitor interface {
	// Binding returns "grpc" or "rest".
	Binding() string
	// WatchTeam watches a team, from a cursor if it is not empty.
	WatchTeam(ctx context.Context, team, cursor string) iter.Seq2[*teamv1.WatchTeamResponse, error]
	// WatchTask watches a task, after a sequence number if it is not 0.
	WatchTask(ctx context.Context, id string, after int64) iter.Seq2[*teamv1.WatchTaskResponse, error]
	Trace(ctx context.Context, id string) (*teamv1.Trace, error)
	Questions(ctx context.Context, req *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error)
	Answer(ctx context.Context, req *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error)
}

// Monitors returns a client for each binding that has the monitor service. They are closed when the
// test ends.
func Monitors(t testing.TB, target Target) []Monitor {
	t.Helper()
	g, err := NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return []Monitor{MonitorGRPC{g, teamv1.NewMonitorServiceClient(g.Conn)}, MonitorREST{target}}
}

// MonitorGRPC is a Monitor for gRPC.
type MonitorGRPC struct {
	*GRPC
	client teamv1.MonitorServiceClient
}

// WatchTeam calls WatchTeam.
func (c MonitorGRPC) WatchTeam(ctx context.Context, team, cursor string) iter.Seq2[*teamv1.WatchTeamResponse, error] {
	return receive(c.Context(ctx), func(ctx context.Context) (grpc.ServerStreamingClient[teamv1.WatchTeamResponse], error) {
		return c.client.WatchTeam(ctx, &teamv1.WatchTeamRequest{TeamId: team, Cursor: cursor})
	})
}

// WatchTask calls WatchTask.
func (c MonitorGRPC) WatchTask(ctx context.Context, id string, after int64) iter.Seq2[*teamv1.WatchTaskResponse, error] {
	return receive(c.Context(ctx), func(ctx context.Context) (grpc.ServerStreamingClient[teamv1.WatchTaskResponse], error) {
		return c.client.WatchTask(ctx, &teamv1.WatchTaskRequest{TaskId: id, After: after})
	})
}

// Trace calls GetTrace.
func (c MonitorGRPC) Trace(ctx context.Context, id string) (*teamv1.Trace, error) {
	resp, err := c.client.GetTrace(c.Context(ctx), &teamv1.GetTraceRequest{TaskId: id})
	return resp.GetTrace(), FromGRPC(err)
}

// Questions calls ListQuestions.
func (c MonitorGRPC) Questions(ctx context.Context, req *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error) {
	resp, err := c.client.ListQuestions(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// Answer calls AnswerQuestion.
func (c MonitorGRPC) Answer(ctx context.Context, req *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error) {
	resp, err := c.client.AnswerQuestion(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// MonitorREST is a Monitor for REST.
type MonitorREST struct{ Target Target }

// Binding returns "rest".
func (MonitorREST) Binding() string { return "rest" }

const monitorPath = "/team/v1/monitor"

// WatchTeam watches a team. The cursor is sent as Last-Event-ID.
func (c MonitorREST) WatchTeam(ctx context.Context, team, cursor string) iter.Seq2[*teamv1.WatchTeamResponse, error] {
	return events(ctx, c.Target, monitorPath+"/teams/"+url.PathEscape(team)+":watch", cursor, func(m *teamv1.WatchTeamResponse) string { return m.GetCursor() })
}

// WatchTask watches a task. The sequence number is sent as Last-Event-ID.
func (c MonitorREST) WatchTask(ctx context.Context, id string, after int64) iter.Seq2[*teamv1.WatchTaskResponse, error] {
	last := ""
	if after != 0 {
		last = strconv.FormatInt(after, 10)
	}
	return events(ctx, c.Target, monitorPath+"/tasks/"+url.PathEscape(id)+":watch", last, func(m *teamv1.WatchTaskResponse) string { return strconv.FormatInt(m.GetSeq(), 10) })
}

// Trace gets a trace.
func (c MonitorREST) Trace(ctx context.Context, id string) (*teamv1.Trace, error) {
	resp := &teamv1.GetTraceResponse{}
	err := c.call(ctx, http.MethodGet, "/tasks/"+url.PathEscape(id)+":trace", nil, resp)
	return resp.GetTrace(), err
}

// Questions gets a page of questions.
func (c MonitorREST) Questions(ctx context.Context, req *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error) {
	q := url.Values{}
	for name, value := range map[string]string{"agentId": req.GetAgentId(), "taskId": req.GetTaskId(), "pageToken": req.GetPageToken()} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if req.GetPageSize() != 0 {
		q.Set("pageSize", strconv.Itoa(int(req.GetPageSize())))
	}
	resp := &teamv1.ListQuestionsResponse{}
	return resp, c.call(ctx, http.MethodGet, "/questions?"+q.Encode(), nil, resp)
}

// Answer posts an answer.
func (c MonitorREST) Answer(ctx context.Context, req *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error) {
	body := proto.CloneOf(req)
	body.TaskId = ""
	b, err := wire.Marshal(body)
	if err != nil {
		return nil, err
	}
	resp := &teamv1.AnswerQuestionResponse{}
	return resp, c.call(ctx, http.MethodPost, "/tasks/"+url.PathEscape(req.GetTaskId())+":answer", b, resp)
}

func (c MonitorREST) call(ctx context.Context, method, path string, body []byte, resp proto.Message) error {
	headers := map[string]string{}
	if body != nil {
		headers["Content-Type"] = wire.TypeJSON
	}
	a, err := c.Target.Do(ctx, method, monitorPath+path, body, headers)
	if err != nil {
		return err
	}
	return a.Read(resp)
}

// events reads server-sent events and checks that their ids match the messages.
func events[M any, P interface {
	*M
	proto.Message
}](ctx context.Context, target Target, path, last string, id func(P) string) iter.Seq2[P, error] {
	return func(yield func(P, error) bool) {
		headers := map[string]string{"Accept": wire.TypeSSE}
		if last != "" {
			headers["Last-Event-ID"] = last
		}
		a, err := target.Do(ctx, http.MethodGet, path, nil, headers)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = a.body.Close() }() // the reader may stop early
		if a.Header.Get("Content-Type") != wire.TypeSSE {
			yield(nil, a.Read(P(new(M))))
			return
		}
		for e, err := range wire.ReadEvents(a.body) {
			m := P(new(M))
			switch {
			case err != nil:
			case e.Kind == "error":
				err = errorOf(wire.ParseRESTError(a.Status, e.Data), a.Status)
			default:
				err = wire.Unmarshal(e.Data, m)
			}
			if err == nil && e.ID != id(m) {
				err = &Error{Code: "id of the event", Message: e.ID}
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}
