package grpcapi

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/conn"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// runPaced runs a streaming method in a goroutine of its own, and ends it if its reader accepts no
// data for StallTime. Sending over gRPC has no timeout: a blocked send returns only
// after the handler of the call has returned.
func (s *API) runPaced(method string, to grpc.ServerStream, run func(to grpc.ServerStream) error) error {
	p := &pace{ServerStream: to, start: time.Now(), stall: s.config.StallTime}
	done := make(chan error, 1)
	s.pacing.Go(func() {
		var err error
		defer func() { done <- err }()
		defer s.chain.Recover(method, &err)
		err = run(p)
	})
	return s.watch(p, done)
}

// watch waits until the stream ends or its reader has stalled. A stalled reader gets the
// error SLOW_READER.
func (s *API) watch(p *pace, done <-chan error) error {
	limit := s.config.StallTime
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
		left := limit - p.waiting()
		if left <= 0 {
			p.stalled.Store(true)
			return wire.Status(p.stallError()).Err()
		}
		timer.Reset(left)
	}
}

// pace is a stream over gRPC. It measures how long its reader takes to accept each message. It is safe
// for concurrent use.
type pace struct {
	grpc.ServerStream
	start   time.Time
	stall   time.Duration // how long a client may accept nothing
	since   atomic.Int64  // when the current send began, in ns after start; 0 if none is running
	last    atomic.Int64  // cursor of the last message that was sent
	stalled atomic.Bool   // the stream was ended because of its reader
}

// SendMsg sends an update or another message of the stream.
func (p *pace) SendMsg(message any) error {
	ctx := p.Context()
	m, err := p.encode(ctx, message)
	if err != nil {
		return err
	}
	p.since.Store(max(int64(time.Since(p.start)), 1))
	err = p.ServerStream.SendMsg(m)
	p.since.Store(0)
	switch seq := call.SeqOf(message); {
	case err == nil && seq != 0:
		p.last.Store(seq)
	case err != nil && p.stalled.Load():
		return p.stallError()
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// encode returns what grpc-go sends of a message: a frame for an update, which its readers share, and for all that memory is
// held for, which it holds until it has been sent.
func (p *pace) encode(ctx context.Context, message any) (any, error) {
	var f *frame
	in := call.InboundOf(ctx)
	switch m := message.(type) {
	case feed.Update:
		data, err := call.EncodeUpdate(ctx, m, feed.FormProto, proto.Marshal)
		if err != nil {
			return nil, err
		}
		f = &frame{data: data}
	case *teamv1.WatchTaskResponse:
		message = call.Reduced(ctx, m)
	}
	release := in.Held.TakeUpdate()
	if m, ok := message.(proto.Message); ok && f == nil && release != nil {
		data, err := proto.Marshal(m)
		if err != nil {
			release()
			return nil, err
		}
		f = &frame{data: data}
	}
	if f == nil {
		return message, nil
	}
	f.sent, f.conn, f.stall = release, conn.Of(in.Peer), p.stall
	return f, nil
}

// waiting returns how long the current send has been running, 0 if none is.
func (p *pace) waiting() time.Duration {
	since := p.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(p.start) - time.Duration(since)
}

// stallError returns the error of a stalled stream, with the cursor to continue from.
func (p *pace) stallError() *agent.Error {
	if p.last.Load() == 0 { // no message had a cursor
		return call.SlowReader()
	}
	return call.SlowReader().With("last_event_id", strconv.FormatInt(p.last.Load(), 10))
}
