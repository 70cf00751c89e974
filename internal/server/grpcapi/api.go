// Package grpcapi is the binding of gRPC. It refuses callers before their messages are read, reserves memory before a message
// is received, and ends streams whose readers have stalled.
package grpcapi

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/conn"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
)

// Config configures the binding of gRPC.
type Config struct {
	// TLS returns the configuration of a listener; nil means no TLS.
	TLS          func(protocols ...string) *tls.Config
	NoReflection bool
	// Ready returns why the server should receive no calls, for the health service.
	Ready          func() error
	HealthInterval time.Duration
	StallTime      time.Duration
	Log            *zap.Logger
}

// API is the binding of gRPC.
type API struct {
	config    Config
	chain     *call.Chain
	table     *service.Table
	server    *grpc.Server
	pacing    sync.WaitGroup // the goroutines of streams
	anonymous anonymous
}

// New returns the binding of gRPC.
func New(config Config, chain *call.Chain, table *service.Table) *API {
	s := &API{config: config, chain: chain, table: table}
	s.server = s.newGRPC()
	return s
}

// Serve serves a listener until Stop is called.
func (s *API) Serve(l net.Listener) error { return s.server.Serve(l) }

// Stop waits for running calls like GracefulStop, but no longer than ctx.
func (s *API) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.server.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.config.Log.Warn("closed gRPC calls that did not end within the drain time")
		s.server.Stop()
		<-done
	}
	s.pacing.Wait()
}

// loggedHandshakes are credentials that log handshakes that fail, as net/http does.
type loggedHandshakes struct {
	credentials.TransportCredentials
	log *zap.Logger
}

// ServerHandshake implements credentials.TransportCredentials.
func (h loggedHandshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		conn.LogHandshake(h.log, raw.RemoteAddr().String(), err.Error())
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (h loggedHandshakes) Clone() credentials.TransportCredentials {
	return loggedHandshakes{h.TransportCredentials.Clone(), h.log}
}

// receiveWindow is how much of a message a client may send before it is received. Without it, grpc-go lets the window of
// a fast client grow to 16 MiB, so that what waits to be received could use much memory.
const receiveWindow = 128 << 10

func (s *API) newGRPC() *grpc.Server {
	creds := insecure.NewCredentials()
	if s.config.TLS != nil { // ConnectionTimeout limits the handshake
		creds = loggedHandshakes{credentials.NewTLS(s.config.TLS("h2")), conn.ConnectionLog(s.config.Log)}
	}
	options := []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.InTapHandle(s.tap),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)}),
		grpc.UnknownServiceHandler(unknownMethod),
		grpc.UnaryInterceptor(s.aroundUnary),
		grpc.StreamInterceptor(s.aroundStream),
		grpc.MaxRecvMsgSize(wire.MaxBody),
		grpc.MaxSendMsgSize(wire.MaxEvent),
		grpc.MaxHeaderListSize(conn.MaxHeader),
		grpc.MaxConcurrentStreams(conn.MaxStreams),
		grpc.StaticStreamWindowSize(receiveWindow),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 10 * time.Second,
			MaxConnectionIdle: 2 * time.Minute, MaxConnectionAge: 10 * time.Minute, MaxConnectionAgeGrace: 70 * time.Second,
		}),
	}
	if s.chain.ObservesRequests() {
		options = append(options, grpc.StatsHandler(grpcRecorder{s.chain}))
	}
	g := grpc.NewServer(options...)
	for _, of := range s.table.All {
		g.RegisterService(readable(of.Desc), of.On)
	}
	brief := briefServices{Server: g, s: s}
	healthpb.RegisterHealthServer(brief, &health{of: s})
	if !s.config.NoReflection {
		reflection.Register(brief)
	}
	return g
}

// unknownMethod rejects a call of an unknown method, with the same error details as in the
// other bindings.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	return wire.NotServed("unknown method %.64q", name).Err()
}

