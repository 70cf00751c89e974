package bench

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// BenchmarkProcess is goal 1: AgentService.Process over gRPC, of an agent that
// is a Go func and of a team with that agent as its member, against a bare gRPC
// server that echoes the same message.
func BenchmarkProcess(b *testing.B) {
	t := &measure.Table{Title: "AgentService.Process over gRPC", Goals: []string{
		"goal 1: rival=team, c=64: xRPS >= 0.85", "goal 1: rival=team, c=64: xP99 <= 1.3",
	}}
	servers(b, t,
		measure.Rival{Name: "echo", Start: func(b *testing.B) (measure.Call, func()) {
			addr, stop := bare(b, func(s *grpc.Server) { teamv1.RegisterAgentServiceServer(s, processEcho{}) })
			return process(b, addr, stop)
		}},
		measure.Rival{Name: "agent", Start: func(b *testing.B) (measure.Call, func()) { return served(b, echo()) }},
		measure.Rival{Name: "team", Start: func(b *testing.B) (measure.Call, func()) { return served(b, teamOf(b, relay{steps: 1}, echo(), nil)) }},
	)
}

func served(b *testing.B, a agent.Agent) (measure.Call, func()) {
	at, stop := serve(b, a)
	return process(b, at.GRPC, stop)
}

// process calls Process.
func process(b *testing.B, addr string, stop func()) (measure.Call, func()) {
	conn := dial(b, addr)
	client := teamv1.NewAgentServiceClient(conn)
	return func(ctx context.Context, n int64) error {
		resp, err := client.Process(ctx, &teamv1.ProcessRequest{AgentId: "bench", Message: message(n)})
		if err == nil && len(agent.Text(resp.GetMessage())) < messageBytes/2 {
			err = errors.New("the answer is not the message")
		}
		return err
	}, closing(b, conn, stop)
}

// processEcho is the yardstick.
type processEcho struct {
	teamv1.UnimplementedAgentServiceServer
}

func (processEcho) Process(_ context.Context, req *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error) {
	return &teamv1.ProcessResponse{Message: req.GetMessage()}, nil
}
