package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"iter"
	"strings"

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

// grpcTransport is the gRPC binding.
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

func (g *grpcTransport) outgoing(ctx context.Context) context.Context {
	kv := []string{"a2a-version", "1.0"}
	if len(g.cfg.Extensions) > 0 {
		kv = append(kv, "a2a-extensions", strings.Join(g.cfg.Extensions, ", "))
	}
	if g.cfg.Token != "" {
		kv = append(kv, "authorization", "Bearer "+g.cfg.Token)
	}
	return metadata.AppendToOutgoingContext(ctx, kv...)
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

func (g *grpcTransport) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	g.show(">", "SendMessage", req)
	resp, err := g.client.SendMessage(g.outgoing(ctx), req)
	if err != nil {
		return nil, g.failed(err)
	}
	g.show("<", "SendMessageResponse", resp)
	return resp, nil
}

func (g *grpcTransport) stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return func(yield func(*a2av1.StreamResponse, error) bool) {
		ctx, cancel := context.WithCancel(g.outgoing(ctx))
		defer cancel()
		g.show(">", "SendStreamingMessage", req)
		s, err := g.client.SendStreamingMessage(ctx, req)
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

func (g *grpcTransport) close() error { return g.conn.Close() }
