package a2a

import (
	"strconv"
	"sync"

	"github.com/agentteams/team-server/pkg/agent"
)

// seats count the streams that are open, by owner and by root. The zero value
// counts none.
type seats struct {
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

// sit counts a stream of an owner.
func (t *tail) sit(owner string) error {
	t.seat.of = &t.h.seats
	most := t.h.c.Streams.PerOwner
	if t.seat.take(Key{Owner: owner}, most) {
		return nil
	}
	return tooMany("you have %d open streams, as many as there may be; close one, or get your tasks instead", most)
}

// sitAt counts it for a task.
func (t *tail) sitAt(k Key) error {
	k.ID, _ = agent.SplitTask(k.ID)
	most := t.h.c.Streams.PerTask
	if t.seat.take(k, most) {
		return nil
	}
	return tooMany("the task has %d open streams, as many as there may be; close one, or get the task instead", most).With("task_id", k.ID)
}

func tooMany(format string, most int) *agent.Error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, format, most).With("max_streams", strconv.Itoa(most))
}
