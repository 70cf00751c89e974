package a2a

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// pageEvents is the maximum number of events that are read from the store at once.
const pageEvents = 256

// earlyPoll is how long a reader that was created before its task waits for the first wake-up at most: a store
// need not send one.
const earlyPoll = time.Second

// journals reads the journals of a store.
type journals struct {
	store Store
	poll  time.Duration // interval at which a journal is read again if no wake-up arrives
}

// reader reads the journal of a root task from a position and waits for further events. It is not
// safe for concurrent use.
type reader struct {
	from   journals
	key    Key // key of the root task
	cursor int64
	wake   <-chan struct{}
	stop   func()
	early  bool // created before its task; events waits for a wake-up before it reads
}

// read returns a reader of the journal of a root task, beginning after the sequence number after.
// The caller must call its stop function.
func (j journals) read(key Key, after int64) *reader {
	r := &reader{from: j, key: key, cursor: after}
	r.wake, r.stop = j.store.Watch(key.ID)
	return r
}

// item is an event. current says that it was the last one in the journal when it was read, so
// that the state of the task after it was the current state.
type item struct {
	*teamv1.Event
	current bool
}

// events yields the events in the journal, and then further events as they are recorded, until
// ctx ends. The last item is then the cause of ctx as an error.
func (r *reader) events(ctx context.Context) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		poll := r.from.poll
		if r.early {
			poll = min(poll, earlyPoll)
		}
		for wait := r.early; ; poll = r.from.poll {
			if wait {
				if err := r.wait(ctx, poll); err != nil {
					yield(item{}, err)
					return
				}
			}
			page, err := r.from.store.Events(ctx, r.key, r.cursor, pageEvents+1)
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
			wait = !more
		}
	}
}

// wait returns when there may be new events, at the latest after a time. When ctx ends, it returns the cause.
func (r *reader) wait(ctx context.Context, atMost time.Duration) error {
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-r.wake:
	case <-late.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// fold reads all events of a root task and applies them to a Fold of the scope.
func (j journals) fold(ctx context.Context, root Key, scope string) (*Fold, error) {
	f := NewFold(root.ID, scope)
	var cursor int64
	for {
		page, err := j.store.Events(ctx, root, cursor, pageEvents)
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

// owned returns the task with this id if it belongs to the caller, is visible and is served by
// the tenant. Otherwise it returns TASK_NOT_FOUND.
func (h *Handler) owned(ctx context.Context, tenant, id string) (*Fold, error) {
	var c checker
	c.task(tenant, id)
	if err := c.Err(); err != nil {
		return nil, err
	}
	who, err := Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	root, scope := agent.SplitTask(id)
	f, err := h.journals.fold(ctx, Key{who.Owner(), root}, scope)
	if err != nil {
		return nil, notFoundAs(err, id)
	}
	if !f.Visible() || !f.Serves(tenant) {
		return nil, TaskNotFound(id)
	}
	return f, nil
}

// notFoundAs replaces the id in a TASK_NOT_FOUND error with the one that the caller sent, which
// may be that of a delegation and not of the root task.
func notFoundAs(err error, id string) error {
	if IsNotFound(err) {
		return TaskNotFound(id)
	}
	return err
}

// IsNotFound reports whether err is or wraps a TASK_NOT_FOUND error.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == ReasonTaskNotFound
}

// IsDamaged reports whether err is or wraps a DATA_LOSS error: the record of a task cannot be
// read.
func IsDamaged(err error) bool {
	var e *agent.Error
	return errors.As(err, &e) && e.Reason == agent.ReasonDataLoss
}

// details reports whether the call has activated the team-run extension, so that the response
// includes the details of the run.
func details(ctx context.Context) bool {
	return slices.Contains(ExtensionsOf(ctx), TeamRunURI)
}

// progress is the state of a wait for a task to deal with a message.
type progress struct {
	fold    *Fold
	inbound int64 // number of the input that has not been recorded as received, or 0
}

// take applies an event and reports whether a blocking SendMessage returns after it: the task has
// ended, or waits for input or authentication after it has received the message. See A2A 1.0,
// section 3.2.2.
func (p *progress) take(ev item) bool {
	p.note(ev.Event)
	p.fold.Apply(ev.Event)
	return p.fold.Terminal() || ev.current && p.inbound == 0 && taskstate.Interrupted(p.fold.State())
}

// note clears inbound if ev records that the input was received.
func (p *progress) note(ev *teamv1.Event) {
	if p.inbound != 0 && p.inbound == project.Consumed(ev) {
		p.inbound = 0
	}
}

// follow waits until the task has dealt with a message; see progress.take. If atOnce is set, it
// does not wait.
func (h *Handler) follow(ctx context.Context, s sent, atOnce bool) (*Fold, error) {
	root, scope := agent.SplitTask(s.key.ID)
	p := &progress{fold: NewFold(root, scope), inbound: s.inbound}
	if atOnce {
		return h.journals.fold(ctx, Key{s.key.Owner, root}, scope)
	}
	r := s.reader
	if r == nil {
		r = h.journals.read(Key{s.key.Owner, root}, 0)
	}
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

// goesOn is the text for waitError if the task continues after the wait.
const goesOn = "is still running"

// waitError returns the error of a wait that ended before the task. If the deadline of the call
// has passed, it is WAIT_TIMEOUT, and becomes says what happens to the task; other errors are
// returned unchanged.
func waitError(id, becomes string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
			"task %q %s; get it or subscribe to it", id, becomes).With("task_id", id)
	}
	return err
}

// source implements feed.Source with a Store. It returns errors as callers of the API see them.
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
