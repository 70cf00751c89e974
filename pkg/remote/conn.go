package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// Metadata keys of calls to peers.
const (
	pathKey          = "team-path" // levels of nesting above the callee
	authorizationKey = "authorization"
)

// withPath returns a context whose calls over A2A say how many levels of nesting are
// above the callee.
func withPath(ctx context.Context, depth int) context.Context {
	return a2aclient.WithHeader(ctx, http.Header{pathKey: {strconv.Itoa(depth)}})
}

// refusedByCaller logs that a connection to an address that a caller has named is not allowed, and
// returns the error for the callers: they must not learn what is in the network of this server.
func refusedByCaller(log *zap.Logger, id, address string, err error) error {
	log.Warn("the address of an agent is neither public nor in server.egress.allow", zap.String("agent", id), zap.String("address", address), zap.Error(err))
	return errNoConnection
}

// errNoConnection is the error of a connection of which callers do not learn more.
var errNoConnection = errors.New("no connection")

// dial returns a gRPC connection that out makes at its first use. A nil tlsConfig means no
// TLS. The errors of calls do not have the token.
func dial(id, address string, out *egress.Dialer, tlsConfig *tls.Config, token secret.Secret, log *zap.Logger) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if tlsConfig != nil {
		creds = credentials.NewTLS(tlsConfig)
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := out.DialContext(ctx, "tcp", addr)
			if errors.Is(err, egress.ErrNotAllowed) {
				return nil, refusedByCaller(log, id, addr, err)
			}
			return conn, err
		}),
		grpc.WithNoProxy(),
		grpc.WithTransportCredentials(creds),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return withoutSecret(invoke(ctx, method, req, reply, cc, opts...), token)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, cc, method, opts...)
			return redactedStream{s, token}, withoutSecret(err, token)
		}),
		grpc.WithDisableRetry(), // the team decides on retries
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBody)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// Many servers close connections with pings more often than every 5 minutes.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}),
	)
}

// withoutSecret returns the error of a call without a secret that the peer was given.
func withoutSecret(err error, s secret.Secret) error {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	if safe := wire.WithoutSecret(st, s); safe != st {
		return safe.Err()
	}
	return err
}

// redactedStream removes a secret from the errors of a stream.
type redactedStream struct {
	grpc.ClientStream
	secret secret.Secret
}

// Header implements grpc.ClientStream.
func (s redactedStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, withoutSecret(err, s.secret)
}

// RecvMsg implements grpc.ClientStream.
func (s redactedStream) RecvMsg(m any) error {
	return withoutSecret(s.ClientStream.RecvMsg(m), s.secret)
}

// maxBody is the limit of one message of a peer, in bytes.
const maxBody = a2aclient.MaxAnswer

// outgoing returns a context with the metadata that each call to a peer carries.
func outgoing(ctx context.Context, token secret.Secret, depth int) context.Context {
	kv := []string{pathKey, strconv.Itoa(depth)}
	if value := traceparent.Of(ctx); value != "" {
		kv = append(kv, traceparent.Key, value)
	}
	if !token.IsZero() {
		kv = append(kv, authorizationKey, "Bearer "+token.Reveal())
	}
	return metadata.AppendToOutgoingContext(ctx, kv...)
}

// newEgress returns out; if that is nil, a new dialer that allows every address.
func newEgress(out *egress.Dialer) (*egress.Dialer, error) {
	if out != nil {
		return out, nil
	}
	return egress.New(egress.Config{})
}

// depthOf returns the number of levels of nesting above the peer.
func depthOf(ctx context.Context, sent int32) int { return max(agent.Depth(ctx), int(sent)) }
