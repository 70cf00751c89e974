package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// grpcTransport is the gRPC binding of 1.0.
type grpcTransport struct {
	*web
	conn   *grpc.ClientConn
	client a2av1.A2AServiceClient
}

func newGRPC(address string, secure bool, w *web) (*grpcTransport, error) {
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBody)))
	if err != nil {
		return nil, noAddress(address, "HOST:PORT")
	}
	return &grpcTransport{web: w, conn: conn, client: a2av1.NewA2AServiceClient(conn)}, nil
}

// outgoing puts metadata on a call, and shows it.
func (g *grpcTransport) outgoing(ctx context.Context, method string, req proto.Message, kv ...string) context.Context {
	md := metadata.MD{}
	for name, values := range g.service() {
		md.Append(name, values...)
	}
	for i := 0; i < len(kv); i += 2 {
		md.Append(kv[i], kv[i+1])
	}
	g.show(">", method, req)
	g.rawHeader(">", md, slices.Sorted(maps.Keys(md))...)
	return metadata.NewOutgoingContext(ctx, md)
}

// show shows a message as JSON; over the wire it is binary.
func (g *grpcTransport) show(direction, method string, m proto.Message) {
	if g.cfg.Raw == nil {
		return
	}
	data, err := wire.Marshal(m)
	if err != nil {
		data = []byte(err.Error())
	}
	g.raw("%s %s %s", direction, method, data)
}

func (g *grpcTransport) failed(err error) error {
	st := status.Convert(err)
	g.raw("< %s: %s", st.Code(), st.Message())
	if st.Code() == codes.Unavailable && wire.InfoOf(st) == nil {
		return unreachable(g.conn.Target(), err)
	}
	return refused(st)
}

// unary makes a call with one answer.
func unary[Req, Resp proto.Message](ctx context.Context, g *grpcTransport, method string, call func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	resp, err := call(g.outgoing(ctx, method, req), req)
	if err != nil {
		return resp, g.failed(err)
	}
	g.show("<", string(resp.ProtoReflect().Descriptor().Name()), resp)
	return resp, nil
}

// follow makes a call that is answered with a stream.
func follow[Req proto.Message](ctx context.Context, g *grpcTransport, method string, call func(context.Context, Req, ...grpc.CallOption) (grpc.ServerStreamingClient[a2av1.StreamResponse], error), req Req, kv ...string) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		ctx, cancel := context.WithCancel(g.outgoing(ctx, method, req, kv...))
		defer cancel()
		s, err := call(ctx, req)
		for err == nil {
			var resp *a2av1.StreamResponse
			if resp, err = s.Recv(); err == nil {
				g.show("<", "StreamResponse", resp)
				if !yield(resp, nil) {
					return
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, g.failed(err))
		}
	}
}

func (g *grpcTransport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return unary(ctx, g, "SendMessage", g.client.SendMessage, req)
}

func (g *grpcTransport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return follow(ctx, g, "SendStreamingMessage", g.client.SendStreamingMessage, req)
}

func (g *grpcTransport) task(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	return unary(ctx, g, "GetTask", g.client.GetTask, req)
}

func (g *grpcTransport) tasks(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return unary(ctx, g, "ListTasks", g.client.ListTasks, req)
}

func (g *grpcTransport) cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return unary(ctx, g, "CancelTask", g.client.CancelTask, req)
}

func (g *grpcTransport) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	var kv []string
	if after != 0 {
		kv = []string{"last-event-id", strconv.FormatInt(after, 10)}
	}
	return follow(ctx, g, "SubscribeToTask", g.client.SubscribeToTask, req, kv...)
}

func (g *grpcTransport) setPush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	return unary(ctx, g, "CreateTaskPushNotificationConfig", g.client.CreateTaskPushNotificationConfig, req)
}

func (g *grpcTransport) push(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	return unary(ctx, g, "GetTaskPushNotificationConfig", g.client.GetTaskPushNotificationConfig, req)
}

func (g *grpcTransport) pushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return unary(ctx, g, "ListTaskPushNotificationConfigs", g.client.ListTaskPushNotificationConfigs, req)
}

func (g *grpcTransport) deletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	_, err := unary(ctx, g, "DeleteTaskPushNotificationConfig", g.client.DeleteTaskPushNotificationConfig, req)
	return err
}

func (g *grpcTransport) extendedCard(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	return unary(ctx, g, "GetExtendedAgentCard", g.client.GetExtendedAgentCard, req)
}

func (g *grpcTransport) close() error { return g.conn.Close() }
