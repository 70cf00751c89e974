package a2aclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// grpcTransport is the gRPC binding of 1.0.
type grpcTransport struct {
	*web
	address string // HOST:PORT
	secure  bool   // with TLS
	conn    *grpc.ClientConn
	client  a2av1.A2AServiceClient
}

// newGRPC returns the binding at HOST:PORT.
func newGRPC(w *web, address string, secure bool) (*grpcTransport, error) {
	creds := insecure.NewCredentials()
	if secure {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if w.cfg.TLS != nil {
			config = w.cfg.TLS.Clone()
		}
		creds = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDisableRetry(), // whether to repeat a call is the caller's decision
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// Many servers close connections with pings more often than every 5 minutes.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}),
	}
	target := "dns:///" + address // with the scheme no address is read as another one
	if dial := w.cfg.Dial; dial != nil {
		target = "passthrough:///" + address
		options = append(options, grpc.WithNoProxy(), grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dial(ctx, "tcp", to)
		}))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, noAddress(address, "HOST:PORT")
	}
	return &grpcTransport{web: w, address: address, secure: secure, conn: conn, client: a2av1.NewA2AServiceClient(conn)}, nil
}

// outgoing returns the context of a call with its metadata, and writes the call to
// Config.Raw.
func (g *grpcTransport) outgoing(ctx context.Context, method string, req proto.Message, kv ...string) (context.Context, error) {
	token, err := g.token(ctx)
	if err != nil {
		return ctx, &TransportError{Address: g.address, Err: err}
	}
	md := metadata.MD{}
	for name, values := range g.service(ctx, token) {
		md.Append(name, values...)
	}
	for i := 0; i < len(kv); i += 2 {
		md.Append(kv[i], kv[i+1])
	}
	g.show(">", method, req)
	g.rawHeader(">", md, slices.Sorted(maps.Keys(md))...)
	return metadata.NewOutgoingContext(ctx, md), nil
}

// discards reports whether a call was refused with one of Config.Tokens, which is not used again then.
func (g *grpcTransport) discards(err error) bool {
	if g.cfg.Tokens == nil || status.Code(err) != codes.Unauthenticated {
		return false
	}
	g.cfg.Tokens.Discard(g.sent())
	return true
}

// show writes a message to Config.Raw, as JSON instead of its binary form.
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

// failed returns the error of a call. begun reports whether a part of the answer was
// received.
func (g *grpcTransport) failed(ctx context.Context, err error, begun bool) error {
	st := wire.WithoutSecret(status.Convert(err), g.sent())
	g.raw("< %s: %s", st.Code(), st.Message())
	switch fromServer := wire.InfoOf(st) != nil; {
	case fromServer:
	case ctx.Err() != nil:
		return &TransportError{Address: g.address, Broken: begun, Err: context.Cause(ctx)}
	case st.Code() == codes.Unavailable:
		return &TransportError{Address: g.address, Broken: begun, Err: err, plainGRPC: !g.secure}
	case wire.IsOversized(st):
		return tooLarge("the answer is larger than %d bytes", MaxAnswer)
	}
	return g.refused(st, 0)
}

// unary makes a call with one answer.
func unary[Req, Resp proto.Message](ctx context.Context, g *grpcTransport, method string, call func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	out, err := g.outgoing(ctx, method, req)
	if err != nil {
		var none Resp
		return none, err
	}
	resp, err := call(out, req)
	if g.discards(err) {
		if out, err = g.outgoing(ctx, method, req); err != nil {
			return resp, err
		}
		resp, err = call(out, req)
	}
	if err != nil {
		return resp, g.failed(ctx, err, false)
	}
	g.show("<", string(resp.ProtoReflect().Descriptor().Name()), resp)
	return resp, nil
}

// follow makes a call and yields the responses of its stream.
func follow[Req proto.Message](ctx context.Context, g *grpcTransport, method string, call func(context.Context, Req, ...grpc.CallOption) (grpc.ServerStreamingClient[a2av1.StreamResponse], error), req Req, kv ...string) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends a gRPC stream that was not read to its end
		begun := false
		out, err := g.outgoing(ctx, method, req, kv...)
		if err != nil {
			yield(nil, err)
			return
		}
		s, err := call(out, req)
		for err == nil {
			var resp *a2av1.StreamResponse
			if resp, err = s.Recv(); err == nil {
				begun = true
				g.show("<", "StreamResponse", resp)
				if !yield(resp, nil) {
					return
				}
			}
		}
		if g.discards(err); !errors.Is(err, io.EOF) {
			yield(nil, g.failed(ctx, err, begun))
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

// close closes the connection, and those over HTTP on which the card was read.
func (g *grpcTransport) close() error { return errors.Join(g.web.close(), g.conn.Close()) }
