package grpcapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/conn"
	"github.com/agentteams/team-server/internal/wire"
)

// codec is the protobuf codec of grpc-go, except that it passes frames through. Frames let
// the server decode requests itself, because grpc-go answers the error of a codec with its
// own text, and send encoded updates that several readers share.
type codec struct{ encoding.CodecV2 }

// frame holds the bytes of one encoded message.
type frame struct {
	data []byte
	// sent, if not nil, is called when the transport no longer needs the data.
	sent func()
	conn *conn.Conn // the connection over which it is sent, with sent
	// stall is how long the client may take to accept any of it, with sent.
	stall time.Duration
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		if f.sent != nil {
			return f.conn.Buffers(f.data, f.stall, f.sent), nil
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

func receive(ctx context.Context, next func(any) error, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("receiving %T", v)
	}
	in, f := call.InboundOf(ctx), &frame{}
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(call.Ender); ok {
		in.Stream.Store(&s)
	}
	err := in.Held.Await(ctx)
	if err == nil {
		err = next(f)
	}
	if in.Received != nil {
		in.Received()
	}
	switch {
	case err == nil:
		err = in.Held.Received(ctx, len(f.data))
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		in.Held.Release()
		return wire.Status(err).Err()
	}
	if err := wire.UnmarshalProto(f.data, m); err != nil {
		return wire.Status(err).Err()
	}
	return nil
}

// framed returns an answer for which memory is held as a frame, which holds it until it has been sent.
func (s *API) framed(in *call.Inbound, resp any) (any, error) {
	hold := in.Held.TakeAnswer()
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
	return &frame{data, hold.Release, conn.Of(in.Peer), s.config.StallTime}, nil
}
