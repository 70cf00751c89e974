package feed

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/ring"
)

// The maximum number of events in one read: of a new feed, and of a feed with readers.
const (
	loadPage = 256
	readPage = 64
)

// errBehind means that the feed no longer has the entry that a reader needs next.
var errBehind = errors.New("behind the feed")

// feed delivers the events of a task to its readers. Each event is folded and encoded once for all
// of them. A feed has no goroutine of its own: a reader that has seen everything reads the store on
// behalf of all readers that wait for more. The feed therefore advances with its fastest reader,
// and a slow reader delays no other. Each reader has a cursor. A reader whose next entry is no
// longer kept continues with another feed, which is further back.
type feed struct {
	Key
	journal
	of    *Feeds
	store chan struct{} // a semaphore for reading the store

	hold    *inflight.Hold // what it keeps in memory
	readers int            // guarded by Feeds.mu
	behind  atomic.Bool    // another feed of the line is ahead of this one

	mu      sync.Mutex
	told    teller            // guarded by mu
	ring    ring.Ring[*entry] // guarded by mu
	more    bool              // the journal may hold further events; guarded by mu
	awaited bool              // a reader reads the store on behalf of all; guarded by mu
	state   int               // bytes of the events that were folded; guarded by mu
	changed chan struct{}     // closed when a read ends; nil while no reader waits for that; guarded by mu
	task    *Update           // the current task; nil until it is needed; guarded by mu
}

// newFeed returns a feed that has read nothing. Its stop function must be called.
func (s *Feeds) newFeed(k Key) *feed {
	return &feed{Key: k, journal: s.watch(k.Owner, k.Root), of: s, told: newTeller(k, s.c.Closes), ring: ring.New[*entry](&s.rings, ringEntries), more: true, store: make(chan struct{}, 1)}
}

// load folds the recorded events up to the sequence number upTo without entries for readers. If
// rest is true, it also folds the events after that, with entries. It must be called before the
// feed has readers.
func (f *feed) load(ctx context.Context, upTo int64, rest bool) error {
	for more := true; more; {
		var page []*teamv1.Event
		var err error
		if page, more, err = f.page(ctx, f.told.seq, loadPage); err != nil {
			return err
		}
		for _, ev := range page {
			if ev.GetSeq() <= upTo {
				f.state += proto.Size(ev)
				f.told.skip(ev)
				f.ring.Base = ev.GetSeq()
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

// add folds an event and adds its entry for readers. It returns the size of the entry in bytes, 0
// without one. To make room it drops only entries up to seen, which all waiting readers have seen.
// The caller must hold mu.
func (f *feed) add(ev *teamv1.Event, seen int64) int {
	f.state += proto.Size(ev)
	e := f.told.take(ev)
	if e == nil {
		return 0
	}
	f.ring.Add(e, seen)
	return e.size
}

// kept returns about how many bytes the feed keeps. The caller must hold mu, or be the only user.
func (f *feed) kept() int64 { return int64(inflight.OfFeed*f.state + f.ring.Bytes()) }

// reserve begins to count what the feed keeps. If granted is not set, the error is INSUFFICIENT_RESOURCES if its
// account has no memory left.
func (f *feed) reserve(granted bool) (err error) {
	account, _, _ := strings.Cut(f.Owner, "/")
	if granted {
		f.hold = f.of.c.Memory.Take(inflight.Feed, account, 0)
		return nil
	}
	f.hold, err = f.of.c.Memory.Reserve(inflight.Feed, account, 0)
	return err
}

// reading returns what reserves memory for a record that is about to be read. If granted is set, it only counts it.
func (f *feed) reading(granted bool) func(n int64) error {
	return func(n int64) error {
		more := n*inflight.OfFeed - f.hold.Size()
		switch {
		case more <= 0:
			return nil
		case granted:
			f.hold.Grow(more)
			return nil
		}
		return f.hold.More(more)
	}
}

// place is the position of a reader.
type place struct {
	cursor  int64 // sequence number of the last event that the reader is done with
	since   int64 // the stream ends when the task begins to wait for input after this event
	inbound int64 // and after this inbox row is recorded; 0 without one
}

// next returns the next entry for a reader and moves its cursor there, waiting for it until ctx
// ends. A nil entry without an error is the end of the stream. The error is errBehind, the cause of
// ctx, or the store's.
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

// look returns the entry after a reader's cursor, nil without one, and moves the cursor. The caller
// must hold mu.
func (f *feed) look(p *place) (*entry, error) {
	if p.cursor < f.ring.Base {
		return nil, errBehind
	}
	next := f.ring.After(p.cursor)
	if len(next) == 0 {
		p.cursor = max(p.cursor, f.told.seq)
		return nil, nil
	}
	p.cursor = next[0].seq
	return next[0], nil
}

// done reports whether a reader has received everything and its stream ends.
func (f *feed) done(p *place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.cursor >= f.ring.Base && len(f.ring.After(p.cursor)) == 0 && f.ends(p)
}

// ends reports whether the stream of a reader that has received all entries ends. The caller must
// hold mu.
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

// changes returns a channel that is closed at the next change. The caller must hold mu.
func (f *feed) changes() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// change wakes the waiting readers. The caller must hold mu.
func (f *feed) change() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// await waits until changed is closed or ctx ends.
func await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch waits until the journal may hold more, and reads it. The caller has set awaited, which
// fetch resets when it returns.
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
	if read, err := f.wait(ctx, changed, f.of.c.Poll); read || err != nil { // by another reader
		return err
	}
	f.mu.Lock()
	f.more = true // the next reader reads if ctx ends before this one does
	f.mu.Unlock()
	return f.read(ctx)
}

// read reads a page of events from the store. It adds no more of them than half of the feed's share
// of memory, so that waiting readers find them; the rest is read again later.
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
	page, more, err := f.page(inflight.WithReader(ctx, f.reading(true)), after, readPage)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	size, most, n := 0, f.of.rings.Share()/2, 0
	for n < len(page) && size < most {
		size += f.add(page[n], after) // waiting readers have seen everything up to after
		n++
	}
	f.more = more || n < len(page)
	if n > 0 {
		f.task = nil
		f.hold.Set(f.kept())
	}
	return nil
}

// end releases what the feed holds. It has no readers.
func (f *feed) end() {
	f.stop()
	f.hold.Release()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring.Drop()
}

// catchUp reads what the journal holds. It reports whether it could add all of it; if not, readers
// of the feed might not find what they need.
func (f *feed) catchUp(ctx context.Context) (bool, error) {
	if err := f.read(ctx); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change()
	return !f.more, nil
}

// span returns the range of cursors with which a reader can use the feed: from the event before its
// first entry to its last event.
func (f *feed) span() (base, seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.Base, f.told.seq
}

// show returns the task in its current state, with the given number of history messages. Readers
// that want the whole history (nil) share one update. The caller must hold mu.
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

// everything is greater than every sequence number.
const everything = math.MaxInt64
