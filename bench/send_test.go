package bench

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// BenchmarkSend is goal 2: SendMessage over gRPC of a task that is accepted,
// works, has an artifact and completes, against a bare gRPC server that answers
// with the message.
func BenchmarkSend(b *testing.B) {
	t := &measure.Table{Title: "A2A SendMessage over gRPC, a task of four events", Goals: []string{
		"goal 2: rival=task, c=64: xRPS >= 0.40", "goal 2: rival=task, c=64: allocs/op <= 500",
	}}
	servers(b, t,
		measure.Rival{Name: "echo", Start: func(b *testing.B) (measure.Call, func()) {
			addr, stop := bare(b, func(s *grpc.Server) { a2av1.RegisterA2AServiceServer(s, sendEcho{}) })
			return send(b, addr, stop, func(r *a2av1.SendMessageResponse) string { return agent.Text(r.GetMessage()) })
		}},
		measure.Rival{Name: "task", Start: func(b *testing.B) (measure.Call, func()) {
			at, stop := serve(b, echo())
			return send(b, at.GRPC, stop, artifact)
		}},
	)
}

// artifact is the text of a completed task's artifact.
func artifact(r *a2av1.SendMessageResponse) string {
	task := r.GetTask()
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || len(task.GetArtifacts()) != 1 {
		return ""
	}
	return task.GetArtifacts()[0].GetParts()[0].GetText()
}

// send calls SendMessage; text is that of its answer.
func send(b *testing.B, addr string, stop func(), text func(*a2av1.SendMessageResponse) string) (measure.Call, func()) {
	conn := dial(b, addr)
	client := a2av1.NewA2AServiceClient(conn)
	return func(ctx context.Context, n int64) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "a2a-version", "1.0")
		resp, err := client.SendMessage(ctx, &a2av1.SendMessageRequest{Message: message(n)})
		if err == nil && len(text(resp)) < messageBytes/2 {
			err = errors.New("the answer is not the message")
		}
		return err
	}, closing(b, conn, stop)
}

// sendEcho is the yardstick.
type sendEcho struct {
	a2av1.UnimplementedA2AServiceServer
}

func (sendEcho) SendMessage(_ context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: req.GetMessage()}}, nil
}
