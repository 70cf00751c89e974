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

// pageEvents is how many events are read from the store at once.
const pageEvents = 256

// journals reads the journals of a store.
type journals struct {
	store Store
	poll  time.Duration // how often a silent journal is looked at
}

// reader tails a journal by its cursor.
type reader struct {
	from   journals
	key    Key // of the root
	cursor int64
	wake   <-chan struct{}
	stop   func()
}

// read returns a reader of a root's journal that begins behind a sequence.
func (j journals) read(key Key, after int64) *reader {
	r := &reader{from: j, key: key, cursor: after}
	r.wake, r.stop = j.store.Watch(key.ID)
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
	poll := time.NewTimer(r.from.poll)
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

// owned returns the fold of a task of the caller.
func (h *Handler) owned(ctx context.Context, tenant, id string) (*Fold, error) {
	var c checker
	c.task(tenant, id)
	if err := c.Err(); err != nil {
		return nil, err
	}
	who, err := caller(ctx)
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

// notFoundAs names the id the caller asked for, not its root.
func notFoundAs(err error, id string) error {
	if IsNotFound(err) {
		return TaskNotFound(id)
	}
	return err
}

// IsNotFound reports whether an error says that there is no such task.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == ReasonTaskNotFound
}

// IsDamaged reports whether an error says that what is on record of a task cannot be
// read.
func IsDamaged(err error) bool {
	var e *agent.Error
	return errors.As(err, &e) && e.Reason == agent.ReasonDataLoss
}

// details reports whether the caller wants to see every step.
func details(ctx context.Context) bool {
	return slices.Contains(ExtensionsOf(ctx), TeamRunURI)
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
		return h.journals.fold(ctx, Key{s.key.Owner, root}, scope)
	}
	r := h.journals.read(Key{s.key.Owner, root}, 0)
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
