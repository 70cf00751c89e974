package server

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// The methods of the Agent service, by which other teams call the same agents.

// Info describes an agent.
func (s *Server) Info(ctx context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	return unary(ctx, s, "Info", false, req, s.h.Info)
}

// Process sends one message to an agent and returns its answer.
func (s *Server) Process(ctx context.Context, req *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error) {
	return unary(ctx, s, "Process", true, req, s.h.Process)
}

// ProcessStream sends one message to an agent and streams the events of its run.
func (s *Server) ProcessStream(req *teamv1.ProcessStreamRequest, to grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	return s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
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

// Cancel cancels a task that Process started.
func (s *Server) Cancel(ctx context.Context, req *teamv1.CancelRequest) (*teamv1.CancelResponse, error) {
	return unary(ctx, s, "Cancel", true, req, s.h.Cancel)
}

// HealthCheck reports whether an agent is healthy.
func (s *Server) HealthCheck(ctx context.Context, req *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	return unary(ctx, s, "HealthCheck", false, req, s.h.HealthCheck)
}
