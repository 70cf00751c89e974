package server

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// sendFunc sends a message of a stream, behind which a reader can go on with a
// cursor; 0 is none.
type sendFunc func(seq int64, m any) error

// packed sends what a reader is told, with the bytes that all readers share.
func (s *Server) packed(send sendFunc) func(feed.Update) error {
	encode := s.fitting(proto.Marshal)
	return func(u feed.Update) error {
		data, err := u.Encoded(feed.FormProto, encode)
		if err != nil {
			return err
		}
		return send(u.Seq, &frame{data})
	}
}

// paced runs a stream in a goroutine of its own, and ends it when its reader
// takes nothing for too long: sending has no time limit over gRPC, and only the
// end of the call's handler ends it.
func (s *Server) paced(to grpc.ServerStream, run func(ctx context.Context, begin func(), send sendFunc) error) error {
	p := &pace{start: time.Now()}
	done := make(chan error, 1)
	s.pacing.Go(func() {
		begin := func() { _ = to.SendHeader(nil) } // sending finds a caller that has left
		done <- run(to.Context(), begin, func(seq int64, m any) error { return p.send(to, seq, m) })
	})
	return s.watch(p, done)
}

// watch waits for the end of a stream, or for its reader to stall.
func (s *Server) watch(p *pace, done <-chan error) error {
	limit := s.config.StallTime
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
		left := limit - p.waits()
		if left <= 0 {
			p.stalled.Store(true)
			return wire.Status(p.slow()).Err()
		}
		timer.Reset(left)
	}
}

// pace is how a reader takes what it is sent.
type pace struct {
	start   time.Time
	since   atomic.Int64 // ns after start when the message under way was sent; 0 is none
	last    atomic.Int64 // cursor behind what was sent
	stalled atomic.Bool  // the stream is ended
}

func (p *pace) send(to grpc.ServerStream, seq int64, m any) error {
	p.since.Store(max(int64(time.Since(p.start)), 1))
	err := to.SendMsg(m)
	p.since.Store(0)
	switch {
	case err == nil && seq != 0:
		p.last.Store(seq)
	case err != nil && p.stalled.Load():
		return p.slow()
	case err != nil && to.Context().Err() != nil:
		return context.Cause(to.Context())
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
	if p.last.Load() == 0 { // what was read last says where
		return slowReader()
	}
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
