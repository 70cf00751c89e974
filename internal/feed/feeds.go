// Package feed delivers the events of tasks to many readers. The events of a journal are read,
// folded and encoded once for all of them.
package feed

import (
	"context"
	"slices"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/ring"
)

// Source is the part of a store that feeds read. Its errors are returned to readers unchanged. It
// is safe for concurrent use.
type Source interface {
	// Events returns at most limit events of a root task that follow a sequence number, in order.
	// The events are shared and must not be changed.
	Events(ctx context.Context, owner, root string, after int64, limit int) ([]*teamv1.Event, error)
	// Task returns a task as stored. The elements of its lists are shared and must not be changed.
	Task(ctx context.Context, owner, id string) (*a2av1.Task, error)
	// Watch returns a channel that receives when a root may have new events. The signal is a hint:
	// if one is lost, readers find the events at the next poll. stop must be called.
	Watch(root string) (wake <-chan struct{}, stop func())
}

// Config configures Feeds. All fields but Memory are required.
type Config struct {
	Source Source
	// Memory is the budget of what feeds keep; nil means no limit.
	Memory *inflight.Budget
	// Poll is how often a journal is read without a signal, in case that one was lost.
	Poll time.Duration
	// Closes reports whether a stream ends when the task enters a state that is not final, such as
	// one in which it waits for input.
	Closes func(a2av1.TaskState) bool
}

// New returns Feeds without any feed.
func New(c Config) *Feeds { return &Feeds{c: c} }

// Key identifies what a feed delivers.
type Key struct {
	// Owner is the owner of the task, as account/principal.
	Owner string
	// Root is the id of the root task. Scope is the scope of the task within it, empty for the
	// root.
	Root, Scope string
	// Details reports whether the feed has updates about every decision and step.
	Details bool
}

// Feeds holds the feeds of many tasks. A key usually has one feed, at the end of the journal, and
// further ones for readers that are behind. Feeds is safe for concurrent use.
type Feeds struct {
	c     Config
	mu    sync.Mutex
	lines map[Key]*line // guarded by mu
	rings ring.Group
}

// line holds the feeds of one key.
type line struct {
	Key
	opening chan struct{} // a semaphore for creating feeds
	users   int           // calls of join without leave; guarded by Feeds.mu
	feeds   []*feed       // guarded by Feeds.mu
}

// join returns the line of a key, which it creates if needed. leave must be called.
func (s *Feeds) join(k Key) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[k]
	if l == nil {
		if s.lines == nil {
			s.lines = map[Key]*line{}
		}
		l = &line{Key: k, opening: make(chan struct{}, 1)}
		s.lines[k] = l
	}
	l.users++
	return l
}

// leave ends the use of a line. The last user removes it.
func (s *Feeds) leave(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.lines, l.Key)
	}
}

// find returns the most advanced feed that has the entries after a cursor, nil without one. If
// early is true, the cursor must not be in the older half of the feed's range, which is dropped
// next. The caller becomes a reader of the feed and must call drop.
func (s *Feeds) find(l *line, cursor int64, early bool) *feed {
	return s.use(l, func(base, seq int64) bool {
		if early {
			base += (seq - base) / 2
		}
		return base <= cursor && cursor <= seq
	})
}

// newest returns the most advanced feed, nil without one. The caller becomes a reader of the feed
// and must call drop.
func (s *Feeds) newest(l *line) *feed {
	return s.use(l, anywhere)
}

// anywhere accepts every feed, see use.
func anywhere(int64, int64) bool { return true }

// use adds a reader to the most advanced feed for which fits returns true, and returns it.
func (s *Feeds) use(l *line, fits func(base, seq int64) bool) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := l.furthest(fits)
	if f != nil {
		f.readers++
	}
	return f
}

// furthest returns the most advanced feed for which fits returns true, nil without one. The caller
// must hold Feeds.mu.
func (l *line) furthest(fits func(base, seq int64) bool) (best *feed) {
	var most int64 = -1
	for _, f := range l.feeds {
		if base, seq := f.span(); seq > most && fits(base, seq) {
			best, most = f, seq
		}
	}
	return best
}

// rank marks all feeds but the most advanced one as behind. The caller must hold Feeds.mu.
func (l *line) rank() {
	first := l.furthest(anywhere)
	for _, f := range l.feeds {
		f.behind.Store(f != first)
	}
}

// add adds a feed to a line, with one reader. drop must be called.
func (s *Feeds) add(l *line, f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.feeds = append(l.feeds, f)
	l.rank()
	f.readers = 1
}

// drop removes a reader from a feed. The last one removes the feed and stops it.
func (s *Feeds) drop(l *line, f *feed) {
	if s.left(l, f) {
		f.end()
	}
}

// left removes a reader from a feed, and reports whether it was the last one.
func (s *Feeds) left(l *line, f *feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.readers--; f.readers > 0 {
		return false
	}
	l.feeds = slices.DeleteFunc(l.feeds, func(have *feed) bool { return have == f })
	l.rank()
	return true
}

// open waits for the right to create a feed of a line, so that concurrent readers create only one.
// The returned function releases that right. The error is the cause of ctx.
func (l *line) open(ctx context.Context) (func(), error) {
	select {
	case l.opening <- struct{}{}:
		return func() { <-l.opening }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Stats describes the current feeds.
type Stats struct {
	// Feeds is the number of feeds, and Keys the number of their keys.
	Feeds, Keys int
	// Bytes and Entries are the largest amounts that a single feed keeps.
	Bytes, Entries int
}

// Stats returns the current statistics.
func (s *Feeds) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Keys: len(s.lines)}
	for _, l := range s.lines {
		st.Feeds += len(l.feeds)
		for _, f := range l.feeds {
			f.mu.Lock()
			st.Bytes, st.Entries = max(st.Bytes, f.ring.Bytes()), max(st.Entries, f.ring.Len())
			f.mu.Unlock()
		}
	}
	return st
}
