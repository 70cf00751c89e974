package a2a

import (
	"strconv"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Streams limits the number of open streams, and says when streams check for events and end.
type Streams struct {
	// PerTask is the maximum number of open streams of a task, including those of its
	// delegations. The default is 64.
	PerTask int
	// PerOwner is the maximum number of open streams of an owner. The default is 1000.
	PerOwner int
	// Poll is the interval at which a journal is read if no notification of new events arrives.
	// The default is a minute.
	Poll time.Duration
	// Close says in which states a stream ends before the task does. The default is CloseAtInput.
	Close StreamClose
}

// StreamClose says in which states of a task that has not ended a stream of it ends. A2A 1.0 is
// not unambiguous about this; compare sections 3.1.2, 3.1.6 and 7.6.1.
type StreamClose int

// The rules for ending streams.
const (
	// CloseAtInput ends streams when the task is in the state INPUT_REQUIRED. In the state
	// AUTH_REQUIRED they stay open, because the task may continue without a message from the
	// client.
	CloseAtInput StreamClose = iota
	// CloseAtInterrupt ends streams in both states.
	CloseAtInterrupt
	// CloseAtEnd ends streams only when the task has ended.
	CloseAtEnd
)

// at reports whether streams end in a state, which is not a final one.
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

// withDefaults returns s with the defaults for fields that are 0.
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

// seats counts the open streams of owners and root tasks. It is safe for concurrent use.
type seats struct {
	most Streams // PerTask and PerOwner are not 0

	mu    sync.Mutex
	taken map[Key]int // an owner's streams have an empty ID; guarded by mu
}

// seat is the place of one open stream in the counts. It is not safe for concurrent use.
type seat struct {
	of   *seats
	keys []Key
}

// take adds the stream to the count of k, unless that has reached most. It reports whether it
// did.
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

// leave removes the stream from all counts. Further calls do nothing.
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

// sit counts a stream of an owner. It returns INSUFFICIENT_RESOURCES if the owner has too many.
// The caller must call leave.
func (s *seats) sit(owner string) (*seat, error) {
	st := &seat{of: s}
	most := s.most.PerOwner
	if st.take(Key{Owner: owner}, most) {
		return st, nil
	}
	return nil, tooMany("you have %d open streams, the maximum; close one, or poll your tasks instead", most)
}

// at also counts the stream for the root task of k.
func (s *seat) at(k Key) error {
	k.ID, _ = agent.SplitTask(k.ID)
	most := s.of.most.PerTask
	if s.take(k, most) {
		return nil
	}
	return tooMany("the task has %d open streams, the maximum; close one, or poll the task instead", most).With("task_id", k.ID)
}

// atTeam also counts the stream for a team.
func (s *seat) atTeam(owner, team string) error {
	most := s.of.most.PerTask
	if s.take(Key{owner, "team/" + team}, most) { // not the id of any task
		return nil
	}
	return tooMany("you have %d open streams of the team, the maximum; close one", most).With("team_id", team)
}

// tooMany returns the error for too many streams. format is formatted with most.
func tooMany(format string, most int) *agent.Error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, format, most).With("max_streams", strconv.Itoa(most))
}
