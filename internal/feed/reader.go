package feed

import (
	"context"
	"errors"
	"iter"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Reader reads the updates of one task. Latest or Follow joins a feed; Begin, Resume or Restart
// then sets where the reader begins. It is not safe for concurrent use. Close must be called.
type Reader struct {
	place
	of      *Feeds
	line    *line
	feed    *feed
	history *int32
	first   *Update // sent first: the task itself; nil for none
	knows   bool    // the reader has received the task
	granted bool    // memory for a feed is counted, and not refused
}

// Reader returns a reader for a key. history is the number of history messages of the task; nil
// means all that are shown. The stream of a task that waits for input ends only after inbound, the
// inbox row of the caller's own input, is recorded; 0 without one.
func (s *Feeds) Reader(k Key, history *int32, inbound int64) *Reader {
	return &Reader{place: place{inbound: inbound}, of: s, line: s.join(k), history: history, granted: inbound != 0}
}

// View is what a feed knows of its task.
type View struct {
	// Visible reports whether callers see the run as a task, and Over whether it has ended.
	Visible, Over bool
	// Last is the sequence number of the task's last event.
	Last int64

	gaps bool // see teller
}

// view returns what the feed knows of its task now.
func (f *feed) view() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return View{Visible: f.told.fold.Visible(), Over: f.told.fold.Terminal(), Last: f.told.fold.Last(), gaps: f.told.gaps}
}

// Resumes reports whether everything that followed a cursor can still be delivered.
func (v View) Resumes(after int64) bool { return after > 0 && after <= v.Last && !v.gaps }

// Knows reports whether the reader has received the task, or began behind it. Only the goroutine that reads updates may call it.
func (r *Reader) Knows() bool { return r.knows }

// Serves reports whether a request for a tenant may access the task. Latest must be called first.
func (r *Reader) Serves(tenant string) bool {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told.fold.Serves(tenant)
}

// Begin makes the current task the first update. If streamed text of the task was deleted, the task
// is read from the store, which still has it. If asked is true, the stream ends even if the task
// already waits for input. Latest must be called first.
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

// Resume begins after a cursor. Latest must be called first.
func (r *Reader) Resume(after int64) {
	r.knows, r.cursor, r.since = true, after, after
}

// Restart begins with the first event of the task. Latest must be called first.
func (r *Reader) Restart(ctx context.Context) error {
	r.of.drop(r.line, r.feed)
	r.feed = nil
	return r.Follow(ctx)
}

// Latest joins a feed that has read everything in the journal, and returns what it knows of the
// task. If it creates a feed and after is positive, that feed keeps what follows after.
func (r *Reader) Latest(ctx context.Context, after int64) (View, error) {
	if err := r.latest(ctx, after); err != nil {
		return View{}, err
	}
	return r.feed.view(), nil
}

// latest joins a feed for Latest.
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

// Follow joins a feed that has the entries after the cursor. If no feed has them, it creates one,
// which first folds everything up to the cursor.
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

// take creates a feed that has folded the events up to upTo. If rest is true, it reads the later
// ones, too.
func (r *Reader) take(ctx context.Context, upTo int64, rest bool) error {
	f := r.of.newFeed(r.line.Key)
	err := f.reserve(r.granted)
	if err == nil && upTo > 0 {
		err = f.load(inflight.WithReader(ctx, f.reading(r.granted)), upTo, rest)
	}
	if more := f.kept() - f.hold.Size(); err == nil && !r.granted {
		err = f.hold.More(more)
	} else {
		f.hold.Grow(more)
	}
	if err != nil {
		f.end()
		return err
	}
	r.feed = f
	r.of.add(r.line, f)
	return nil
}

// Close releases the feed and the line.
func (r *Reader) Close() {
	if r.feed != nil {
		r.of.drop(r.line, r.feed)
	}
	r.of.leave(r.line)
}

// Updates returns the updates of the reader. The reader's beginning must be set. The sequence can
// be used only once. It ends with the stream, or with the cause of ctx or an error of the store.
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

// next returns the next entry, nil at the end of the stream.
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

// advance moves the reader from a feed that is behind to the most advanced one that has what it
// needs next.
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

// tell yields the updates of an entry, and reports whether the stream goes on.
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

// cut returns an update with no more of the task's history than the reader wants.
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
