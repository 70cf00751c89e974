package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
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
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// GRPCConfig configures the binding of gRPC.
type GRPCConfig struct {
	// TLS returns the configuration of a listener; nil means no TLS.
	TLS          func(protocols ...string) *tls.Config
	NoReflection bool
	// Ready returns why the server should receive no calls, for the health service.
	Ready          func() error
	HealthInterval time.Duration
	StallTime      time.Duration
	Log            *zap.Logger
}

// grpcAPI is the binding of gRPC.
type grpcAPI struct {
	config    GRPCConfig
	chain     *Chain
	table     *Table
	server    *grpc.Server
	pacing    sync.WaitGroup // the goroutines of streams
	anonymous anonymous
}

// NewGRPC returns the binding of gRPC.
func NewGRPC(config GRPCConfig, chain *Chain, table *Table) *grpcAPI {
	s := &grpcAPI{config: config, chain: chain, table: table}
	s.server = s.newGRPC()
	return s
}

// Serve serves a listener until Stop is called.
func (s *grpcAPI) Serve(l net.Listener) error { return s.server.Serve(l) }

// Stop waits for running calls like GracefulStop, but no longer than ctx.
func (s *grpcAPI) Stop(ctx context.Context) {
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

// maxHeader is the maximum size of the headers of a request, in bytes.
const maxHeader = 16 << 10

// maxStreams is the maximum number of streams of a connection with HTTP/2.
const maxStreams = 128

// loggedHandshakes are credentials that log handshakes that fail, as net/http does.
type loggedHandshakes struct {
	credentials.TransportCredentials
	log *zap.Logger
}

// ServerHandshake implements credentials.TransportCredentials.
func (h loggedHandshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		logHandshake(h.log, raw.RemoteAddr().String(), err.Error())
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (h loggedHandshakes) Clone() credentials.TransportCredentials {
	return loggedHandshakes{h.TransportCredentials.Clone(), h.log}
}

// receiveWindow is how much of a message a client may send before it is received. Without it, grpc-go lets the window of
// a fast client grow to 16 MiB, so that what waits to be received could use much memory.
const receiveWindow = 128 << 10

func (s *grpcAPI) newGRPC() *grpc.Server {
	creds := insecure.NewCredentials()
	if s.config.TLS != nil { // ConnectionTimeout limits the handshake
		creds = loggedHandshakes{credentials.NewTLS(s.config.TLS("h2")), connectionLog(s.config.Log)}
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
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(receiveWindow),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 10 * time.Second,
			MaxConnectionIdle: 2 * time.Minute, MaxConnectionAge: 10 * time.Minute, MaxConnectionAgeGrace: 70 * time.Second,
		}),
	}
	if s.chain.observesRequests() {
		options = append(options, grpc.StatsHandler(grpcRecorder{s.chain}))
	}
	g := grpc.NewServer(options...)
	for _, of := range s.table.all {
		g.RegisterService(readable(of.desc), of.on)
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
func (s *grpcAPI) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	in := s.chain.newInbound(bindingGRPC, info.Header.Get)
	in.record = s.chain.newRecord()
	if p, ok := peer.FromContext(ctx); ok {
		in.peer = p.Addr
		in.addr = callerAddr(in.settings.Proxies, p.Addr.String(), info.Header.Get("x-forwarded-for"))
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			in.tls = &t.State
		}
	}
	in.authorization = info.Header.Get("authorization")
	caller, err := s.chain.identify(in)
	switch {
	case err == nil:
		in.caller = &caller
		in.held = s.chain.heldBy(in, stops[info.FullMethodName])
		connOf(in.peer).calls(caller.Account)
	case info.FullMethodName != healthpb.Health_Check_FullMethodName && info.FullMethodName != healthpb.Health_Watch_FullMethodName:
		s.chain.logRefusal(in, err)
		s.chain.recordSignIn(in, err)
		s.chain.signInRefused(ctx, err)
		return nil, s.chain.refuseGRPC(ctx, in, err)
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) > maxAllowed { // grpc-go itself rejects a timeout of 0
		return nil, s.chain.refuseGRPC(ctx, in, notAllowed(time.Until(until).Round(time.Hour).String()))
	}
	own := !strings.HasPrefix(info.FullMethodName, "/grpc.") // brief limits the others
	if own && !stops[info.FullMethodName] {
		if err := s.chain.checkCalls(in); err != nil {
			return nil, s.chain.refuseGRPC(ctx, in, err)
		}
		if err := s.chain.countRequest(in); err != nil {
			return nil, s.chain.refuseGRPC(ctx, in, err)
		}
	}
	if own {
		ctx = s.chain.receiving(ctx, in)
	}
	return withInbound(ctx, in), nil
}

