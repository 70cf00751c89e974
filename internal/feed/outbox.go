package feed

import (
	"context"
	"errors"
	"strconv"

	"github.com/agentteams/team-server/pkg/agent"
)

// Notice is one thing that the receiver of a push configuration is told.
type Notice struct {
	Update
	// ID is the same each time that it is told: for receivers that want to see it once.
	ID string
	// Event is the sequence of its event, Part its number among those of the event,
	// from 1; 0 is the task as it is behind that event.
	Event int64
	Part  int
	// Seen is up to where everything was told once it is dealt with, Next how many notices
	// of the next event were.
	Seen int64
	Next int
}

// NoticeID is the id of a notice of a task.
func NoticeID(task string, event int64, part int) string {
	return task + ":" + strconv.FormatInt(event, 10) + ":" + strconv.Itoa(part)
}

// Outbox is what a receiver is still to be told of a task, in order: what a
// stream of the task tells, without its end while the task asks for input. It
// shares feeds with the task's streams. One goroutine at a time; Close must be called.
type Outbox struct {
	r    *Reader
	task string

	told  int64 // the last event that all was told of
	part  int   // notices of the next one that were told
	entry int64 // the event of notices
	rest  []Update
	over  bool // nothing follows rest
}

// Outbox returns what is still to be told of a task: what is behind the event with the
// sequence seen, but for the first part notices of the next event. A negative seen begins
// with the task as it is. The error is ErrNotVisible if callers do not see the run as a task.
func (s *Feeds) Outbox(ctx context.Context, k Key, seen int64, part int) (*Outbox, error) {
	o := &Outbox{r: s.Reader(k, nil, 0), task: agent.ChildTask(k.Root, k.Scope), told: seen, part: part}
	if err := o.begin(ctx); err != nil {
		o.r.Close()
		return nil, err
	}
	o.r.since = everything // asking for input is no end
	return o, nil
}

// ErrNotVisible means that callers do not see the run as a task.
var ErrNotVisible = errors.New("the run is not visible as a task")

// begin takes a feed.
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

// Next returns what is told next and waits for it until ctx ends. Nil is the end:
// nothing follows. Errors: ctx's cause, those of the store.
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

// take makes notices of an entry, without those that were told.
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

// Seen is up to where everything was told, once Next has waited in vain or come
// to the end.
func (o *Outbox) Seen() int64 { return max(o.r.cursor, o.told) }

// Ended reports that nothing follows.
func (o *Outbox) Ended() bool { return o.over && len(o.rest) == 0 }

// Close gives back what it holds.
func (o *Outbox) Close() { o.r.Close() }
