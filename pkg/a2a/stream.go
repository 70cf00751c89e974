package a2a

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Update is what a reader of a task is told at once.
type Update = feed.Update

// pageEvents is how many events are read from the store at once.
const pageEvents = 256

// reader tails a journal by its cursor.
type reader struct {
	h      *Handler
	key    Key // of the root
	cursor int64
	wake   <-chan struct{}
	stop   func()
}

// read returns a reader of a root's journal that begins behind a sequence.
func (h *Handler) read(key Key, after int64) *reader {
	r := &reader{h: h, key: key, cursor: after}
	r.wake, r.stop = h.c.Store.Watch(key.ID)
	return r
}

// item is an event, and whether it was the last one on record when it was read:
// what it says of the task's state is how things stand.
type item struct {
	*teamv1.Event
	current bool
}

// events yields what is on record and then what comes, until ctx ends.
func (r *reader) events(ctx context.Context) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for {
			page, err := r.h.c.Store.Events(ctx, r.key, r.cursor, pageEvents+1)
			if err != nil {
				yield(item{}, storeError(r.key.ID, err))
				return
			}
			more := len(page) > pageEvents
			page = page[:min(len(page), pageEvents)]
			for i, rec := range page {
				r.cursor = rec.Seq
				if !yield(item{rec.Event, !more && i == len(page)-1}, nil) {
					return
				}
			}
			if more {
				continue
			}
			if err := r.wait(ctx); err != nil {
				yield(item{}, err)
				return
			}
		}
	}
}

// wait returns when there may be more on record.
func (r *reader) wait(ctx context.Context) error {
	poll := time.NewTimer(r.h.c.Streams.Poll)
	defer poll.Stop()
	select {
	case <-r.wake:
	case <-poll.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// fold reads what is on record of a root and folds it for a scope.
func (h *Handler) fold(ctx context.Context, root Key, scope string) (*Fold, error) {
	f := NewFold(root.ID, scope)
	var cursor int64
	for {
		page, err := h.c.Store.Events(ctx, root, cursor, pageEvents)
		if err != nil {
			return nil, storeError(root.ID, err)
		}
		for _, rec := range page {
			f.Apply(rec.Event)
			cursor = rec.Seq
		}
		if len(page) < pageEvents {
			return f, nil
		}
	}
}

// progress tells how far a send has come.
type progress struct {
	fold    *Fold
	inbound int64 // the inbox row waited for; 0 when it is on record
}

// take folds an event. It reports whether the task has come to where a blocking
// send returns: it has ended, or asks for something after the message was taken.
func (p *progress) take(ev item) bool {
	p.note(ev.Event)
	p.fold.Apply(ev.Event)
	return p.fold.Terminal() || ev.current && p.inbound == 0 && taskstate.Interrupted(p.fold.State())
}

func (p *progress) note(ev *teamv1.Event) {
	if p.inbound != 0 && p.inbound == project.Consumed(ev) {
		p.inbound = 0
	}
}

// follow waits until a sent message has been dealt with; at once returns as soon
// as the task can be shown.
func (h *Handler) follow(ctx context.Context, s sent, atOnce bool) (*Fold, error) {
	root, scope := agent.SplitTask(s.key.ID)
	p := &progress{fold: NewFold(root, scope), inbound: s.inbound}
	if atOnce {
		return h.fold(ctx, Key{s.key.Owner, root}, scope)
	}
	r := h.read(Key{s.key.Owner, root}, 0)
	defer r.stop()
	for ev, err := range r.events(ctx) {
		if err != nil {
			return nil, waitError(s.key.ID, goesOn, err)
		}
		if p.take(ev) {
			return p.fold, nil
		}
	}
	return p.fold, nil
}

// goesOn is what becomes of a task that is not waited for any more.
const goesOn = "goes on"

// waitError is the error of a wait that was given up; becomes says what becomes of the task.
func waitError(id, becomes string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
			"task %q %s; get it or subscribe to it", id, becomes).With("task_id", id)
	}
	return err
}

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

// details reports whether the caller wants to see every step.
func (h *Handler) details(ctx context.Context) bool {
	return slices.Contains(ExtensionsOf(ctx), TeamRunURI)
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
	s, err := h.sit(owner)
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
	if err := t.h.sitAt(t.seat, s.key); err != nil {
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
	if err := t.h.sitAt(t.seat, k); err != nil {
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
	return feed.Key{Owner: k.Owner, Root: root, Scope: scope, Details: h.details(ctx)}
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

// source is the store as feeds read it, with the errors of callers.
type source struct{ Store }

// Events implements feed.Source.
func (s source) Events(ctx context.Context, owner, root string, after int64, limit int) ([]*teamv1.Event, error) {
	page, err := s.Store.Events(ctx, Key{owner, root}, after, limit)
	if err != nil {
		return nil, storeError(root, err)
	}
	events := make([]*teamv1.Event, len(page))
	for i, rec := range page {
		events[i] = rec.Event
	}
	return events, nil
}

// Task implements feed.Source.
func (s source) Task(ctx context.Context, owner, id string) (*a2av1.Task, error) {
	t, _, err := s.Store.Task(ctx, Key{owner, id})
	if err != nil {
		return nil, storeError(id, err)
	}
	return t, nil
}
