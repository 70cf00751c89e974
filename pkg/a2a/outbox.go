package a2a

import (
	"context"
	"strconv"
	"strings"
)

// TaskFirst as PushState.Seen: the receiver is told the task as it is, then what follows.
const TaskFirst = -1

// Notice is one thing that the receiver of a push configuration is told.
type Notice struct {
	Update
	// ID is the same each time that it is told: for receivers that want to see it once.
	ID string
	// Event is the sequence of its event, Part its number among those of the event,
	// from 1; 0 is the task as it is behind that event.
	Event int64
	Part  int
	// Seen and Next are the PushState.Seen and PushState.Part once it is dealt with.
	Seen int64
	Next int
}

func noticeID(task string, event int64, part int) string {
	return task + ":" + strconv.FormatInt(event, 10) + ":" + strconv.Itoa(part)
}

// Outbox is what a push configuration is still to be told, in order: what a
// stream of the task tells, without its end while the task asks for input. It
// shares feeds with the task's streams. One goroutine at a time; Close must be called.
type Outbox struct {
	t    *tail
	task string

	told  int64 // the last event that all was told of
	part  int   // notices of the next one that were told
	entry int64 // the event of notices
	rest  []Update
	over  bool // nothing follows rest
}

// Outbox returns what a configuration is still to be told.
func (h *Handler) Outbox(ctx context.Context, p Push) (*Outbox, error) {
	t := &tail{h: h}
	t.seat.of = &h.seats // none is taken
	o := &Outbox{t: t, task: p.Task.ID, told: p.Seen, part: p.Part}
	t.join(ctx, p.Task)
	if err := o.begin(ctx, p); err != nil {
		t.leave()
		return nil, err
	}
	t.since = everything // asking for input is no end
	return o, nil
}

// begin takes a feed.
func (o *Outbox) begin(ctx context.Context, p Push) error {
	if p.Seen != TaskFirst {
		o.t.cursor, o.t.knows = p.Seen, p.Seen > 0
		return o.t.follow(ctx)
	}
	if err := o.t.latest(ctx, 0); err != nil {
		return err
	}
	v := o.t.feed.view()
	if !v.visible {
		return TaskNotFound(p.Task.ID)
	}
	if err := o.t.begin(ctx); err != nil {
		return err
	}
	o.entry, o.rest, o.over, o.part = o.t.cursor, []Update{*o.t.first}, v.over, -1
	return nil
}

// Next returns what is told next and waits for it until ctx ends. Nil is the end:
// nothing follows. Errors: ctx's cause, those of the store.
func (o *Outbox) Next(ctx context.Context) (*Notice, error) {
	for len(o.rest) == 0 {
		if o.over {
			return nil, nil
		}
		e, err := o.t.next(ctx)
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
	n.ID = noticeID(o.task, n.Event, n.Part)
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
		o.t.knows = true
		list = []Update{e.first}
	}
	if !o.t.knows {
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
func (o *Outbox) Seen() int64 { return max(o.t.cursor, o.told) }

// Ended reports that nothing follows.
func (o *Outbox) Ended() bool { return o.over && len(o.rest) == 0 }

// Close gives back what it holds.
func (o *Outbox) Close() { o.t.leave() }

// Pushes returns what keeps the push configurations; nil when there are none.
func (h *Handler) Pushes() Pushes { return h.pushes }

// Account returns the account of an owner.
func Account(owner string) string {
	account, _, _ := strings.Cut(owner, "/")
	return account
}
