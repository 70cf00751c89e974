package feed

import (
	"context"
	"errors"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Reader is a reader of one task: a cursor into the feeds of it. It takes a feed with
// Latest or Follow, and says with Begin, Resume or Restart where it begins. One goroutine
// at a time. Close must be called.
type Reader struct {
	place
	of      *Feeds
	line    *line
	feed    *feed
	history *int32
	first   *Update // told first: the task as it was
	knows   bool    // it was told the task
}

// Reader returns a reader of what a key names, of as much of the task's history as is
// wanted: nil is all that is shown. A task that comes to ask for something ends the stream
// only behind inbound, the inbox row of an input, once that is on record; 0 is none.
func (s *Feeds) Reader(k Key, history *int32, inbound int64) *Reader {
	return &Reader{place: place{inbound: inbound}, of: s, line: s.join(k), history: history}
}

// View is what a feed knows of its task.
type View struct {
	// Visible reports whether callers see the run as a task; Over whether it has ended.
	Visible, Over bool
	// Last is the sequence of its last event.
	Last int64

	gaps bool // see teller
}

func (f *feed) view() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return View{Visible: f.told.fold.Visible(), Over: f.told.fold.Terminal(), Last: f.told.fold.Last(), gaps: f.told.gaps}
}

// Resumes reports whether all that followed a cursor can be told as it was.
func (v View) Resumes(after int64) bool { return after > 0 && after <= v.Last && !v.gaps }

// Serves reports whether a tenant fits the task. Latest comes before it.
func (r *Reader) Serves(tenant string) bool {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told.fold.Serves(tenant)
}

// Begin has the task told first, as it is now. Of one whose streamed text is deleted
// only the store knows it all. With asked a task that asks for something already ends the
// stream. Latest comes before it.
func (r *Reader) Begin(ctx context.Context, asked bool) error {
	f := r.feed
	f.mu.Lock()
	u, seq, gaps := f.show(r.history), f.told.seq, f.told.gaps
	f.mu.Unlock()
	if gaps && !f.Details {
		task, err := r.of.c.Source.Task(ctx, f.Owner, agent.ChildTask(f.Root, f.Scope))
		if err != nil {
			return err
		}
		u = Update{Seq: u.Seq, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: project.CutHistory(task, r.history)}}}
	}
	r.first, r.knows, r.cursor = &u, true, seq
	if !asked {
		r.since = seq
	}
	return nil
}

// Resume begins behind a cursor. Latest comes before it.
func (r *Reader) Resume(after int64) {
	r.knows, r.cursor, r.since = true, after, after
}

// Restart begins with the first event of the task. Latest comes before it.
func (r *Reader) Restart(ctx context.Context) error {
	r.of.drop(r.line, r.feed)
	r.feed = nil
	return r.Follow(ctx)
}

// Latest takes a feed that has read all that is on record, and returns what it knows. A
// new one keeps what came behind a cursor.
func (r *Reader) Latest(ctx context.Context, after int64) (View, error) {
	if err := r.latest(ctx, after); err != nil {
		return View{}, err
	}
	return r.feed.view(), nil
}

func (r *Reader) latest(ctx context.Context, after int64) error {
	shut, err := r.line.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	if f := r.of.newest(r.line); f != nil {
		r.feed = f
		ok, err := f.catchUp(ctx)
		if ok || err != nil {
			return err
		}
		r.of.drop(r.line, f)
		r.feed = nil
	}
	if after <= 0 {
		after = everything
	}
	return r.take(ctx, after, true)
}

// Follow takes a feed that has what is behind the cursor: there is one, or a new
// one folds what came before.
func (r *Reader) Follow(ctx context.Context) error {
	shut, err := r.line.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	if f := r.of.find(r.line, r.cursor, false); f != nil {
		r.feed = f
		return nil
	}
	return r.take(ctx, r.cursor, false)
}

// take makes a feed.
func (r *Reader) take(ctx context.Context, upTo int64, rest bool) error {
	f := r.of.newFeed(r.line.Key)
	if upTo > 0 {
		if err := f.load(ctx, upTo, rest); err != nil {
			f.stop()
			return err
		}
	}
	r.feed = f
	r.of.add(r.line, f)
	return nil
}

// Close gives everything back.
func (r *Reader) Close() {
	if r.feed != nil {
		r.of.drop(r.line, r.feed)
	}
	r.of.leave(r.line)
}

// Updates yields what the reader is told. Something to begin with comes before it. The
// sequence is read once.
func (r *Reader) Updates(ctx context.Context) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		if u := r.first; u != nil {
			r.first = nil
			if !yield(*u, nil) {
				return
			}
		}
		for {
			e, err := r.next(ctx)
			if err != nil {
				yield(Update{}, err)
				return
			}
			if e == nil || !r.tell(e, yield) {
				return
			}
		}
	}
}

// next returns what is told next, nil at the end.
func (r *Reader) next(ctx context.Context) (*entry, error) {
	for {
		r.advance()
		e, err := r.feed.next(ctx, &r.place)
		if !errors.Is(err, errBehind) {
			return e, err
		}
		r.of.drop(r.line, r.feed)
		r.feed = nil
		if err := r.Follow(ctx); err != nil {
			return nil, err
		}
	}
}

// advance leaves a feed that is behind for the one that has come furthest of
// those that have what the reader needs next.
func (r *Reader) advance() {
	if !r.feed.behind.Load() {
		return
	}
	f := r.of.find(r.line, r.cursor, true)
	if f == nil {
		return
	}
	r.of.drop(r.line, r.feed)
	r.feed = f
}

// tell yields what an entry says; false ends the stream.
func (r *Reader) tell(e *entry, yield func(Update, error) bool) bool {
	switch {
	case e.first.Response != nil:
		r.knows = true
		return yield(r.cut(e.first), nil) && !e.over
	case !r.knows:
		return true
	}
	for i, u := range e.updates {
		u.Last = i == len(e.updates)-1 && (e.over || taskstate.Interrupted(u.Response.GetStatusUpdate().GetStatus().GetState()) && r.feed.done(&r.place))
		if !yield(u, nil) || u.Last {
			return false
		}
	}
	return !e.over
}

// cut is the task with as much history as the reader wants.
func (r *Reader) cut(u Update) Update {
	whole := u.Response.GetTask()
	if whole == nil || r.history == nil {
		return u
	}
	task := &a2av1.Task{
		Id: whole.GetId(), ContextId: whole.GetContextId(), Status: whole.GetStatus(), Artifacts: whole.GetArtifacts(),
		History: whole.GetHistory(), Metadata: whole.GetMetadata(),
	}
	return Update{Seq: u.Seq, Response: &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: project.CutHistory(task, r.history)}}}
}
