// Package feed tells many readers of a task what happens to it: the events of a journal
// are read, folded and encoded once for all of them.
package feed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Source is what feeds read of a store. Its errors are returned to readers as they are.
// Safe for concurrent use.
type Source interface {
	// Events returns at most limit events of a root task that are on record after a
	// sequence, in order. They are shared: read only.
	Events(ctx context.Context, owner, root string, after int64, limit int) ([]*teamv1.Event, error)
	// Task returns a task as the store has it. What its lists hold is shared: read only.
	Task(ctx context.Context, owner, id string) (*a2av1.Task, error)
	// Watch returns a channel that receives when a root may have new events. A hint:
	// losing one costs time, never an event. stop must be called.
	Watch(root string) (wake <-chan struct{}, stop func())
}

// Config of Feeds. All fields are required.
type Config struct {
	Source Source
	// Poll is how often a silent journal is read, in case that no hint came.
	Poll time.Duration
	// Closes reports whether the stream of a task that has come to a state ends there,
	// though the task has not ended.
	Closes func(a2av1.TaskState) bool
}

// New returns feeds of no task.
func New(c Config) *Feeds { return &Feeds{c: c} }

// Key names what a feed tells.
type Key struct {
	// Owner is account/principal.
	Owner string
	// Root is the id of the root task; Scope is that of the task in it, empty for the root.
	Root, Scope string
	// Details has every step told.
	Details bool
}

// Feeds are the feeds of many tasks: for what is told of a task most often one, which
// is at the end of its journal, and some further back for who is late. Safe for
// concurrent use.
type Feeds struct {
	c     Config
	mu    sync.Mutex
	lines map[Key]*line // guarded by mu
	n     atomic.Int64  // of feeds; a feed asks for its share under its own lock
}

// line holds the feeds that tell the same.
type line struct {
	Key
	opening chan struct{} // holds one: who makes a feed
	users   int           // guarded by Feeds.mu
	feeds   []*feed       // guarded by Feeds.mu
}

// join returns the feeds of a key. leave must be called.
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

func (s *Feeds) leave(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.lines, l.Key)
	}
}

// find returns the feed that has come furthest of those that have what a reader
// with a cursor needs; nil without one. early asks for some distance to what is
// dropped next. drop must be called with it.
func (s *Feeds) find(l *line, cursor int64, early bool) *feed {
	return s.use(l, func(base, seq int64) bool {
		if early {
			base += (seq - base) / 2
		}
		return base <= cursor && cursor <= seq
	})
}

// newest returns the feed that has come furthest, nil without one. drop must be
// called with it.
func (s *Feeds) newest(l *line) *feed {
	return s.use(l, anywhere)
}

func anywhere(int64, int64) bool { return true }

// use adds a reader to the feed that has come furthest of those that fit.
func (s *Feeds) use(l *line, fits func(base, seq int64) bool) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := l.furthest(fits)
	if f != nil {
		f.readers++
	}
	return f
}

// furthest returns the feed that has come furthest of those that fit. The caller
// holds Feeds.mu.
func (l *line) furthest(fits func(base, seq int64) bool) (best *feed) {
	var most int64 = -1
	for _, f := range l.feeds {
		if base, seq := f.span(); seq > most && fits(base, seq) {
			best, most = f, seq
		}
	}
	return best
}

// rank notes which feed has come furthest. The caller holds Feeds.mu.
func (l *line) rank() {
	first := l.furthest(anywhere)
	for _, f := range l.feeds {
		f.behind.Store(f != first)
	}
}

// add makes a feed known, with one reader. drop must be called with it.
func (s *Feeds) add(l *line, f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.feeds = append(l.feeds, f)
	l.rank()
	f.readers = 1
	s.n.Add(1)
}

// drop is called by each reader of a feed; the last one ends it.
func (s *Feeds) drop(l *line, f *feed) {
	if s.left(l, f) {
		f.stop()
	}
}

// left reports whether the last reader has left a feed.
func (s *Feeds) left(l *line, f *feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.readers--; f.readers > 0 {
		return false
	}
	l.feeds = slices.DeleteFunc(l.feeds, func(have *feed) bool { return have == f })
	l.rank()
	s.n.Add(-1)
	return true
}

// share is how many bytes each feed may keep.
func (s *Feeds) share() int { return int(min(ringBytes, ringsBytes/max(s.n.Load(), 1))) }

// open takes the right to make a feed of a line, so that readers that come
// together make one. The result gives it back.
func (l *line) open(ctx context.Context) (func(), error) {
	select {
	case l.opening <- struct{}{}:
		return func() { <-l.opening }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Stats are figures of what is open.
type Stats struct {
	// Feeds and Keys are how many feeds there are, and of how many keys.
	Feeds, Keys int
	// Bytes and Entries are the most that one of them keeps.
	Bytes, Entries int
}

// Stats returns the figures as of now.
func (s *Feeds) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Keys: len(s.lines)}
	for _, l := range s.lines {
		st.Feeds += len(l.feeds)
		for _, f := range l.feeds {
			f.mu.Lock()
			st.Bytes, st.Entries = max(st.Bytes, f.ring.size), max(st.Entries, len(f.ring.entries))
			f.mu.Unlock()
		}
	}
	return st
}
