package remote

import (
	"context"
	"iter"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// transport is one binding of A2A. Errors of the peer are gRPC statuses,
// whatever the binding; no connection is UNAVAILABLE. Streams end with their
// context. Safe for concurrent use.
type transport interface {
	send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error]
	subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest) iter.Seq2[*a2av1.StreamResponse, error]
	task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error)
	cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	close() error
}

type extensionsCtxKey struct{}

// withExtensions activates extensions of the protocol for the calls of ctx.
func withExtensions(ctx context.Context, uris ...string) context.Context {
	return context.WithValue(ctx, extensionsCtxKey{}, strings.Join(uris, ", "))
}

// extensionsOf is the header's value; empty activates none.
func extensionsOf(ctx context.Context) string {
	uris, _ := ctx.Value(extensionsCtxKey{}).(string)
	return uris
}

// grpcTransport is A2A over gRPC.
type grpcTransport struct {
	conn   *grpc.ClientConn
	client a2av1.A2AServiceClient
	token  string
}

func (g *grpcTransport) outgoing(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(outgoing(ctx, g.token, agent.Depth(ctx)), versionKey, a2aVersion)
	if uris := extensionsOf(ctx); uris != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, extensionsKey, uris)
	}
	return ctx
}

func (g *grpcTransport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return g.client.SendMessage(g.outgoing(ctx), req)
}

func (g *grpcTransport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return received(func(ctx context.Context) (grpc.ServerStreamingClient[a2av1.StreamResponse], error) {
		return g.client.SendStreamingMessage(g.outgoing(ctx), req)
	})(ctx)
}

func (g *grpcTransport) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return received(func(ctx context.Context) (grpc.ServerStreamingClient[a2av1.StreamResponse], error) {
		return g.client.SubscribeToTask(g.outgoing(ctx), req)
	})(ctx)
}

func (g *grpcTransport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	return g.client.GetTask(g.outgoing(ctx), req)
}

func (g *grpcTransport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return g.client.CancelTask(g.outgoing(ctx), req)
}

func (g *grpcTransport) close() error { return g.conn.Close() }

// health asks what gRPC servers may know of a service; one that does not know
// it is healthy, since it has shown its card.
func (g *grpcTransport) health(ctx context.Context, id, tenant string) (*teamv1.Health, error) {
	service := ""
	if tenant != "" {
		service = "team/" + tenant
	}
	resp, err := healthpb.NewHealthClient(g.conn).Check(g.outgoing(ctx), &healthpb.HealthCheckRequest{Service: service})
	switch {
	case err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING:
		return agent.Unhealthy("not serving"), nil
	case codeOf(err) == codes.Unavailable, ctx.Err() != nil:
		return nil, unreachable(id, err)
	}
	return agent.Healthy(), nil
}
