package a2a

import (
	"context"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
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
	return stream(ctx, h.streams, func(_ identity.Caller, slot *streamSlot) (iter.Seq2[Update, error], error) {
		s, err := h.inbox.accept(ctx, req, false)
		if err != nil {
			return nil, err
		}
		r, err := h.join(ctx, slot, s.key, historyOf(req.GetConfiguration()), s.inbound)
		if err != nil {
			return nil, err
		}
		return updates(ctx, s.key.ID, r), afterSend(ctx, r, s.inbound)
	})
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
	return stream(ctx, h.streams, func(who identity.Caller, slot *streamSlot) (iter.Seq2[Update, error], error) {
		k := runs.Key{Owner: who.Owner(), ID: req.GetId()}
		r, err := h.join(ctx, slot, k, nil, 0)
		if err != nil {
			return nil, err
		}
		return updates(ctx, k.ID, r), subscribe(ctx, r, k, req.GetTenant(), after)
	})
}

// stream counts a stream of the caller of ctx until the stream ends, or until ctx does before it was read. It returns
// what begin returns, which counts the stream also for its task.
func stream[T any](ctx context.Context, l *streamLimiter, begin func(identity.Caller, *streamSlot) (iter.Seq2[T, error], error)) (iter.Seq2[T, error], error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	slot, err := l.acquire(who.Owner())
	if err != nil {
		return nil, err
	}
	all, err := begin(who, slot)
	if err != nil {
		slot.release()
		return nil, err
	}
	stop := context.AfterFunc(ctx, slot.release)
	return func(yield func(T, error) bool) {
		if !stop() {
			var none T
			yield(none, context.Cause(ctx))
			return
		}
		defer slot.release()
		all(yield)
	}, nil
}

// join counts a stream for a task and returns a reader of the task's feed, which is closed with the slot. inbound is the
// number of the input whose receipt the stream waits for, or 0.
func (h *Handler) join(ctx context.Context, slot *streamSlot, k runs.Key, history *int32, inbound int64) (*feed.Reader, error) {
	if err := slot.acquireTask(k); err != nil {
		return nil, err
	}
	r := h.feeds.Reader(feedKey(ctx, k), history, inbound)
	slot.close = r.Close
	return r, nil
}

// afterSend sets the position at which the stream of a message begins.
func afterSend(ctx context.Context, r *feed.Reader, inbound int64) error {
	after := CursorOf(ctx)
	if inbound == 0 && after <= 0 {
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

// subscribe sets a stream to begin with the task, or after the cursor if that is possible.
func subscribe(ctx context.Context, r *feed.Reader, k runs.Key, tenant string, after int64) error {
	v, err := r.Latest(ctx, after)
	switch {
	case err != nil:
		return notFoundAs(err, k.ID)
	case !v.Visible || !r.Serves(tenant):
		return a2aerror.TaskNotFound(k.ID)
	case v.Over && (after <= 0 || after >= v.Last):
		return a2aerror.UnsupportedOperation("task %q has ended; get it instead", k.ID)
	case v.Resumes(after):
		r.Resume(after)
		return nil
	}
	return r.Begin(ctx, false)
}

// feedKey returns the key of the feed of a task, as the caller may see it.
func feedKey(ctx context.Context, k runs.Key) feed.Key {
	root, scope := agent.SplitTask(k.ID)
	return feed.Key{Owner: k.Owner, Root: root, Scope: scope, Details: details(ctx)}
}

// updates yields the updates that the reader of a task receives. A reader gets a task that callers see at once, so a wait
// that ends before was for a message that may be answered without a task.
func updates(ctx context.Context, id string, r *feed.Reader) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for u, err := range r.Updates(ctx) {
			switch {
			case err != nil && r.Knows():
				err = waitError(id, goesOn, err)
			case err != nil:
				err = unansweredError(err)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}

// AcquireTaskStream counts a stream of a task for the owner in k, who reads it. The caller must call release when the stream
// ends. The error is INSUFFICIENT_RESOURCES if too many are open.
func (h *Handler) AcquireTaskStream(k runs.Key) (release func(), err error) {
	return h.streams.with(k.Owner, func(s *streamSlot) error { return s.acquireTask(k) })
}

// AcquireTeamStream is like AcquireTaskStream, for a stream of a team.
func (h *Handler) AcquireTeamStream(owner, team string) (release func(), err error) {
	return h.streams.with(owner, func(s *streamSlot) error { return s.acquireTeam(owner, team) })
}
