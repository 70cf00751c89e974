package remote

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
)

// errIdle means that no item arrived before the idle timeout.
var errIdle = errors.New("no data was received for too long")

// stream opens a stream of what a peer sends. The sequence releases its resources when it ends.
type stream[T any] func(ctx context.Context) iter.Seq2[T, error]

// source reads a stream in a goroutine, so that its reader can also wait for other things, and can
// continue to read after the end of its context: a cancel needs the id of the task to cancel. It is
// not safe for concurrent use. close must be called.
type source[T any] struct {
	items chan item[T]
	stop  context.CancelFunc
	last  *item[T] // what next returned last; nil if that was not an item
	kept  *item[T] // what next returns next; nil if it must receive
}

// item is a value or an error of a stream.
type item[T any] struct {
	value T
	err   error
}

// read opens a stream and reads it. It uses the values of ctx, but ignores its end.
func read[T any](ctx context.Context, open stream[T]) *source[T] {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // close calls it
	s := &source[T]{items: make(chan item[T]), stop: stop}
	go s.run(ctx, open)
	return s
}

// run sends the items of a stream.
func (s *source[T]) run(ctx context.Context, open stream[T]) {
	defer close(s.items)
	for v, err := range open(ctx) {
		if !s.send(ctx, item[T]{v, err}) {
			return
		}
	}
}

// send sends an item and reports whether it was received before ctx ended.
func (s *source[T]) send(ctx context.Context, i item[T]) bool {
	select {
	case s.items <- i:
		return true
	case <-ctx.Done():
		return false
	}
}

// next returns the next item, waiting for it until ctx ends; an item that has arrived is returned
// even then. The error is the cause of ctx, errIdle if no item arrives within idle (0 means no
// timeout), io.EOF at the end of the stream, or the error in the item.
func (s *source[T]) next(ctx context.Context, idle time.Duration) (T, error) {
	i, err := s.receive(ctx, idle)
	s.last = i
	if i == nil {
		i = &item[T]{err: err}
	}
	return i.value, i.err
}

// unread makes next return its last item again. Readers call it if they have noticed the end of the
// context before they used the item.
func (s *source[T]) unread() { s.kept = s.last }

// receive is next without its bookkeeping. It returns nil if there is no item.
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

// ready returns an item that has arrived, or else err.
func (s *source[T]) ready(err error) (*item[T], error) {
	select {
	case i, ok := <-s.items:
		return arrived(i, ok)
	default:
		return nil, err
	}
}

// arrived returns a received item, io.EOF if the stream has ended.
func arrived[T any](i item[T], ok bool) (*item[T], error) {
	if !ok {
		return nil, io.EOF
	}
	return &i, nil
}

// close ends the stream and waits for its goroutine.
func (s *source[T]) close() {
	s.stop()
	for range s.items { // until the goroutine has ended
	}
}

// once returns a stream with the result of one call.
func once[T any](f func(context.Context) (T, error)) stream[T] {
	return func(ctx context.Context) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) { yield(f(ctx)) }
	}
}

// received returns a stream that reads a gRPC stream.
func received[T any](open func(context.Context) (grpc.ServerStreamingClient[T], error)) stream[*T] {
	return func(ctx context.Context) iter.Seq2[*T, error] {
		return func(yield func(*T, error) bool) {
			ctx, stop := context.WithCancel(ctx)
			defer stop() // ends a gRPC stream that was not read to its end
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
