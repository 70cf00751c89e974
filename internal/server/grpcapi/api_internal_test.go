package grpcapi

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/server/call"
)

// endedStream is the stream of a call that its caller has canceled.
type endedStream struct{ grpc.ServerTransportStream }

// SetHeader implements grpc.ServerTransportStream.
func (endedStream) SetHeader(metadata.MD) error {
	return status.Error(codes.Internal, "transport: SendHeader called multiple times")
}

// TestT_42_CanceledBeforeItBegan: a call over gRPC that is canceled before it begins is no failure of the server.
func TestT_42_CanceledBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&API{chain: &call.Chain{}}).aroundUnary(grpc.NewContextWithServerTransportStream(ctx, endedStream{}), nil, &grpc.UnaryServerInfo{}, nil)
	if status.Code(err) != codes.Canceled {
		t.Errorf("the call ends with %v, want CANCELED", err)
	}
}
