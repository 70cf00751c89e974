package feed

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Events that are read at once.
const (
	loadPage = 256
	readPage = 64
)

// errBehind: what a reader wants next is not in the feed any more.
var errBehind = errors.New("behind the feed")

// feed tells the readers of a task what happens: it folds each event, and has
// each encoded, once for all of them. It has no goroutine. The reader that has
// seen everything reads on in the store, on behalf of all that wait for more;
// so what is kept moves on with the fastest reader, and a slow one holds up
// nobody. Readers hold a cursor. Who comes too late for what is kept takes
// another feed, further back.
type feed struct {
	Key
	of    *Feeds
	wake  <-chan struct{} // something may have come
	stop  func()          // ends wake
	store chan struct{}   // holds one: who reads the store

	readers int         // guarded by Feeds.mu
	behind  atomic.Bool // another feed of the line has come further

	mu      sync.Mutex
	told    teller        // guarded by mu
	ring    ring          // guarded by mu
	more    bool          // there may be more on record; guarded by mu
	awaited bool          // a reader waits for the store on behalf of all; guarded by mu
	changed chan struct{} // closed when there is more, or nobody waits for the store; nil when nobody cares; guarded by mu
	task    *Update       // the task as it is now; nil until somebody wants it; guarded by mu
}

// newFeed returns a feed that has read nothing. stop must be called.
func (s *Feeds) newFeed(k Key) *feed {
	f := &feed{Key: k, of: s, told: newTeller(k, s.c.Closes), more: true, store: make(chan struct{}, 1)}
	f.wake, f.stop = s.c.Source.Watch(k.Root)
	return f
}

// load folds what is on record up to a sequence in silence, and with rest what
// is behind it for readers. It comes before all else.
func (f *feed) load(ctx context.Context, upTo int64, rest bool) error {
	for more := true; more; {
		page, err := f.of.c.Source.Events(ctx, f.Owner, f.Root, f.told.seq, loadPage)
		if err != nil {
			return err
		}
		more = len(page) == loadPage
		for _, ev := range page {
			if ev.GetSeq() <= upTo {
				f.told.skip(ev)
				f.ring.base = ev.GetSeq()
				continue
			}
			if !rest {
				return nil
			}
			f.add(ev, ev.GetSeq())
		}
	}
	f.more = false
	return nil
}

// add folds an event for the readers, and returns what it takes to keep it. What
// is dropped for it is seen: no newer than that. The caller holds mu.
func (f *feed) add(ev *teamv1.Event, seen int64) int {
	e := f.told.take(ev)
	if e == nil {
		return 0
	}
	f.ring.add(e, f.of.share(), seen)
	return e.size
}

// place is where a reader has come to.
type place struct {
	cursor  int64 // of the last event that was dealt with
	since   int64 // a task that began to ask behind it ends the stream
	inbound int64 // and behind this inbox row, once that is on record; 0 is none
}

// next returns what a reader is told next and moves its cursor there. It waits
// for it until ctx ends. Without an error, nil is the end of the stream. errBehind.
func (f *feed) next(ctx context.Context, p *place) (*entry, error) {
	for {
		f.mu.Lock()
		e, err := f.look(p)
		if e != nil || err != nil || f.ends(p) {
			f.mu.Unlock()
			return e, err
		}
		wait, changed := f.awaited, f.changes()
		f.awaited = true
		f.mu.Unlock()
		if !wait {
			err = f.fetch(ctx)
		} else {
			err = await(ctx, changed)
		}
		if err != nil {
			return nil, err
		}
	}
}

// look returns what is kept behind a reader's cursor, and moves it. The caller
// holds mu.
func (f *feed) look(p *place) (*entry, error) {
	if p.cursor < f.ring.base {
		return nil, errBehind
	}
	e := f.ring.after(p.cursor)
	if e == nil {
		p.cursor = max(p.cursor, f.told.seq)
		return nil, nil
	}
	p.cursor = e.seq
	return e, nil
}

// done reports whether a reader has been told everything.
func (f *feed) done(p *place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.cursor >= f.ring.base && f.ring.after(p.cursor) == nil && f.ends(p)
}

// ends reports whether nothing more comes for a reader that has seen all. The
// caller holds mu.
func (f *feed) ends(p *place) bool {
	switch {
	case p.cursor > f.told.seq:
		return false
	case f.told.fold.Terminal():
		return true
	case f.more || f.told.asked == 0:
		return false
	case p.inbound != 0:
		at, taken := f.told.taken[p.inbound]
		return taken && f.told.asked > max(at, p.since)
	}
	return f.told.asked > p.since
}

// changes returns what is closed at the next change. The caller holds mu.
func (f *feed) changes() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// change tells who waits. The caller holds mu.
func (f *feed) change() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch waits for the store, unless there is more already, and reads. The caller
// has set awaited, which is given up.
func (f *feed) fetch(ctx context.Context) error {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.awaited = false
		f.change()
	}()
	f.mu.Lock()
	more, changed := f.more, f.changes()
	f.mu.Unlock()
	if more {
		return f.read(ctx)
	}
	poll := time.NewTimer(f.of.c.Poll)
	defer poll.Stop()
	select {
	case <-changed: // somebody has read
		return nil
	case <-f.wake:
	case <-poll.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.mu.Lock()
	f.more = true // who comes next reads, should ctx end before
	f.mu.Unlock()
	return f.read(ctx)
}

// read reads a page of the store. It takes no more of it than readers that wait
// find in time; the rest is read again.
func (f *feed) read(ctx context.Context) error {
	select {
	case f.store <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-f.store }()
	f.mu.Lock()
	after := f.told.seq
	f.mu.Unlock()
	page, err := f.of.c.Source.Events(ctx, f.Owner, f.Root, after, readPage+1)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	size, most, n := 0, f.of.share()/2, 0
	for n < min(len(page), readPage) && size < most {
		size += f.add(page[n], after) // who waits has seen so much, and is told the whole page
		n++
	}
	f.more = n < len(page)
	if n > 0 {
		f.task = nil
	}
	return nil
}

// catchUp reads what is on record. It reports false if that is so much that
// readers of the feed would come too late for what is kept.
func (f *feed) catchUp(ctx context.Context) (bool, error) {
	if err := f.read(ctx); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change()
	return !f.more, nil
}

// span is what a reader may have seen to find what it needs here: from where the
// feed keeps entries to where it has come.
func (f *feed) span() (base, seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.base, f.told.seq
}

// show returns the task as it is: the same for all who want its whole history.
// The caller holds mu.
func (f *feed) show(history *int32) Update {
	if history != nil {
		return f.told.task(history)
	}
	if f.task == nil {
		u := f.told.task(nil)
		f.task = &u
	}
	return *f.task
}

// everything is behind all sequences.
const everything = math.MaxInt64
