package a2a

import (
	"strconv"
	"strings"
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

// StreamClose says in which non-final states of a task its streams end. A2A 1.0 is ambiguous about
// this; compare sections 3.1.2, 3.1.6 and 7.6.1.
type StreamClose int

// The rules for ending streams.
const (
	// CloseAtInput ends streams when the task is in the state INPUT_REQUIRED. In the state
	// AUTH_REQUIRED they stay open, because the task may continue without a message from the
	// client.
	CloseAtInput StreamClose = iota
	// CloseAtInterrupt ends streams when the task is in the state INPUT_REQUIRED or AUTH_REQUIRED.
	CloseAtInterrupt
	// CloseAtEnd ends streams only when the task has ended.
	CloseAtEnd
)

// at reports whether streams end in the state s, which must not be a final one.
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

// streamLimiter limits the number of open streams per owner and per root task or team. It is safe
// for concurrent use.
type streamLimiter struct {
	limits func() Streams // PerTask and PerOwner are not 0

	mu   sync.Mutex
	open map[Key]int // the key of an owner has an empty ID; guarded by mu
}

// streamSlot is one open stream in the counts of a streamLimiter. It is not safe for concurrent
// use.
type streamSlot struct {
	limiter *streamLimiter
	keys    []Key // the counts that include the stream
}

// acquire adds the stream to the count of k, unless that count has reached limit. It reports
// whether the stream was added.
func (s *streamSlot) acquire(k Key, limit int) bool {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[k] >= limit {
		return false
	}
	if l.open == nil {
		l.open = map[Key]int{}
	}
	l.open[k]++
	s.keys = append(s.keys, k)
	return true
}

// release removes the stream from all counts. Further calls do nothing.
func (s *streamSlot) release() {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range s.keys {
		if l.open[k]--; l.open[k] == 0 {
			delete(l.open, k)
		}
	}
	s.keys = nil
}

// acquire counts a stream of an owner. It returns INSUFFICIENT_RESOURCES if the owner has too many
// open streams. The caller must release the slot.
func (l *streamLimiter) acquire(owner string) (*streamSlot, error) {
	s := &streamSlot{limiter: l}
	limit := l.limits().PerOwner
	if s.acquire(Key{Owner: owner}, limit) {
		return s, nil
	}
	account, principal, _ := strings.Cut(owner, "/")
	e := tooManyStreams("you have %d open streams, the maximum of streams.per_caller; close one, or poll your tasks instead", limit)
	return nil, e.With(agent.DetailLimit, "streams.per_caller").With(agent.DetailValue, strconv.Itoa(limit)).With(agent.DetailAccount, account).With(agent.DetailPrincipal, principal)
}

// acquireTask also counts the stream for the root task of k.
func (s *streamSlot) acquireTask(k Key) error {
	k.ID, _ = agent.SplitTask(k.ID)
	limit := s.limiter.limits().PerTask
	if s.acquire(k, limit) {
		return nil
	}
	return tooManyStreams("the task has %d open streams, the maximum; close one, or poll the task instead", limit).With("task_id", k.ID)
}

// acquireTeam also counts the stream for a team.
func (s *streamSlot) acquireTeam(owner, team string) error {
	limit := s.limiter.limits().PerTask
	if s.acquire(Key{owner, "team/" + team}, limit) { // no task has such an ID
		return nil
	}
	return tooManyStreams("you have %d open streams of the team, the maximum; close one", limit).With("team_id", team)
}

// tooManyStreams returns the error for too many streams. format is formatted with limit.
func tooManyStreams(format string, limit int) *agent.Error {
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, format, limit)
	e.Retry, e.RetryAfter = true, time.Second
	return e.With("max_streams", strconv.Itoa(limit))
}
