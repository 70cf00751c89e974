package a2a

import (
	"context"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/agent"
)

// Update is one message of a stream of a task.
type Update = feed.Update

// Form is an encoding of updates.
type Form = feed.Form

// The encodings of updates: JSON and Protocol Buffers.
const (
	FormJSON  = feed.FormJSON
	FormProto = feed.FormProto
)

// SendStreamingMessage is like SendMessage, but yields what happens as it happens: first the task
// and then its updates, or only a message; see A2A 1.0, section 3.1.2. The stream ends when the
// task has ended or waits for input; see Streams.Close.
//
// A repeated message with a cursor, see WithCursor, continues after the cursor, like
// SubscribeToTask; if the task has ended and the cursor is at its end, the stream has only the
// task. If too many streams are open, the error is INSUFFICIENT_RESOURCES; other errors are those
// of SendMessage. An error that occurs before the first update is the second result. The sequence
// can be read only once, and reading must begin before ctx ends.
func (h *Handler) SendStreamingMessage(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[Update, error], error) {
	who, err := Authenticated(ctx)
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

// SubscribeToTask yields a task and then its updates, until the task ends or begins to wait for
// input; see A2A 1.0, section 3.1.6. If after is greater than 0, it is the sequence number of the
// last event that the client has seen; the stream then begins with the updates after it instead
// of with the task, if all of them are still available.
//
// Errors: TASK_NOT_FOUND, UNSUPPORTED_OPERATION if the task has ended and there are no updates
// after the cursor, and INSUFFICIENT_RESOURCES if too many streams are open. The sequence can be
// read only once, and reading must begin before ctx ends.
func (h *Handler) SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[Update, error], error) {
	var c checker
	c.task(req.GetTenant(), req.GetId())
	if err := c.Err(); err != nil {
		return nil, err
	}
	who, err := Authenticated(ctx)
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

// tail is an open stream of a task. It is not safe for concurrent use.
type tail struct {
	h      *Handler
	slot   *streamSlot
	id     string       // id of the task
	reader *feed.Reader // nil before join is called
}

// open counts a new stream of an owner. The caller must call leave.
func (h *Handler) open(owner string) (*tail, error) {
	s, err := h.streams.acquire(owner)
	if err != nil {
		return nil, err
	}
	return &tail{h: h, slot: s}, nil
}

// send records a message and sets the position at which the stream begins.
func (t *tail) send(ctx context.Context, req *a2av1.SendMessageRequest) error {
	s, err := t.h.inbox.accept(ctx, req, false)
	if err != nil {
		return err
	}
	if err := t.slot.acquireTask(s.key); err != nil {
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
	case !v.Visible: // the stream begins with the first event
		return r.Restart(ctx)
	case v.Resumes(after) && (after < v.Last || !v.Over): // else the stream would be empty
		r.Resume(after)
		return nil
	}
	return r.Begin(ctx, true)
}

// subscribe sets the stream to begin with the task, or after the cursor if that is possible.
func (t *tail) subscribe(ctx context.Context, k Key, tenant string, after int64) error {
	if err := t.slot.acquireTask(k); err != nil {
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

// join creates the reader of the task's feed. inbound is the number of the input whose receipt
// the stream waits for, or 0.
func (t *tail) join(ctx context.Context, k Key, history *int32, inbound int64) *feed.Reader {
	t.id, t.reader = k.ID, t.h.feeds.Reader(feedKey(ctx, k), history, inbound)
	return t.reader
}

// feedKey returns the key of the feed of a task, as the caller may see it.
func feedKey(ctx context.Context, k Key) feed.Key {
	root, scope := agent.SplitTask(k.ID)
	return feed.Key{Owner: k.Owner, Root: root, Scope: scope, Details: details(ctx)}
}

// leave closes the reader and no longer counts the stream.
func (t *tail) leave() {
	if t.reader != nil {
		t.reader.Close()
	}
	t.slot.release()
}

// updates yields the updates of the stream. It calls leave at the end, or when ctx ends before
// the first update was read.
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

// AcquireTaskStream counts a stream of a task and its owner. The caller must call release when the stream
// ends. The error is INSUFFICIENT_RESOURCES if too many are open.
func (h *Handler) AcquireTaskStream(k Key) (release func(), err error) {
	return h.streams.with(k.Owner, func(s *streamSlot) error { return s.acquireTask(k) })
}

// AcquireTeamStream is like AcquireTaskStream, for a stream of a team.
func (h *Handler) AcquireTeamStream(owner, team string) (release func(), err error) {
	return h.streams.with(owner, func(s *streamSlot) error { return s.acquireTeam(owner, team) })
}
