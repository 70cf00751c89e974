package server

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// The Agent service: the same agents, for other teams.

// Info describes an agent.
func (s *Server) Info(ctx context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	return unary(ctx, s, "Info", false, req, s.h.Info)
}

// Process gives an agent one message and returns its answer.
func (s *Server) Process(ctx context.Context, req *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error) {
	return unary(ctx, s, "Process", true, req, s.h.Process)
}

// ProcessStream is Process with the events as they happen.
func (s *Server) ProcessStream(req *teamv1.ProcessStreamRequest, to grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	return s.paced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return s.processStream(ctx, req, begin, func(p *teamv1.ProcessStreamResponse) error { return send(p.GetEvent().GetSeq(), p) })
	})
}

func (s *Server) processStream(ctx context.Context, req *teamv1.ProcessStreamRequest, begin func(), send func(*teamv1.ProcessStreamResponse) error) error {
	open := func(ctx context.Context, req *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error) {
		after, err := inboundOf(ctx).behind(req.GetAfter())
		if err != nil {
			return nil, err
		}
		req.After = after
		return s.h.ProcessStream(ctx, req)
	}
	return stream(ctx, s, "ProcessStream", req, open, begin, send)
}

// Cancel ends a task that Process began.
func (s *Server) Cancel(ctx context.Context, req *teamv1.CancelRequest) (*teamv1.CancelResponse, error) {
	return unary(ctx, s, "Cancel", true, req, s.h.Cancel)
}

// HealthCheck says how an agent is.
func (s *Server) HealthCheck(ctx context.Context, req *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	return unary(ctx, s, "HealthCheck", false, req, s.h.HealthCheck)
}
