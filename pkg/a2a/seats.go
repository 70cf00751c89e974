package a2a

import (
	"strconv"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
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

// seats count the streams that are open, by owner and by root.
type seats struct {
	most Streams // PerTask and PerOwner are set

	mu    sync.Mutex
	taken map[Key]int // of an owner under an empty id; guarded by mu
}

// seat is a stream that is counted. One goroutine at a time.
type seat struct {
	of   *seats
	keys []Key
}

// take counts a stream once more, at most so many times under a key. It reports
// whether there was room.
func (s *seat) take(k Key, most int) bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.taken[k] >= most {
		return false
	}
	if s.of.taken == nil {
		s.of.taken = map[Key]int{}
	}
	s.of.taken[k]++
	s.keys = append(s.keys, k)
	return true
}

// leave ends the count.
func (s *seat) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	for _, k := range s.keys {
		if s.of.taken[k]--; s.of.taken[k] == 0 {
			delete(s.of.taken, k)
		}
	}
	s.keys = nil
}

// sit counts a stream of an owner. leave must be called.
func (s *seats) sit(owner string) (*seat, error) {
	st := &seat{of: s}
	most := s.most.PerOwner
	if st.take(Key{Owner: owner}, most) {
		return st, nil
	}
	return nil, tooMany("you have %d open streams, as many as there may be; close one, or get your tasks instead", most)
}

// at counts the stream for a task, too.
func (s *seat) at(k Key) error {
	k.ID, _ = agent.SplitTask(k.ID)
	most := s.of.most.PerTask
	if s.take(k, most) {
		return nil
	}
	return tooMany("the task has %d open streams, as many as there may be; close one, or get the task instead", most).With("task_id", k.ID)
}

// atTeam counts the stream for a team, too.
func (s *seat) atTeam(owner, team string) error {
	most := s.of.most.PerTask
	if s.take(Key{owner, "team/" + team}, most) { // no id of a task
		return nil
	}
	return tooMany("the team has %d open streams of yours, as many as there may be; close one", most).With("team_id", team)
}

func tooMany(format string, most int) *agent.Error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, format, most).With("max_streams", strconv.Itoa(most))
}
