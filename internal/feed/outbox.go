package feed

import (
	"context"
	"errors"
	"strconv"

	"github.com/agentteams/team-server/pkg/agent"
)

// Notice is one message to the receiver of a push configuration.
type Notice struct {
	Update
	// ID is the same each time the notice is sent, so that receivers can recognize repetitions.
	ID string
	// Event is the sequence number of the event, and Part the number of the notice among those of
	// the event, starting at 1. Part 0 is the whole task as of that event.
	Event int64
	Part  int
	// After this notice was delivered, everything up to the sequence number Seen is delivered, and Next
	// the number of notices delivered of the event after it.
	Seen int64
	Next int
}

// NoticeID returns the id of a notice about a task.
func NoticeID(task string, event int64, part int) string {
	return task + ":" + strconv.FormatInt(event, 10) + ":" + strconv.Itoa(part)
}

// Outbox yields the notices about a task that a receiver has not been sent, in order. They are the
// updates of a stream of the task, but do not end while the task waits for input. The outbox shares
// feeds with the task's streams. It is not safe for concurrent use. Close must be called.
type Outbox struct {
	r    *Reader
	task string

	told  int64 // the last event that was delivered completely
	part  int   // number of delivered notices of the next event
	entry int64 // the event that rest belongs to
	rest  []Update
	over  bool // nothing follows rest
}

// Outbox returns the notices about a task that follow the event with the sequence number seen,
// except for the first part notices of the next event. If seen is negative, the first notice is the
// whole task. The error is ErrNotVisible if callers do not see the run as a task, or the store's.
func (s *Feeds) Outbox(ctx context.Context, k Key, seen int64, part int) (*Outbox, error) {
	o := &Outbox{r: s.Reader(k, nil, 0), task: agent.ChildTask(k.Root, k.Scope), told: seen, part: part}
	o.r.granted = true
	if err := o.begin(ctx); err != nil {
		o.r.Close()
		return nil, err
	}
	o.r.since = everything // waiting for input does not end it
	return o, nil
}

// ErrNotVisible means that callers do not see the run as a task.
var ErrNotVisible = errors.New("the run is not visible as a task")

// begin joins a feed at the position where the outbox starts.
func (o *Outbox) begin(ctx context.Context) error {
	if o.told >= 0 {
		o.r.cursor, o.r.knows = o.told, o.told > 0
		return o.r.Follow(ctx)
	}
	v, err := o.r.Latest(ctx, 0)
	if err != nil {
		return err
	}
	if !v.Visible {
		return ErrNotVisible
	}
	if err := o.r.Begin(ctx, true); err != nil {
		return err
	}
	o.entry, o.rest, o.over, o.part = o.r.cursor, []Update{*o.r.first}, v.Over, -1
	return nil
}

// Next returns the next notice, waiting for it until ctx ends. A nil notice means that none
// follows. The error is the cause of ctx or the store's.
func (o *Outbox) Next(ctx context.Context) (*Notice, error) {
	for len(o.rest) == 0 {
		if o.over {
			return nil, nil
		}
		e, err := o.r.next(ctx)
		if err != nil {
			return nil, err
		}
		if e == nil {
			o.over = true
			continue
		}
		o.take(e)
	}
	n := &Notice{Update: o.rest[0], Event: o.entry, Part: o.part + 1, Seen: o.told, Next: o.part + 1}
	n.ID = NoticeID(o.task, n.Event, n.Part)
	o.rest = o.rest[1:]
	o.part++
	if len(o.rest) == 0 {
		o.told, o.part = o.entry, 0
		n.Seen, n.Next = o.told, 0
	}
	return n, nil
}

// take makes notices of an entry, except for those that were delivered before.
func (o *Outbox) take(e *entry) {
	list := e.updates
	if e.first.Response != nil {
		o.r.knows = true
		list = []Update{e.first}
	}
	if !o.r.knows {
		list = nil
	}
	o.over = e.over
	if len(list) == 0 {
		return
	}
	o.entry, o.rest = e.seq, list[min(o.part, len(list)):]
	if len(o.rest) == 0 {
		o.told, o.part = e.seq, 0
	}
}

// Seen returns the sequence number up to which everything was delivered. It may only be called
// after Next has returned nil or an error.
func (o *Outbox) Seen() int64 { return max(o.r.cursor, o.told) }

// Ended reports whether no notice follows.
func (o *Outbox) Ended() bool { return o.over && len(o.rest) == 0 }

// Close releases the feed.
func (o *Outbox) Close() { o.r.Close() }
