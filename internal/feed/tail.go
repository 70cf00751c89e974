package feed

import (
	"context"
	"iter"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// earlyPoll is how long a tail that was opened before its task waits for the first signal at most: a source need not
// send one.
const earlyPoll = time.Second

// journal is the journal of a root task, as it is read and waited for.
type journal struct {
	source      Source
	owner, root string
	wake        <-chan struct{} // receives when there may be new events; nil if the journal is only read
	stop        func()          // stops wake
}

// watch returns a journal that can be waited for. Its stop function must be called.
func (s *Feeds) watch(owner, root string) journal {
	wake, stop := s.c.Source.Watch(root)
	return journal{source: s.c.Source, owner: owner, root: root, wake: wake, stop: stop}
}

// page returns at most limit events after a sequence number, and whether there are more.
func (j *journal) page(ctx context.Context, after int64, limit int) (events []*teamv1.Event, more bool, err error) {
	events, err = j.source.Events(ctx, j.owner, j.root, after, limit+1)
	return events[:min(len(events), limit)], len(events) > limit, err
}

// wait returns when there may be new events, at the latest after a time, or when other is closed, which it reports.
// When ctx ends, it returns the cause.
func (j *journal) wait(ctx context.Context, other <-chan struct{}, atMost time.Duration) (bool, error) {
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-other:
		return true, nil
	case <-j.wake:
	case <-late.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return false, nil
}

// Event is an event of a journal.
type Event struct {
	*teamv1.Event
	// Last says that it was the last one in the journal when it was read, so that the state of the task after it was
	// the current state.
	Last bool
}

// Tail reads the events of one root task, for one reader that wants them as they are recorded. It is not safe for
// concurrent use. Close must be called.
type Tail struct {
	journal
	cursor int64
	first  time.Duration // how long to wait before the first read; 0 for not at all
	poll   time.Duration
}

// Tail returns a tail that begins after a sequence number.
func (s *Feeds) Tail(owner, root string, after int64) *Tail {
	return &Tail{journal: s.watch(owner, root), cursor: after, poll: s.c.Poll}
}

// Early returns the tail of a task that is to be created: it misses no signal, and reads nothing before the first one.
// It returns nil if the source sends none about such a task.
func (s *Feeds) Early(owner, root string) *Tail {
	t := s.Tail(owner, root, 0)
	if t.wake == nil {
		t.Close()
		return nil
	}
	t.first = min(t.poll, earlyPoll)
	return t
}

// Close ends the use of a tail.
func (t *Tail) Close() { t.stop() }

// Events yields the events in the journal, and then further ones as they are recorded, until ctx ends. The error at the
// end is then the cause of ctx. The events are shared and must not be changed.
func (t *Tail) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for wait := t.first; ; wait = t.poll {
			if wait > 0 {
				if _, err := t.wait(ctx, nil, wait); err != nil {
					yield(Event{}, err)
					return
				}
			}
			if !t.read(ctx, yield) {
				return
			}
		}
	}
}

// read yields the events in the journal after the cursor, and reports whether the reader wants more.
func (t *Tail) read(ctx context.Context, yield func(Event, error) bool) bool {
	for more := true; more; {
		var page []*teamv1.Event
		var err error
		if page, more, err = t.page(ctx, t.cursor, loadPage); err != nil {
			yield(Event{}, err)
			return false
		}
		for i, ev := range page {
			t.cursor = ev.GetSeq()
			if !yield(Event{ev, !more && i == len(page)-1}, nil) {
				return false
			}
		}
	}
	return true
}

// Recorded yields the events that are in a journal now, and waits for none.
func (s *Feeds) Recorded(ctx context.Context, owner, root string) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		t := &Tail{journal: journal{source: s.c.Source, owner: owner, root: root}}
		t.read(ctx, func(ev Event, err error) bool { return yield(ev.Event, err) })
	}
}
