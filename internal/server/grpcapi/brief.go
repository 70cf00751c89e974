package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxBrief is the largest message of a brief service, in bytes.
	maxBrief = 1 << 10
	// briefTime is the timeout for the first message of a call to a brief service.
	briefTime = 10 * time.Second
	// maxAnonymous is the maximum number of open gRPC calls without a key, and
	// maxAnonymousFrom the maximum number of those from one address.
	maxAnonymous, maxAnonymousFrom = 1024, 128
)

// isBrief reports whether a method is that of a brief service: those of grpc-go, which are not counted.
func isBrief(method string) bool { return strings.HasPrefix(method, "/grpc.") }

// briefServices registers services whose requests are short. Callers without a key may
// call them, so a request must not use much memory. grpc-go has one size limit for the
// whole server, so the calls of these services read their messages themselves.
type briefServices struct {
	*grpc.Server
	s *API
}

// RegisterService registers a service with all its methods as streams, which makes no
// difference to clients: the handler of a stream reads its messages itself.
func (b briefServices) RegisterService(d *grpc.ServiceDesc, impl any) {
	c := *d
	c.Methods, c.Streams = nil, nil
	for _, m := range d.Methods {
		c.Streams = append(c.Streams, grpc.StreamDesc{StreamName: m.MethodName, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			to := &briefStream{ServerStream: stream, s: b.s, single: true}
			resp, err := m.Handler(srv, stream.Context(), to.RecvMsg, nil)
			if err != nil {
				return err
			}
			return stream.SendMsg(resp)
		}})
	}
	for _, m := range d.Streams {
		brief := m
		brief.Handler = func(srv any, stream grpc.ServerStream) error {
			return m.Handler(srv, &briefStream{ServerStream: stream, s: b.s, single: !m.ClientStreams})
		}
		c.Streams = append(c.Streams, brief)
	}
	b.Server.RegisterService(&c, impl)
}

// briefStream receives messages of at most maxBrief bytes.
type briefStream struct {
	grpc.ServerStream
	s      *API
	single bool // the caller sends exactly one message
	begun  bool // the first message has been requested
}

// transportStream has the methods that the transport streams of grpc-go have in addition to
// their public interface.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// RecvMsg receives the next message. The first one must arrive within briefTime.
func (b *briefStream) RecvMsg(v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("receiving %T", v)
	}
	data, err := b.next()
	if err != nil {
		return err
	}
	if err := wire.UnmarshalProto(data, m); err != nil {
		return wire.Status(err).Err()
	}
	return nil
}

// next returns the bytes of the next message. If the first message does not arrive within
// briefTime, next returns an error; the read then continues in the background until the call
// ends.
func (b *briefStream) next() (data []byte, err error) {
	if b.begun {
		return b.read()
	}
	b.begun = true
	done := make(chan struct{})
	var first []byte
	b.s.pacing.Go(func() {
		defer close(done)
		first, err = b.read()
	})
	late := time.NewTimer(briefTime)
	defer late.Stop()
	select {
	case <-done:
		return first, err
	case <-late.C:
		return nil, wire.Status(agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "no request message arrived within %s of the headers", briefTime)).Err()
	}
}

func (b *briefStream) read() ([]byte, error) {
	from, ok := grpc.ServerTransportStreamFromContext(b.Context()).(transportStream)
	if !ok {
		return nil, errors.New("cannot read the transport")
	}
	var header [5]byte // compressed or not, and the length
	switch err := from.ReadMessageHeader(header[:]); {
	case errors.Is(err, io.EOF) && b.single:
		return nil, wire.Status(wire.Invalid("", "has no message")).Err()
	case err != nil:
		return nil, err
	case header[0] != 0:
		return nil, wire.NotServed("compressed messages are not accepted here; send the message uncompressed").Err()
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > maxBrief {
		return nil, wire.Status(wire.TooLarge(maxBrief)).Err()
	}
	data, err := from.Read(int(n))
	if err != nil {
		return nil, err
	}
	defer data.Free()
	if b.single {
		if err := from.ReadMessageHeader(header[:]); !errors.Is(err, io.EOF) {
			return nil, wire.Status(wire.Invalid("", "has more than one message")).Err()
		}
	}
	return data.Materialize(), nil
}

// anonymous counts the open gRPC calls of callers without a key. The zero value is
// ready to use.
type anonymous struct {
	mu   sync.Mutex
	all  int                // guarded by mu
	from map[netip.Addr]int // guarded by mu
}

// enter counts a call. The caller must call leave when the call ends. The error is
// INSUFFICIENT_RESOURCES if too many calls are open.
func (a *anonymous) enter(ctx context.Context) (leave func(), err error) {
	addr := call.InboundOf(ctx).Addr
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := maxAnonymousFrom; a.from[addr] >= most || a.all >= maxAnonymous {
		e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"too many open calls without an API key; at most %d are allowed from one address; close one, or send an API key", most)
		e.Retry, e.RetryAfter = true, time.Second
		return nil, wire.Status(e.With("max_streams", strconv.Itoa(most))).Err()
	}
	if a.from == nil {
		a.from = map[netip.Addr]int{}
	}
	a.all++
	a.from[addr]++
	return func() { a.leave(addr) }, nil
}

func (a *anonymous) leave(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.from[addr]--; a.from[addr] == 0 {
		delete(a.from, addr)
	}
}
