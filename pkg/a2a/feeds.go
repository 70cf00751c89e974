package a2a

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
)

// Streams are the limits of streams.
type Streams struct {
	// PerTask is how many may be open of one task, its delegations included; 0 is 64.
	PerTask int
	// PerOwner is how many an owner may have open; 0 is 1,000.
	PerOwner int
	// Poll is how often a silent journal is looked at, in case that nobody said
	// that something came; 0 is a minute.
	Poll time.Duration
	// Close is where a stream of a task that has not ended is closed.
	Close StreamClose
}

// StreamClose is where a stream of a task that has not ended is closed. The
// protocol says both that it may be and that it stays open.
type StreamClose int

// Rules of closing.
const (
	// CloseAtInput closes where the task asks for input, and leaves open where it
	// wants authentication: it may go on by itself.
	CloseAtInput StreamClose = iota
	// CloseAtInterrupt closes there too.
	CloseAtInterrupt
	// CloseAtEnd closes at the end of the task alone.
	CloseAtEnd
)

// at reports whether a stream is closed at a state of its task, which has not ended.
func (c StreamClose) at(s a2av1.TaskState) bool {
	switch c {
	case CloseAtInput:
		return s == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	case CloseAtInterrupt:
		return taskstate.Interrupted(s)
	case CloseAtEnd:
	}
	return false
}

func (s Streams) withDefaults() Streams {
	if s.PerTask == 0 {
		s.PerTask = 64
	}
	if s.PerOwner == 0 {
		s.PerOwner = 1000
	}
	if s.Poll == 0 {
		s.Poll = time.Minute
	}
	return s
}

// feeds are those of a handler: for what is told of a task most often one, which
// is at the end of its journal, and some further back for who is late. The zero
// value is empty.
type feeds struct {
	mu    sync.Mutex
	lines map[feedKey]*line // guarded by mu
	n     atomic.Int64      // of feeds; a feed asks for its share under its own lock
}

// line holds the feeds that tell the same.
type line struct {
	feedKey
	opening chan struct{} // holds one: who makes a feed
	users   int           // guarded by feeds.mu
	feeds   []*feed       // guarded by feeds.mu
}

// join returns the feeds of a key. leave must be called.
func (s *feeds) join(k feedKey) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[k]
	if l == nil {
		if s.lines == nil {
			s.lines = map[feedKey]*line{}
		}
		l = &line{feedKey: k, opening: make(chan struct{}, 1)}
		s.lines[k] = l
	}
	l.users++
	return l
}

func (s *feeds) leave(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.lines, l.feedKey)
	}
}

// find returns the feed that has come furthest of those that have what a reader
// with a cursor needs; nil without one. early asks for some distance to what is
// dropped next. drop must be called with it.
func (s *feeds) find(l *line, cursor int64, early bool) *feed {
	return s.use(l, func(base, seq int64) bool {
		if early {
			base += (seq - base) / 2
		}
		return base <= cursor && cursor <= seq
	})
}

// newest returns the feed that has come furthest, nil without one. drop must be
// called with it.
func (s *feeds) newest(l *line) *feed {
	return s.use(l, anywhere)
}

func anywhere(int64, int64) bool { return true }

// use adds a reader to the feed that has come furthest of those that fit.
func (s *feeds) use(l *line, fits func(base, seq int64) bool) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := l.furthest(fits)
	if f != nil {
		f.readers++
	}
	return f
}

// furthest returns the feed that has come furthest of those that fit. The caller
// holds feeds.mu.
func (l *line) furthest(fits func(base, seq int64) bool) (best *feed) {
	var most int64 = -1
	for _, f := range l.feeds {
		if base, seq := f.span(); seq > most && fits(base, seq) {
			best, most = f, seq
		}
	}
	return best
}

// rank notes which feed has come furthest. The caller holds feeds.mu.
func (l *line) rank() {
	first := l.furthest(anywhere)
	for _, f := range l.feeds {
		f.behind.Store(f != first)
	}
}

// add makes a feed known, with one reader. drop must be called with it.
func (s *feeds) add(l *line, f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.feeds = append(l.feeds, f)
	l.rank()
	f.readers = 1
	s.n.Add(1)
}

// drop is called by each reader of a feed; the last one ends it.
func (s *feeds) drop(l *line, f *feed) {
	if s.left(l, f) {
		f.stop()
	}
}

// left reports whether the last reader has left a feed.
func (s *feeds) left(l *line, f *feed) bool {
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
func (s *feeds) share() int { return int(min(ringBytes, ringsBytes/max(s.n.Load(), 1))) }

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
