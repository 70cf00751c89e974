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

// Monitor implements the monitor service, like *monitor.Monitor. The context carries the
// caller and errors are reported as described at Handler.
type Monitor interface {
	WatchTeam(context.Context, *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error)
	WatchTask(context.Context, *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error)
	GetTrace(context.Context, *teamv1.GetTraceRequest) (*teamv1.GetTraceResponse, error)
	ListCosts(context.Context, *teamv1.ListCostsRequest) (*teamv1.ListCostsResponse, error)
	ListQuestions(context.Context, *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error)
	AnswerQuestion(context.Context, *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error)
}

// monitorService is the gRPC service of the monitor.
type monitorService struct {
	Monitor
	*Server
}

// monitor returns the service of the monitor, nil if it is not served.
func (s *Server) monitor() any {
	if s.config.Monitor == nil {
		return nil
	}
	return monitorService{s.config.Monitor, s}
}

// WatchTeam streams a snapshot of a team and then its changes.
func (s monitorService) WatchTeam(req *teamv1.WatchTeamRequest, to grpc.ServerStreamingServer[teamv1.WatchTeamResponse]) error {
	return s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.watchTeam(ctx, req, begin, func(r *teamv1.WatchTeamResponse) error { return send(0, r) })
	})
}

func (s monitorService) watchTeam(ctx context.Context, req *teamv1.WatchTeamRequest, begin func(), send func(*teamv1.WatchTeamResponse) error) error {
	open := func(ctx context.Context, req *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error) {
		if at := inboundOf(ctx).cursor; len(at) == 1 && at[0] != "" {
			req.Cursor = at[0]
		}
		return s.Monitor.WatchTeam(ctx, req)
	}
	return stream(ctx, s.Server, "WatchTeam", req, open, begin, send)
}

// WatchTask streams the events of a task.
func (s monitorService) WatchTask(req *teamv1.WatchTaskRequest, to grpc.ServerStreamingServer[teamv1.WatchTaskResponse]) error {
	return s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.watchTask(ctx, req, begin, func(r *teamv1.WatchTaskResponse) error { return send(r.GetSeq(), r) })
	})
}

func (s monitorService) watchTask(ctx context.Context, req *teamv1.WatchTaskRequest, begin func(), send func(*teamv1.WatchTaskResponse) error) error {
	open := func(ctx context.Context, req *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error) {
		after, err := inboundOf(ctx).behind(req.GetAfter())
		if err != nil {
			return nil, err
		}
		req.After = after
		return s.Monitor.WatchTask(ctx, req)
	}
	return stream(ctx, s.Server, "WatchTask", req, open, begin, func(r *teamv1.WatchTaskResponse) error {
		if r.GetSnapshot() != nil {
			r, _ = Reduce(r, inboundOf(ctx).baseURL()).(*teamv1.WatchTaskResponse)
		}
		return send(r)
	})
}

// serveWatchTeam serves WatchTeam as server-sent events whose ids are cursors.
func (s monitorService) serveWatchTeam(w http.ResponseWriter, r *http.Request, params map[string]string) {
	req := &teamv1.WatchTeamRequest{TeamId: params["team_id"], Cursor: r.URL.Query().Get("cursor")}
	s.serveCursors(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send cursorFunc) error {
		return s.watchTeam(ctx, req, begin, func(m *teamv1.WatchTeamResponse) error { return sendJSON(m, m.GetCursor(), send) })
	})
}

// serveWatchTask serves WatchTask as server-sent events whose ids are sequence numbers.
func (s monitorService) serveWatchTask(w http.ResponseWriter, r *http.Request, params map[string]string) {
	after, err := number("after", r.URL.Query()["after"])
	if err != nil {
		s.fail(w, r, wire.Status(err))
		return
	}
	req := &teamv1.WatchTaskRequest{TaskId: params["task_id"], After: after}
	s.serveEvents(w, r, s.restFraming(w, r), func(ctx context.Context, begin func(), send eventFunc) error {
		return s.watchTask(ctx, req, begin, func(m *teamv1.WatchTaskResponse) error { return sendJSON(m, m.GetSeq(), send) })
	})
}

// sendJSON encodes a message as JSON and sends it with an id.
func sendJSON[ID any](m proto.Message, id ID, send func(ID, []byte) error) error {
	data, err := wire.Marshal(m)
	if err != nil {
		return err
	}
	return send(id, data)
}

// monitorRoutes returns the routes of the streams, and one that rejects GET on the path of
// AnswerQuestion: the generated routes would take its suffix :answer for a part of the task id.
func (s *Server) monitorRoutes() []route {
	if s.config.Monitor == nil {
		return nil
	}
	const base = "/team/v1/monitor"
	m := monitorService{s.config.Monitor, s}
	return []route{
		{"GET", base + "/teams/{team_id}:watch", m.serveWatchTeam},
		{"GET", base + "/tasks/{task_id}:watch", m.serveWatchTask},
		{"GET", base + "/tasks/{task_id}:answer", s.wrongMethod},
	}
}
