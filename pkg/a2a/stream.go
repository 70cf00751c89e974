package a2a

import (
	"context"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/agent"
)

// Update is what a reader of a task is told at once.
type Update = feed.Update

// Form is one of the ways in which updates are encoded.
type Form = feed.Form

// The forms of updates.
const (
	FormJSON  = feed.FormJSON
	FormProto = feed.FormProto
)

type cursorKey struct{}

// WithCursor returns a context of a SendStreamingMessage that repeats one whose
// stream broke behind a sequence.
func WithCursor(ctx context.Context, after int64) context.Context {
	return context.WithValue(ctx, cursorKey{}, after)
}

// CursorOf returns the cursor of a repeated send, 0 without one.
func CursorOf(ctx context.Context) int64 {
	after, _ := ctx.Value(cursorKey{}).(int64)
	return after
}

// SendStreamingMessage is SendMessage with what happens as it happens: first the
// task, then its updates until it has ended or asks for input; or one message.
// A repeated send with a cursor (WithCursor) goes on behind that like
// SubscribeToTask; of a task that has ended and been told to its end it shows
// the task. An error that comes before anything was told is the second
// result: besides those of SendMessage INSUFFICIENT_RESOURCES when too many
// streams are open. The sequence is read once, before ctx ends.
func (h *Handler) SendStreamingMessage(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[Update, error], error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	t, err := h.open(who.Owner())
	if err != nil {
		return nil, err
	}
	if err := t.send(ctx, req); err != nil {
		t.leave()
		return nil, err
	}
	return t.updates(ctx), nil
}

// SubscribeToTask shows a task and then its updates until it ends or begins to
// ask for input. With after, the sequence that the caller has seen, it begins
// behind that instead of with the task, if all that followed is still there.
// Errors: TASK_NOT_FOUND, UNSUPPORTED_OPERATION for a task that has ended and
// been told to its end, INSUFFICIENT_RESOURCES when too many streams are open.
// The sequence is read once, before ctx ends.
func (h *Handler) SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[Update, error], error) {
	var c checker
	c.task(req.GetTenant(), req.GetId())
	if err := c.Err(); err != nil {
		return nil, err
	}
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	t, err := h.open(who.Owner())
	if err != nil {
		return nil, err
	}
	if err := t.subscribe(ctx, Key{who.Owner(), req.GetId()}, req.GetTenant(), after); err != nil {
		t.leave()
		return nil, err
	}
	return t.updates(ctx), nil
}

// tail is a counted stream of a task. One goroutine at a time.
type tail struct {
	h      *Handler
	seat   *seat
	id     string       // of the task
	reader *feed.Reader // nil before join
}

// open counts a stream of an owner. leave must be called.
func (h *Handler) open(owner string) (*tail, error) {
	s, err := h.seats.sit(owner)
	if err != nil {
		return nil, err
	}
	return &tail{h: h, seat: s}, nil
}

// send puts a message on record and begins where its reader shall.
func (t *tail) send(ctx context.Context, req *a2av1.SendMessageRequest) error {
	s, err := t.h.accept(ctx, req)
	if err != nil {
		return err
	}
	if err := t.seat.at(s.key); err != nil {
		return err
	}
	r := t.join(ctx, s.key, historyOf(req.GetConfiguration()), s.inbound)
	after := CursorOf(ctx)
	if s.inbound == 0 && after <= 0 {
		return r.Follow(ctx)
	}
	v, err := r.Latest(ctx, after)
	switch {
	case err != nil:
		return err
	case !v.Visible: // it is told from the beginning
		return r.Restart(ctx)
	case v.Resumes(after) && (after < v.Last || !v.Over): // else nothing would be told
		r.Resume(after)
		return nil
	}
	return r.Begin(ctx, true)
}

// subscribe begins with a task of the caller, or behind a cursor.
func (t *tail) subscribe(ctx context.Context, k Key, tenant string, after int64) error {
	if err := t.seat.at(k); err != nil {
		return err
	}
	r := t.join(ctx, k, nil, 0)
	v, err := r.Latest(ctx, after)
	switch {
	case err != nil:
		return notFoundAs(err, k.ID)
	case !v.Visible || !r.Serves(tenant):
		return TaskNotFound(k.ID)
	case v.Over && (after <= 0 || after >= v.Last):
		return UnsupportedOperation("task %q has ended; get it instead", k.ID)
	case v.Resumes(after):
		r.Resume(after)
		return nil
	}
	return r.Begin(ctx, false)
}

// join finds the feeds of a task.
func (t *tail) join(ctx context.Context, k Key, history *int32, inbound int64) *feed.Reader {
	t.id, t.reader = k.ID, t.h.feeds.Reader(t.h.feedKey(ctx, k), history, inbound)
	return t.reader
}

// feedKey names the feed of a task for the caller.
func (h *Handler) feedKey(ctx context.Context, k Key) feed.Key {
	root, scope := agent.SplitTask(k.ID)
	return feed.Key{Owner: k.Owner, Root: root, Scope: scope, Details: details(ctx)}
}

// leave gives everything back.
func (t *tail) leave() {
	if t.reader != nil {
		t.reader.Close()
	}
	t.seat.leave()
}

// updates yields what the reader is told. What it holds is given back at the
// end, or when ctx ends before it has begun.
func (t *tail) updates(ctx context.Context) iter.Seq2[Update, error] {
	stop := context.AfterFunc(ctx, t.leave)
	return func(yield func(Update, error) bool) {
		if !stop() {
			yield(Update{}, context.Cause(ctx))
			return
		}
		defer t.leave()
		for u, err := range t.reader.Updates(ctx) {
			if err != nil {
				err = waitError(t.id, goesOn, err)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}
