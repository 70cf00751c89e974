package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
)

// form is how an API of OpenAI gives an answer.
type form interface {
	// whole returns the answer in one piece.
	whole(a *answer) any
	// broken returns what takes its place after an error, when the status of the call was sent.
	broken(a *answer, st *status.Status) any
	// opening returns the events with which a stream begins.
	opening(a *answer) []event
	// waiting returns the events that show that a stream is alive. Some clients give up after two minutes without an event,
	// even if there are comments. sent is the number of bytes of the answer that were sent.
	waiting(a *answer, sent int) []event
	// piece returns the events with what the answer has more than the first sent bytes.
	piece(a *answer, sent int) []event
	// ending returns the last events; st is nil without an error.
	ending(a *answer, st *status.Status) []event
}

// event is an event of a stream.
type event struct {
	kind string // "" without an event line
	data []byte
}

// everything is the cursor with which a stream has all updates of a task: no client sees the first event.
const everything = 1

// follow receives the updates of a task, and makes of them the answer to one message, which it may send as it grows. It
// implements grpc.ServerStream.
type follow struct {
	pulse
	ctx    context.Context //nolint:containedctx // that of the call, as in every grpc.ServerStream
	req    proto.Message
	after  int64 // the event behind which the message was sent, which answers a question of the task; 0 for the first message
	waits  bool  // the task still waits for the message; guarded by mu, as all below
	over   bool  // the task has ended, or asks again
	answer answer
	to     *events // nil if nothing is sent as it grows
}

// events is what a follow sends.
type events struct {
	form   form
	early  bool // the stream begins with the task, not only with its first text: it cannot be refused anyway
	begin  func() *wire.EventWriter
	writer *wire.EventWriter // nil until the stream begins
	sent   int               // bytes of the answer that were sent
}

// relay runs a streaming method and sends what its task says. It reports whether the caller has got all of it.
func (d *Door) relay(w http.ResponseWriter, method string, f *follow) bool {
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	f.ctx = ctx
	f.to.begin = func() *wire.EventWriter { return wire.NewEventWriter(w, d.config.StallTime, cancel) }
	f.start(f.alive)
	err := d.table.Stream(method, f)
	f.stop()
	if f.over || err == nil {
		err = f.answer.failed().Err()
	}
	if f.to.writer == nil && err != nil {
		fail(w, err)
		return false
	}
	sent := f.finish(err)
	f.to.writer.Close()
	return sent == nil && err == nil
}

// finish sends the end of a stream.
func (f *follow) finish(err error) error {
	if err := f.grown(); err != nil {
		return err
	}
	var st *status.Status
	if err != nil {
		st = wire.Status(err)
	}
	return f.to.send(f.to.form.ending(&f.answer, st))
}

// send sends events.
func (e *events) send(list []event) error {
	for _, one := range list {
		if err := e.writer.Event(0, one.kind, one.data); err != nil {
			return err
		}
	}
	return nil
}

// open begins the stream, if it has not begun.
func (f *follow) open() error {
	if f.to.writer != nil {
		return nil
	}
	f.to.writer = f.to.begin()
	return f.to.send(f.to.form.opening(&f.answer))
}

// grown sends what was not sent of the answer.
func (f *follow) grown() error {
	if err := f.open(); err != nil {
		return err
	}
	sent := f.to.sent
	if f.to.sent = len(f.answer.said()); f.to.sent == sent {
		return nil
	}
	return f.to.send(f.to.form.piece(&f.answer, sent))
}

// alive shows that the stream is alive, once its task is known.
func (f *follow) alive() error {
	if f.answer.task == "" {
		return nil
	}
	if err := f.open(); err != nil {
		return err
	}
	return f.to.send(f.to.form.waiting(&f.answer, f.to.sent))
}

// take adds an update to the answer.
func (f *follow) take(u feed.Update) {
	f.answer.update(u.Response)
	asks := taskstate.Interrupted(f.answer.status.GetState())
	if u.Seq > 0 && u.Seq <= f.after {
		f.waits = asks
	}
	if f.waits = f.waits && asks; f.waits || u.Seq > 0 && u.Seq <= f.after {
		f.answer.from = f.answer.text.Len()
		return
	}
	f.over = u.Seq > f.after && (asks || taskstate.Final(f.answer.status.GetState()))
}

// Context implements grpc.ServerStream.
func (f *follow) Context() context.Context { return f.ctx }

// SetHeader implements grpc.ServerStream.
func (*follow) SetHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (*follow) SetTrailer(metadata.MD) {}

// SendHeader implements grpc.ServerStream. The stream begins with its first text, because until then it can still be refused.
func (*follow) SendHeader(metadata.MD) error { return nil }

// RecvMsg implements grpc.ServerStream.
func (f *follow) RecvMsg(request any) error { return service.Share(request, f.req) }

// SendMsg implements grpc.ServerStream: it takes an update, and sends what the answer has more by it.
func (f *follow) SendMsg(message any) error {
	u, ok := message.(feed.Update)
	if !ok {
		return fmt.Errorf("rendering %T", message)
	}
	if err := call.InboundOf(f.ctx).Held.Updating(f.ctx, proto.Size(u.Response)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(u)
	switch err := f.show(u); {
	case err == nil && f.over && !u.Last: // what follows belongs to the next message
		return context.Canceled
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return call.SlowReader().Because(err)
	default:
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
}

// show sends what the answer has more by an update.
func (f *follow) show(u feed.Update) error {
	if f.to == nil || u.Seq <= f.after || f.waits || !f.to.early && len(f.answer.said()) == f.to.sent {
		return nil
	}
	return f.grown()
}
