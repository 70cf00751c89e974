package a2a

import (
	"strconv"
	"strings"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// closesAt reports whether streams of a task end in a state that is not final. A2A 1.0 is ambiguous about this; compare
// sections 3.1.2, 3.1.6 and 7.6.1. By default they stay open in the state AUTH_REQUIRED, because the task may continue
// without a message from the client.
func closesAt(rule teamv1.StreamClose_Value, s a2av1.TaskState) bool {
	switch rule {
	case teamv1.StreamClose_END:
		return false
	case teamv1.StreamClose_INTERRUPTED:
		return taskstate.Interrupted(s)
	case teamv1.StreamClose_DEFAULT_CLOSE, teamv1.StreamClose_INPUT_REQUIRED:
	}
	return s == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
}

// streamLimiter limits the number of open streams per owner and per root task or team. It is safe
// for concurrent use.
type streamLimiter struct {
	limits func() *teamv1.StreamSettings

	mu   sync.Mutex
	open map[runs.Key]int // the key of an owner has an empty ID; guarded by mu
}

// streamSlot is one open stream in the counts of a streamLimiter. It is not safe for concurrent
// use.
type streamSlot struct {
	limiter *streamLimiter
	keys    []runs.Key // the counts that include the stream
	close   func()     // called by release; nil for nothing
}

// acquire adds the stream to the count of k, unless that count has reached limit. It reports
// whether the stream was added.
func (s *streamSlot) acquire(k runs.Key, limit int) bool {
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[k] >= limit {
		return false
	}
	if l.open == nil {
		l.open = map[runs.Key]int{}
	}
	l.open[k]++
	s.keys = append(s.keys, k)
	return true
}

// release closes the stream and removes it from all counts. It is called once.
func (s *streamSlot) release() {
	if s.close != nil {
		s.close()
	}
	l := s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range s.keys {
		if l.open[k]--; l.open[k] == 0 {
			delete(l.open, k)
		}
	}
}

// acquire counts a stream of an owner. It returns INSUFFICIENT_RESOURCES if the owner has too many
// open streams. The caller must release the slot.
func (l *streamLimiter) acquire(owner string) (*streamSlot, error) {
	s := &streamSlot{limiter: l}
	limit := int(l.limits().GetPerCaller())
	if s.acquire(runs.Key{Owner: owner}, limit) {
		return s, nil
	}
	account, principal, _ := strings.Cut(owner, "/")
	e := tooManyStreams("you have %d open streams, the maximum of streams.per_caller; close one, or poll your tasks instead", limit)
	return nil, e.With(agent.DetailLimit, "streams.per_caller").With(agent.DetailValue, strconv.Itoa(limit)).With(agent.DetailAccount, account).With(agent.DetailPrincipal, principal)
}

// with counts a stream of an owner and what else it is to be counted for, and returns what ends that.
func (l *streamLimiter) with(owner string, also func(*streamSlot) error) (release func(), err error) {
	s, err := l.acquire(owner)
	if err != nil {
		return nil, err
	}
	if err := also(s); err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}

// acquireTask also counts the stream for the root task of k.
func (s *streamSlot) acquireTask(k runs.Key) error {
	k.ID, _ = agent.SplitTask(k.ID)
	limit := int(s.limiter.limits().GetPerTask())
	if s.acquire(k, limit) {
		return nil
	}
	return tooManyStreams("the task has %d open streams, the maximum; close one, or poll the task instead", limit).With("task_id", k.ID)
}

// acquireTeam also counts the stream for a team.
func (s *streamSlot) acquireTeam(owner, team string) error {
	limit := int(s.limiter.limits().GetPerTask())
	if s.acquire(runs.Key{Owner: owner, ID: "team/" + team}, limit) { // no task has such an ID
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
