package service

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/call"
)

// Monitor implements the monitor service, like *monitor.Monitor. The context carries the
// caller and errors are reported as described at Handler.
type Monitor interface {
	FindTasks(context.Context, *teamv1.FindTasksRequest) (*teamv1.FindTasksResponse, error)
	RetryTask(context.Context, *teamv1.RetryTaskRequest) (*teamv1.RetryTaskResponse, error)
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
	chain *call.Chain
}

// monitor returns the service of the monitor, nil if it is not served.
func (c *Config) monitor(chain *call.Chain) any {
	if c.Monitor == nil {
		return nil
	}
	return monitorService{c.Monitor, chain}
}

// WatchTeam streams a snapshot of a team and then its changes.
func (s monitorService) WatchTeam(req *teamv1.WatchTeamRequest, to grpc.ServerStreamingServer[teamv1.WatchTeamResponse]) error {
	return call.Stream(to, s.chain, "WatchTeam", req, func(ctx context.Context, req *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error) {
		if at := call.InboundOf(ctx).Cursor; len(at) == 1 && at[0] != "" {
			req.Cursor = at[0]
		}
		return s.Monitor.WatchTeam(ctx, req)
	})
}

// WatchTask streams the events of a task.
func (s monitorService) WatchTask(req *teamv1.WatchTaskRequest, to grpc.ServerStreamingServer[teamv1.WatchTaskResponse]) error {
	return call.Stream(to, s.chain, "WatchTask", req, func(ctx context.Context, req *teamv1.WatchTaskRequest) (_ iter.Seq2[*teamv1.WatchTaskResponse, error], err error) {
		if req.After, err = call.InboundOf(ctx).Behind(req.GetAfter()); err != nil {
			return nil, err
		}
		return s.Monitor.WatchTask(ctx, req)
	})
}
