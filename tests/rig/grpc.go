package rig

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// GRPC is a Client for gRPC.
type GRPC struct {
	Conn   *grpc.ClientConn
	client a2av1.A2AServiceClient
	target Target
}

// NewGRPC returns a client. It connects at its first call.
func NewGRPC(target Target) (*GRPC, error) {
	creds := insecure.NewCredentials()
	if target.tls != nil {
		creds = credentials.NewTLS(target.tls)
	}
	conn, err := grpc.NewClient("passthrough:///"+target.GRPC, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	return &GRPC{Conn: conn, client: a2av1.NewA2AServiceClient(conn), target: target}, nil
}

// Close closes the connection.
func (c *GRPC) Close() error { return c.Conn.Close() }

// Binding returns "grpc".
func (c *GRPC) Binding() string { return "grpc" }

// Context returns ctx with the target's headers as outgoing metadata.
func (c *GRPC) Context(ctx context.Context) context.Context {
	if c.target.Patience > 0 {
		ctx = patient{ctx, time.Now().Add(c.target.Patience)}
	}
	return metadata.NewOutgoingContext(ctx, metadata.New(c.target.headers()))
}

// patient is a context whose deadline is sent to the server but does not end the call in
// the client.
type patient struct {
	context.Context
	until time.Time
}

// Deadline returns the deadline to send.
func (p patient) Deadline() (time.Time, bool) { return p.until, true }

// FromGRPC converts the error of a generated client to an *Error.
func FromGRPC(err error) error {
	if err == nil {
		return nil
	}
	return errorOf(status.Convert(err), 0)
}

// Send calls SendMessage.
func (c *GRPC) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	resp, err := c.client.SendMessage(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// Get calls GetTask.
func (c *GRPC) Get(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	resp, err := c.client.GetTask(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// List calls ListTasks.
func (c *GRPC) List(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	resp, err := c.client.ListTasks(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// Cancel calls CancelTask.
func (c *GRPC) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	resp, err := c.client.CancelTask(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// Card calls GetExtendedAgentCard.
func (c *GRPC) Card(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	resp, err := c.client.GetExtendedAgentCard(c.Context(ctx), req)
	return resp, FromGRPC(err)
}

// Stream calls SendStreamingMessage.
func (c *GRPC) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return receive(c.Context(ctx), func(ctx context.Context) (grpc.ServerStreamingClient[a2av1.StreamResponse], error) {
		return c.client.SendStreamingMessage(ctx, req)
	})
}

// Subscribe calls SubscribeToTask.
func (c *GRPC) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	ctx = c.Context(ctx)
	if after != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "last-event-id", strconv.FormatInt(after, 10))
	}
	return receive(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[a2av1.StreamResponse], error) {
		return c.client.SubscribeToTask(ctx, req)
	})
}

func receive[M any](ctx context.Context, open func(context.Context) (grpc.ServerStreamingClient[M], error)) iter.Seq2[*M, error] {
	return func(yield func(*M, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := open(ctx)
		if err != nil {
			yield(nil, FromGRPC(err))
			return
		}
		for {
			u, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(u, FromGRPC(err)) || err != nil {
				return
			}
		}
	}
}
