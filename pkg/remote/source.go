package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
)

// errIdle: nothing came for too long.
var errIdle = errors.New("nothing came for too long")

// stream yields what a peer sends, and releases what it holds when it ends.
type stream[T any] func(ctx context.Context) iter.Seq2[T, error]

// source reads a stream in a goroutine of its own, so that its reader can wait
// for other things too, and can go on reading after its context has ended:
// a cancel needs the id of the task that is to be cancelled. Its methods are
// for one goroutine at a time. close must be called.
type source[T any] struct {
	items chan item[T]
	stop  context.CancelFunc
	last  *item[T] // that next returned; nil when that was none
	kept  *item[T] // that next returns next; nil is what comes
}

type item[T any] struct {
	value T
	err   error
}

// read opens a stream and reads it, with ctx's values and not its end.
func read[T any](ctx context.Context, open stream[T]) *source[T] {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // close calls it
	s := &source[T]{items: make(chan item[T]), stop: stop}
	go s.run(ctx, open)
	return s
}

func (s *source[T]) run(ctx context.Context, open stream[T]) {
	defer close(s.items)
	for v, err := range open(ctx) {
		if !s.send(ctx, item[T]{v, err}) {
			return
		}
	}
}

func (s *source[T]) send(ctx context.Context, i item[T]) bool {
	select {
	case s.items <- i:
		return true
	case <-ctx.Done():
		return false
	}
}

// next returns the next item, also after ctx's end if it is there already; the
// cause of ctx's end; errIdle after idle without an item, 0 waits for ever; or
// the stream's error.
func (s *source[T]) next(ctx context.Context, idle time.Duration) (T, error) {
	i, err := s.receive(ctx, idle)
	s.last = i
	if i == nil {
		i = &item[T]{err: err}
	}
	return i.value, i.err
}

// unread makes next return again what it returned last, if that was an item: its
// reader has seen that the context ended, and did nothing with it.
func (s *source[T]) unread() { s.kept = s.last }

func (s *source[T]) receive(ctx context.Context, idle time.Duration) (*item[T], error) {
	if i := s.kept; i != nil {
		s.kept = nil
		return i, nil
	}
	if ctx.Err() != nil {
		return s.ready(context.Cause(ctx))
	}
	var timeout <-chan time.Time
	if idle > 0 {
		timer := time.NewTimer(idle)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case i, ok := <-s.items:
		return arrived(i, ok)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timeout:
		return nil, errIdle
	}
}

// ready returns the item that is there already, err without one.
func (s *source[T]) ready(err error) (*item[T], error) {
	select {
	case i, ok := <-s.items:
		return arrived(i, ok)
	default:
		return nil, err
	}
}

func arrived[T any](i item[T], ok bool) (*item[T], error) {
	if !ok {
		return nil, io.EOF
	}
	return &i, nil
}

// close ends the stream and waits for its goroutine.
func (s *source[T]) close() {
	s.stop()
	for range s.items { // until its goroutine has ended
	}
}

// once makes a stream of one call.
func once[T any](f func(context.Context) (T, error)) stream[T] {
	return func(ctx context.Context) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) { yield(f(ctx)) }
	}
}

// received makes a stream of a gRPC stream.
func received[T any](open func(context.Context) (grpc.ServerStreamingClient[T], error)) stream[*T] {
	return func(ctx context.Context) iter.Seq2[*T, error] {
		return func(yield func(*T, error) bool) {
			ctx, stop := context.WithCancel(ctx)
			defer stop() // what ends a gRPC stream that was not read to its end
			s, err := open(ctx)
			for err == nil {
				var v *T
				if v, err = s.Recv(); err == nil && !yield(v, nil) {
					return
				}
			}
			if !errors.Is(err, io.EOF) {
				yield(nil, err)
			}
		}
	}
}
