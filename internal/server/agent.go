package server

import (
	"context"
	"iter"

	"google.golang.org/grpc"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// ProcessStream sends one message to an agent and streams the events of its run.
func (t taskService) ProcessStream(req *teamv1.ProcessStreamRequest, to grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	return t.s.runPaced(to, func(ctx context.Context, begin func(), send sendFunc) error {
		return t.s.processStream(ctx, req, begin, func(p *teamv1.ProcessStreamResponse) error { return send(p.GetEvent().GetSeq(), p) })
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
