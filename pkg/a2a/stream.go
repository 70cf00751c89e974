package a2a

import (
	"context"
	"errors"
	"iter"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// pageEvents is how many events a reader takes at once.
const pageEvents = 256

// Update is one thing a reader of a task is told.
type Update struct {
	// Seq is the cursor behind it; 0 where more of the same event follows.
	Seq int64
	// Response is a Task first, then what happens. Read only.
	Response *a2av1.StreamResponse
}

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
			select {
			case <-r.wake:
			case <-ctx.Done():
				yield(item{}, context.Cause(ctx))
				return
			}
		}
	}
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
	return p.fold.Terminal() || ev.current && p.inbound == 0 && interrupted(p.fold.State())
}

func (p *progress) note(ev *teamv1.Event) {
	if p.inbound == 0 {
		return
	}
	switch p.inbound {
	case ev.GetAnswered().GetInbound(), ev.GetReceived().GetInbound(), ev.GetCommanded().GetInbound():
		p.inbound = 0
	}
}

func interrupted(s a2av1.TaskState) bool {
	return s == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || s == a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
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
			return nil, waitError(s.key.ID, err)
		}
		if p.take(ev) {
			return p.fold, nil
		}
	}
	return p.fold, nil
}

// waitError is the error of a wait that was given up; the task goes on.
func waitError(id string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout,
			"task %q goes on; get it or subscribe to it", id).With("task_id", id)
	}
	return err
}

// SendStreamingMessage is SendMessage with what happens as it happens: first the
// task, then its updates until it has ended or asks for input; or one message.
// An error that comes before anything was told is the second result.
func (h *Handler) SendStreamingMessage(ctx context.Context, req *a2av1.SendMessageRequest) (iter.Seq2[Update, error], error) {
	s, err := h.accept(ctx, req)
	if err != nil {
		return nil, err
	}
	root, scope := agent.SplitTask(s.key.ID)
	t := &tail{
		h: h, key: Key{s.key.Owner, root}, progress: progress{fold: NewFold(root, scope), inbound: s.inbound},
		details: h.details(ctx), history: historyOf(req.GetConfiguration()),
	}
	if s.inbound != 0 {
		t.snapshot, err = h.fold(ctx, t.key, scope)
		if err != nil {
			return nil, err
		}
	}
	return t.updates(ctx), nil
}

// details reports whether the caller wants to see every step.
func (h *Handler) details(ctx context.Context) bool {
	return slices.Contains(ExtensionsOf(ctx), TeamRunURI)
}

// SubscribeToTask shows a task and then its updates until it ends or begins to
// ask for input. With after, the sequence that the caller has seen, it begins
// behind that instead of with the task. Errors: TASK_NOT_FOUND,
// UNSUPPORTED_OPERATION for a task that has ended.
func (h *Handler) SubscribeToTask(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) (iter.Seq2[Update, error], error) {
	f, err := h.owned(ctx, req.GetTenant(), req.GetId())
	if err != nil {
		return nil, err
	}
	if f.Terminal() && (after <= 0 || after >= f.seq) {
		return nil, UnsupportedOperation("task %q has ended; get it instead", req.GetId())
	}
	who, _ := CallerOf(ctx)
	t := &tail{
		h: h, key: Key{who.Owner(), f.root}, progress: progress{fold: NewFold(f.root, f.scope)}, details: h.details(ctx), after: after,
	}
	if after <= 0 || after > f.seq {
		t.after, t.snapshot = 0, f
	}
	return t.updates(ctx), nil
}

// tail is a reader of one task.
type tail struct {
	progress
	h        *Handler
	key      Key  // of the root
	details  bool // every step is told
	history  *int32
	snapshot *Fold // told first, as it was
	after    int64 // or: seen before
	told     bool  // the task was told
	asks     bool  // it has begun to ask for input
}

// updates yields the task and what happens to it.
func (t *tail) updates(ctx context.Context) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		r := t.h.read(t.key, 0)
		defer r.stop()
		var from int64
		switch {
		case t.snapshot != nil:
			from = t.snapshot.last()
			if !yield(t.first(t.snapshot), nil) {
				return
			}
			t.told = true
		case t.after > 0:
			from, t.told = t.after, true
		}
		for ev, err := range r.events(ctx) {
			if err != nil {
				yield(Update{}, err)
				return
			}
			if !t.next(ev, from, yield) {
				return
			}
		}
	}
}

// next tells what an event is to the task; false ends the stream.
func (t *tail) next(ev item, from int64, yield func(Update, error) bool) bool {
	t.note(ev.Event)
	before := t.fold.State()
	responses := t.fold.Project(ev.Event, t.details)
	switch {
	case ev.GetSeq() <= from:
		return true
	case !t.told:
		if t.fold.ended.GetDirect() && !t.fold.Visible() {
			yield(Update{Seq: ev.GetSeq(), Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: t.fold.direct()}}}, nil)
			return false
		}
		if !t.fold.Visible() {
			return true
		}
		t.told = true
		return yield(t.first(t.fold), nil) && !t.over(ev, before)
	}
	for i, resp := range responses {
		u := Update{Response: resp}
		if i == len(responses)-1 {
			u.Seq = ev.GetSeq()
		}
		if !yield(u, nil) {
			return false
		}
	}
	return !t.over(ev, before)
}

// over reports whether the stream ends: with the task, or when the task begins
// to ask for input. It stays open while authentication is waited for.
func (t *tail) over(ev item, before a2av1.TaskState) bool {
	now := t.fold.State()
	t.asks = now == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && (t.asks || now != before)
	return t.fold.Terminal() || ev.current && t.inbound == 0 && t.asks
}

// first is the task as the first thing a reader is told.
func (t *tail) first(f *Fold) Update {
	return Update{Seq: f.last(), Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: shown(f.task(t.details), t.history)}}}
}
