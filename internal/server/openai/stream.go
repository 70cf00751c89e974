package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
)

// chunks is a stream of the A2A service that is sent as chunks of a chat completion. It implements grpc.ServerStream.
type chunks struct {
	ctx     context.Context //nolint:containedctx // that of the call, as in every grpc.ServerStream
	req     proto.Message
	head    completion
	follows bool // the message answers a question, so that what the task has said before is known
	begin   func() *wire.EventWriter
	answer  answer

	mu     sync.Mutex
	timer  *time.Timer       // keeps the stream alive; guarded by mu
	events *wire.EventWriter // nil until the stream begins; guarded by mu
	sent   int               // bytes of the answer that were sent; guarded by mu
	ended  bool              // guarded by mu
}

// stream answers a request with chunks. It reports whether the caller has got all of them.
func (d *Door) stream(w http.ResponseWriter, r *http.Request, req *chatRequest, t *turn, at place) bool {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	to := &chunks{
		head: head(req, at, "chat.completion.chunk"), follows: at.task != "", answer: answer{base: call.InboundOf(ctx).BaseURL()},
		begin: func() *wire.EventWriter { return wire.NewEventWriter(w, d.config.StallTime, cancel) },
	}
	to.ctx, to.req = t.send(ctx, at)
	to.wait()
	err := d.table.Stream(a2av1.A2AService_SendStreamingMessage_FullMethodName, to)
	begun := to.stop()
	if err == nil {
		err = to.answer.failed().Err()
	}
	if !begun && err != nil {
		fail(w, err)
		return false
	}
	if !begun {
		to.events = to.begin()
		_ = to.send(delta{Role: "assistant"}, nil) // the next one reports the end of the connection
	}
	defer to.events.Close()
	return to.finish(req, err) == nil && err == nil
}

// finish sends the end of a stream.
func (c *chunks) finish(req *chatRequest, err error) error {
	if err != nil {
		_ = c.events.Event(0, "", failureJSON(wire.Status(err))) // the last chunk reports the end of the connection
		return c.events.Event(0, "", []byte("[DONE]"))
	}
	if err := c.rest(); err != nil {
		return err
	}
	if err := c.send(delta{}, new("stop")); err != nil {
		return err
	}
	if req.Options.IncludeUsage {
		last := c.head
		last.Choices, last.Usage, last.TaskID = []choice{}, c.answer.usage(), c.answer.task
		if err := c.events.Event(0, "", encode(last)); err != nil {
			return err
		}
	}
	return c.events.Event(0, "", []byte("[DONE]"))
}

// send sends a chunk with one piece of the message.
func (c *chunks) send(d delta, finish *string) error {
	chunk := c.head
	chunk.Choices = []choice{{Delta: &d, Finish: finish}}
	return c.events.Event(0, "", encode(chunk))
}

// open begins the stream, if it has not begun.
func (c *chunks) open() error {
	if c.events != nil {
		return nil
	}
	c.events = c.begin()
	return c.send(delta{Role: "assistant", Content: new("")}, nil)
}

// rest sends what was not sent of the answer.
func (c *chunks) rest() error {
	text := c.answer.text.String()
	if c.sent == len(text) {
		return nil
	}
	piece := text[c.sent:]
	c.sent = len(text)
	return c.send(delta{Content: &piece}, nil)
}

// wait begins to keep the stream alive.
func (c *chunks) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(refusalTime, c.alive)
}

// alive sends a chunk without a text: some clients give up after two minutes without one, whatever else is sent.
func (c *chunks) alive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	err := c.open()
	if err == nil {
		err = c.send(delta{}, nil)
	}
	if err == nil {
		c.timer.Reset(aliveTime)
	}
}

// stop ends the chunks of alive and reports whether the stream has begun.
func (c *chunks) stop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.ended = true
	return c.events != nil
}

// Context implements grpc.ServerStream.
func (c *chunks) Context() context.Context { return c.ctx }

// SetHeader implements grpc.ServerStream.
func (*chunks) SetHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (*chunks) SetTrailer(metadata.MD) {}

// SendHeader implements grpc.ServerStream. The stream begins with its first text, because until then it can still be refused.
func (*chunks) SendHeader(metadata.MD) error { return nil }

// RecvMsg implements grpc.ServerStream.
func (c *chunks) RecvMsg(request any) error { return service.Share(request, c.req) }

// SendMsg implements grpc.ServerStream: it sends what an update adds to the answer.
func (c *chunks) SendMsg(message any) error {
	u, ok := message.(feed.Update)
	if !ok {
		return fmt.Errorf("rendering %T", message)
	}
	if err := call.InboundOf(c.ctx).Held.Updating(c.ctx, proto.Size(u.Response)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer.update(u.Response)
	if c.follows && u.Response.GetTask() != nil && !u.Last {
		c.sent = c.answer.text.Len()
	}
	c.follows = false
	if c.sent == c.answer.text.Len() {
		return nil
	}
	err := c.open()
	if err == nil {
		err = c.rest()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return call.SlowReader().Because(err)
	}
	return fmt.Errorf("%w: %w", context.Canceled, err)
}
