package server

import (
	"context"
	"iter"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Monitor answers the calls of the monitor service; internal/monitor has one. What
// holds for Handler holds for it.
type Monitor interface {
	WatchTeam(context.Context, *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error)
	WatchTask(context.Context, *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error)
	GetTrace(context.Context, *teamv1.GetTraceRequest) (*teamv1.GetTraceResponse, error)
	ListQuestions(context.Context, *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error)
	AnswerQuestion(context.Context, *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error)
}

// monitoring is the monitor service.
type monitoring struct {
	teamv1.UnimplementedMonitorServiceServer
	*Server
}

// GetTrace explains a task.
func (s monitoring) GetTrace(ctx context.Context, req *teamv1.GetTraceRequest) (*teamv1.GetTraceResponse, error) {
	return unary(ctx, s.Server, "GetTrace", false, req, s.config.Monitor.GetTrace)
}

// ListQuestions lists what waits for people.
func (s monitoring) ListQuestions(ctx context.Context, req *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error) {
	return unary(ctx, s.Server, "ListQuestions", false, req, s.config.Monitor.ListQuestions)
}

// AnswerQuestion answers a question.
func (s monitoring) AnswerQuestion(ctx context.Context, req *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error) {
	return unary(ctx, s.Server, "AnswerQuestion", false, req, s.config.Monitor.AnswerQuestion)
}

// WatchTeam shows a team and what happens in it.
func (s monitoring) WatchTeam(req *teamv1.WatchTeamRequest, to grpc.ServerStreamingServer[teamv1.WatchTeamResponse]) error {
	return s.paced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.watchTeam(ctx, req, begin, func(r *teamv1.WatchTeamResponse) error { return send(0, r) })
	})
}

func (s monitoring) watchTeam(ctx context.Context, req *teamv1.WatchTeamRequest, begin func(), send func(*teamv1.WatchTeamResponse) error) error {
	open := func(ctx context.Context, req *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error) {
		if at := inboundOf(ctx).cursor; len(at) == 1 && at[0] != "" {
			req.Cursor = at[0]
		}
		return s.config.Monitor.WatchTeam(ctx, req)
	}
	return stream(ctx, s.Server, "WatchTeam", req, open, begin, send)
}

// WatchTask shows a task and what happens in it.
func (s monitoring) WatchTask(req *teamv1.WatchTaskRequest, to grpc.ServerStreamingServer[teamv1.WatchTaskResponse]) error {
	return s.paced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.watchTask(ctx, req, begin, func(r *teamv1.WatchTaskResponse) error { return send(r.GetSeq(), r) })
	})
}

func (s monitoring) watchTask(ctx context.Context, req *teamv1.WatchTaskRequest, begin func(), send func(*teamv1.WatchTaskResponse) error) error {
	open := func(ctx context.Context, req *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error) {
		after, err := inboundOf(ctx).behind(req.GetAfter())
		if err != nil {
			return nil, err
		}
		req.After = after
		return s.config.Monitor.WatchTask(ctx, req)
	}
	return stream(ctx, s.Server, "WatchTask", req, open, begin, send)
}

// serveWatchTeam is WatchTeam as server-sent events; their ids are cursors.
func (s monitoring) serveWatchTeam(w http.ResponseWriter, r *http.Request, params map[string]string) {
	req := &teamv1.WatchTeamRequest{TeamId: params["team_id"], Cursor: r.URL.Query().Get("cursor")}
	s.serveCursors(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send cursorFunc) error {
		return s.watchTeam(ctx, req, begin, func(m *teamv1.WatchTeamResponse) error { return marshaled(m, m.GetCursor(), send) })
	})
}

// serveWatchTask is WatchTask as server-sent events; their ids are sequences.
func (s monitoring) serveWatchTask(w http.ResponseWriter, r *http.Request, params map[string]string) {
	after, err := number("after", r.URL.Query()["after"])
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	req := &teamv1.WatchTaskRequest{TaskId: params["task_id"], After: after}
	s.serveEvents(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send eventFunc) error {
		return s.watchTask(ctx, req, begin, func(m *teamv1.WatchTaskResponse) error { return marshaled(m, m.GetSeq(), send) })
	})
}

// marshaled sends a message as JSON under an id.
func marshaled[ID any](m proto.Message, id ID, send func(ID, []byte) error) error {
	data, err := wire.Marshal(m)
	if err != nil {
		return err
	}
	return send(id, data)
}

// monitorRoutes are those that the generated ones do not serve, or take amiss.
func (s *Server) monitorRoutes() []route {
	if s.config.Monitor == nil {
		return nil
	}
	const base = "/team/v1/monitor"
	m := monitoring{Server: s}
	return []route{
		{"GET", base + "/teams/{team_id}:watch", m.serveWatchTeam},
		{"GET", base + "/tasks/{task_id}:watch", m.serveWatchTask},
		{"GET", base + "/tasks/{task_id}:answer", s.wrongMethod},
	}
}
