package a2a

import (
	"context"
	"errors"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// tail is a reader of one task: a cursor into the feeds of it. One goroutine at
// a time.
type tail struct {
	place
	h       *Handler
	seat    seat
	line    *line
	feed    *feed
	history *int32
	first   *Update // told first: the task as it was
	knows   bool    // it was told the task
}

// send puts a message on record and begins where its reader shall.
func (t *tail) send(ctx context.Context, req *a2av1.SendMessageRequest) error {
	s, err := t.h.accept(ctx, req)
	if err != nil {
		return err
	}
	if err := t.sitAt(s.key); err != nil {
		return err
	}
	t.inbound = s.inbound
	t.join(ctx, s.key)
	after := CursorOf(ctx)
	if s.inbound == 0 && after <= 0 {
		return t.follow(ctx)
	}
	if err := t.latest(ctx, after); err != nil {
		return err
	}
	f := t.feed
	switch v := f.view(); {
	case !v.visible: // it is told from the beginning
		t.h.feeds.drop(t.line, f)
		t.feed = nil
		return t.follow(ctx)
	case v.resumes(after) && (after < v.last || !v.over): // else nothing would be told
		t.resume(after)
		t.since = after
		return nil
	}
	return t.begin(ctx)
}

// subscribe begins with a task of the caller, or behind a cursor.
func (t *tail) subscribe(ctx context.Context, k Key, tenant string, after int64) error {
	if err := t.sitAt(k); err != nil {
		return err
	}
	t.join(ctx, k)
	if err := t.latest(ctx, after); err != nil {
		return notFoundAs(err, k.ID)
	}
	switch v := t.feed.view(); {
	case !v.visible || !t.feed.serves(tenant):
		return TaskNotFound(k.ID)
	case v.over && (after <= 0 || after >= v.last):
		return UnsupportedOperation("task %q has ended; get it instead", k.ID)
	case v.resumes(after):
		t.resume(after)
		t.since = after
		return nil
	}
	err := t.begin(ctx)
	t.since = t.cursor
	return err
}

// view is what a feed knows of its task.
type view struct {
	visible, over bool
	gaps          bool  // see teller
	last          int64 // of its events
}

func (f *feed) view() view {
	f.mu.Lock()
	defer f.mu.Unlock()
	return view{visible: f.told.fold.Visible(), over: f.told.fold.Terminal(), gaps: f.told.gaps, last: f.told.fold.Last()}
}

// resumes reports whether all that followed a cursor can be told as it was.
func (v view) resumes(after int64) bool { return after > 0 && after <= v.last && !v.gaps }

func (f *feed) serves(tenant string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told.fold.Serves(tenant)
}

// begin has the task told first, as it is now. Of one whose streamed text is
// deleted only the store knows it all.
func (t *tail) begin(ctx context.Context) error {
	f := t.feed
	f.mu.Lock()
	u, seq, gaps := f.show(t.history), f.told.seq, f.told.gaps
	f.mu.Unlock()
	if gaps && !f.details {
		k := Key{f.owner, agent.ChildTask(f.root, f.scope)}
		task, _, err := t.h.c.Store.Task(ctx, k)
		if err != nil {
			return storeError(k.ID, err)
		}
		u = Update{Seq: u.Seq, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: shown(task, t.history)}}}
	}
	t.first, t.knows, t.cursor = &u, true, seq
	return nil
}

// resume begins behind a cursor.
func (t *tail) resume(after int64) {
	t.knows, t.cursor = true, after
}

// join finds the feeds of a task.
func (t *tail) join(ctx context.Context, k Key) {
	root, scope := agent.SplitTask(k.ID)
	t.line = t.h.feeds.join(feedKey{owner: k.Owner, root: root, scope: scope, details: t.h.details(ctx)})
}

// latest takes a feed that has read all that is on record. A new one keeps what
// came behind a cursor.
func (t *tail) latest(ctx context.Context, after int64) error {
	shut, err := t.line.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	if f := t.h.feeds.newest(t.line); f != nil {
		t.feed = f
		ok, err := f.catchUp(ctx)
		if ok || err != nil {
			return err
		}
		t.h.feeds.drop(t.line, f)
		t.feed = nil
	}
	if after <= 0 {
		after = everything
	}
	return t.take(ctx, after, true)
}

// follow takes a feed that has what is behind the cursor: there is one, or a new
// one folds what came before.
func (t *tail) follow(ctx context.Context) error {
	shut, err := t.line.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	if f := t.h.feeds.find(t.line, t.cursor, false); f != nil {
		t.feed = f
		return nil
	}
	return t.take(ctx, t.cursor, false)
}

// take makes a feed.
func (t *tail) take(ctx context.Context, upTo int64, rest bool) error {
	f := t.h.newFeed(t.line.feedKey)
	if upTo > 0 {
		if err := f.load(ctx, upTo, rest); err != nil {
			f.stop()
			return err
		}
	}
	t.feed = f
	t.h.feeds.add(t.line, f)
	return nil
}

// leave gives everything back.
func (t *tail) leave() {
	if t.feed != nil {
		t.h.feeds.drop(t.line, t.feed)
	}
	if t.line != nil {
		t.h.feeds.leave(t.line)
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
		if u := t.first; u != nil {
			t.first = nil
			if !yield(*u, nil) {
				return
			}
		}
		for {
			e, err := t.next(ctx)
			if err != nil {
				yield(Update{}, waitError(agent.ChildTask(t.line.root, t.line.scope), goesOn, err))
				return
			}
			if e == nil || !t.tell(e, yield) {
				return
			}
		}
	}
}

// next returns what is told next, nil at the end.
func (t *tail) next(ctx context.Context) (*entry, error) {
	for {
		t.advance()
		e, err := t.feed.next(ctx, &t.place)
		if !errors.Is(err, errBehind) {
			return e, err
		}
		t.h.feeds.drop(t.line, t.feed)
		t.feed = nil
		if err := t.follow(ctx); err != nil {
			return nil, err
		}
	}
}

// advance leaves a feed that is behind for the one that has come furthest of
// those that have what the reader needs next.
func (t *tail) advance() {
	if !t.feed.behind.Load() {
		return
	}
	f := t.h.feeds.find(t.line, t.cursor, true)
	if f == nil {
		return
	}
	t.h.feeds.drop(t.line, t.feed)
	t.feed = f
}

// tell yields what an entry says; false ends the stream.
func (t *tail) tell(e *entry, yield func(Update, error) bool) bool {
	switch {
	case e.first.Response != nil:
		t.knows = true
		return yield(t.cut(e.first), nil) && !e.over
	case !t.knows:
		return true
	}
	for i, u := range e.updates {
		u.Last = i == len(e.updates)-1 && (e.over || taskstate.Interrupted(u.Response.GetStatusUpdate().GetStatus().GetState()) && t.feed.done(&t.place))
		if !yield(u, nil) || u.Last {
			return false
		}
	}
	return !e.over
}

// cut is the task with as much history as the reader wants.
func (t *tail) cut(u Update) Update {
	whole := u.Response.GetTask()
	if whole == nil || t.history == nil {
		return u
	}
	task := &a2av1.Task{
		Id: whole.GetId(), ContextId: whole.GetContextId(), Status: whole.GetStatus(), Artifacts: whole.GetArtifacts(),
		History: whole.GetHistory(), Metadata: whole.GetMetadata(),
	}
	return Update{Seq: u.Seq, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: shown(task, t.history)}}}
}