// tap authenticates a call before its message is read. grpc-go calls it while it holds the
// lock of the connection, so it uses only what is in memory.
func (s *API) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	in := s.chain.NewInbound(call.GRPC, info.Header.Get)
	if p, ok := peer.FromContext(ctx); ok {
		in.Peer = p.Addr
		in.Addr = call.CallerAddr(in.Settings.Proxies, p.Addr.String(), info.Header.Get("x-forwarded-for"))
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			in.TLS = &t.State
		}
	}
	in.Authorization = info.Header.Get("authorization")
	if err := s.admit(ctx, in, info.FullMethodName); err != nil {
		st := wire.Status(err)
		in.Record.SetRefusal(st)
		s.chain.Finish(ctx, in)
		return nil, st.Err()
	}
	if !isBrief(info.FullMethodName) {
		ctx = s.chain.Receiving(ctx, in)
	}
	return call.WithInbound(ctx, in), nil
}

// admit identifies the caller of a call, and counts the call. Health needs no key.
func (s *API) admit(ctx context.Context, in *call.Inbound, method string) error {
	keyless := method == healthpb.Health_Check_FullMethodName || method == healthpb.Health_Watch_FullMethodName
	if err := s.chain.Identify(ctx, in, keyless); err != nil {
		return err
	}
	if in.Caller != nil {
		s.chain.Hold(in, call.StopsWork(method))
		conn.Of(in.Peer).Calls(in.Caller.Account)
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) > call.MaxAllowed { // grpc-go itself rejects a timeout of 0
		return call.NotAllowed(time.Until(until).Round(time.Hour).String())
	}
	if isBrief(method) || call.StopsWork(method) {
		return nil
	}
	return s.chain.Count(in)
}

func (s *API) aroundUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	in := call.InboundOf(ctx)
	defer in.Held.Release()
	defer s.chain.Recover(info.FullMethod, &err)
	if err := grpc.SetHeader(ctx, headers(ctx)); err != nil {
		return nil, left(ctx, err)
	}
	if resp, err = s.chain.Intercept(ctx, req, info, next); err != nil {
		return nil, err
	}
	return s.framed(in, resp)
}

// left returns the error of a call whose headers cannot be set. If its caller has canceled it or is gone, grpc says
// INTERNAL, as if the server were to blame.
func left(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

func (s *API) aroundStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer call.InboundOf(stream.Context()).Held.Release()
	defer s.chain.Recover(info.FullMethod, &err)
	if err := stream.SetHeader(headers(stream.Context())); err != nil {
		return left(stream.Context(), err)
	}
	if call.InboundOf(stream.Context()).Caller == nil {
		leave, err := s.anonymous.enter(stream.Context())
		if err != nil {
			return err
		}
		defer leave()
	}
	if isBrief(info.FullMethod) {
		return next(srv, stream)
	}
	return s.runPaced(info.FullMethod, stream, func(to grpc.ServerStream) error { return next(srv, to) })
}

// headers returns the response headers that every call gets, as over HTTP.
func headers(ctx context.Context) metadata.MD {
	in := call.InboundOf(ctx)
	md := metadata.Pairs("x-request-id", in.ID)
	if uris := in.Activated(); uris != "" {
		md.Set("a2a-extensions", uris)
	}
	return md
}

// grpcRecorder logs and measures calls over gRPC that tap has let in.
type grpcRecorder struct{ s *call.Chain }

// TagRPC implements stats.Handler.
func (grpcRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (g grpcRecorder) HandleRPC(ctx context.Context, event stats.RPCStats) {
	in := call.InboundOf(ctx)
	if in.Record == nil {
		return
	}
	switch e := event.(type) {
	case *stats.InPayload:
		in.Record.AddReceived(e.Length)
	case *stats.OutPayload:
		in.Record.AddSent(e.Length)
	case *stats.End:
		in.Record.SetRefusal(status.Convert(e.Error))
		g.s.Finish(ctx, in)
	}
}

// TagConn implements stats.Handler.
func (grpcRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (grpcRecorder) HandleConn(context.Context, stats.ConnStats) {}
