package server

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// sendFunc sends a message of a stream, behind which a reader can go on with a
// cursor; 0 is none.
type sendFunc func(seq int64, m any) error

// packed sends what a reader is told, with the bytes that all readers share.
func packed(send sendFunc) func(a2a.Update) error {
	return func(u a2a.Update) error {
		data, err := u.Encoded(a2a.FormProto, proto.Marshal)
		if err != nil {
			return err
		}
		return send(u.Seq, &frame{data})
	}
}

// paced runs a stream in a goroutine of its own, and ends it when its reader
// takes nothing for too long: sending has no time limit over gRPC, and only the
// end of the call's handler ends it.
func (s *Server) paced(to grpc.ServerStream, run func(context.Context, sendFunc) error) error {
	ctx, cancel := context.WithCancelCause(to.Context())
	p := &pace{start: time.Now()}
	done := make(chan error, 1)
	s.pacing.Go(func() {
		defer cancel(nil)
		done <- run(ctx, func(seq int64, m any) error { return p.send(ctx, to, seq, m) })
	})
	err, stalled := s.watch(p, done)
	if stalled {
		cancel(err)
		err = wire.Status(err).Err()
	}
	return err
}

// watch waits for the end of a stream, or for its reader to stall.
func (s *Server) watch(p *pace, done <-chan error) (err error, stalled bool) { //nolint:revive // the error is what it waits for
	limit, closing := s.config.StallTime, s.closing.Done()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err, false
		case <-closing:
			closing, limit = nil, min(limit, closingTime)
			timer.Reset(limit)
		case <-timer.C:
			switch left := limit - p.waits(); {
			case left > 0:
				timer.Reset(left)
			case closing == nil:
				return context.Cause(s.closing), true
			default:
				return p.slow(), true
			}
		}
	}
}

// closingTime is what a reader may take when the server stops.
const closingTime = time.Second

// pace is how a reader takes what it is sent.
type pace struct {
	start time.Time
	since atomic.Int64 // ns after start when the message under way was sent; 0 is none
	last  atomic.Int64 // cursor behind what was sent
}

func (p *pace) send(ctx context.Context, to grpc.ServerStream, seq int64, m any) error {
	p.since.Store(max(int64(time.Since(p.start)), 1))
	err := to.SendMsg(m)
	p.since.Store(0)
	switch {
	case err == nil && seq != 0:
		p.last.Store(seq)
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// waits is how long the message under way has waited.
func (p *pace) waits() time.Duration {
	since := p.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(p.start) - time.Duration(since)
}

// slow is why a stalled stream ends, and where it goes on.
func (p *pace) slow() *agent.Error {
	return slowReader().With("last_event_id", strconv.FormatInt(p.last.Load(), 10))
}

func slowReader() *agent.Error {
	return &agent.Error{
		Code: agent.CodeUnavailable, Reason: agent.ReasonSlowReader, Retry: true,
		Message: "the stream was not read for too long; go on behind the last event",
	}
}

// narrow bounds what a connection holds for a peer that does not read.
type narrow struct{ net.Listener }

// sendBuffer is asked of the system for each connection, in bytes; it may double it.
const sendBuffer = 256 << 10

func (l narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if c, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok && err == nil {
		_ = c.SetWriteBuffer(sendBuffer) // without it the system finds a size
	}
	return conn, err
}