// stops has the methods that end work, which an account may call however many requests it makes.
var stops = map[string]bool{
	a2av1.A2AService_CancelTask_FullMethodName:                   true,
	teamv1.AgentService_Cancel_FullMethodName:                    true,
	teamv1.CollaborationService_StopCollaboration_FullMethodName: true,
	teamv1.HaltService_Halt_FullMethodName:                       true,
	teamv1.HaltService_Resume_FullMethodName:                     true,
}

// stopMethods has the same methods by their names alone, as type call has them.
var stopMethods = func() map[string]bool {
	names := map[string]bool{}
	for full := range stops {
		names[full[strings.LastIndex(full, "/")+1:]] = true
	}
	return names
}()

// codec is the protobuf codec of grpc-go, except that it passes frames through. Frames let
// the server decode requests itself, because grpc-go answers the error of a codec with its
// own text, and send encoded updates that several readers share.
type codec struct{ encoding.CodecV2 }

// frame holds the bytes of one encoded message.
type frame struct {
	data []byte
	// sent, if not nil, is called when the transport no longer needs the data.
	sent func()
	conn *counted // the connection over which it is sent, with sent
	// stall is how long the client may take to accept any of it, with sent.
	stall time.Duration
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		if f.sent != nil {
			return f.conn.buffers(f.data, f.stall, f.sent), nil
		}
		return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.data = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// readable returns the service with methods that receive frames and decode them, so that a
// malformed request is answered with INVALID_ARGUMENT as in the other bindings.
func readable(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	c := *d
	c.Methods = slices.Clone(d.Methods)
	for i, m := range d.Methods {
		c.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
			return m.Handler(srv, ctx, func(v any) error { return receive(ctx, dec, v) }, next)
		}
	}
	c.Streams = slices.Clone(d.Streams)
	for i, m := range d.Streams {
		c.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			return m.Handler(srv, readStream{stream})
		}
	}
	return &c
}

type readStream struct{ grpc.ServerStream }

func (s readStream) RecvMsg(m any) error { return receive(s.Context(), s.ServerStream.RecvMsg, m) }

// ender is what streams of grpc-go have: it ends a call with a status. A later one is not sent.
type ender interface{ WriteStatus(*status.Status) error }

func receive(ctx context.Context, next func(any) error, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("receiving %T", v)
	}
	in, f := inboundOf(ctx), &frame{}
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(ender); ok {
		in.stream.Store(&s)
	}
	err := in.held.await(ctx)
	if err == nil {
		err = next(f)
	}
	if in.received != nil {
		in.received()
	}
	switch {
	case err == nil:
		err = in.held.received(ctx, len(f.data))
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		in.held.release()
		return wire.Status(err).Err()
	}
	if err := wire.UnmarshalProto(f.data, m); err != nil {
		return wire.Status(err).Err()
	}
	return nil
}

func (s *grpcAPI) aroundUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	in := inboundOf(ctx)
	defer in.held.release()
	defer s.chain.recovered(info.FullMethod, &err)
	if err := grpc.SetHeader(ctx, headers(ctx)); err != nil {
		return nil, left(ctx, err)
	}
	if resp, err = s.chain.aroundCall(ctx, req, info, next); err != nil {
		return nil, err
	}
	return s.framed(in, resp)
}

// framed returns an answer for which memory is held as a frame, which holds it until it has been sent.
func (s *grpcAPI) framed(in *inbound, resp any) (any, error) {
	hold := in.held.takeAnswer()
	m, ok := resp.(proto.Message)
	if hold == nil || !ok {
		return resp, nil
	}
	data, err := proto.Marshal(m)
	if err != nil {
		hold.Release()
		return nil, wire.Status(err).Err()
	}
	hold.Set(int64(len(data)))
	return &frame{data, hold.Release, connOf(in.peer), s.config.StallTime}, nil
}

// left returns the error of a call whose headers cannot be set. If its caller has canceled it or is gone, grpc says
// INTERNAL, as if the server were to blame.
func left(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

func (s *grpcAPI) aroundStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer inboundOf(stream.Context()).held.release()
	defer s.chain.recovered(info.FullMethod, &err)
	if err := stream.SetHeader(headers(stream.Context())); err != nil {
		return left(stream.Context(), err)
	}
	if inboundOf(stream.Context()).caller == nil {
		leave, err := s.anonymous.enter(stream.Context())
		if err != nil {
			return err
		}
		defer leave()
	}
	if strings.HasPrefix(info.FullMethod, "/grpc.") { // brief limits the others
		return next(srv, stream)
	}
	return s.runPaced(info.FullMethod, stream, func(to grpc.ServerStream) error { return next(srv, to) })
}

// headers returns the response headers that every call gets, as over HTTP.
func headers(ctx context.Context) metadata.MD {
	in := inboundOf(ctx)
	md := metadata.Pairs("x-request-id", in.id)
	if uris := in.activated(); uris != "" {
		md.Set("a2a-extensions", uris)
	}
	return md
}
