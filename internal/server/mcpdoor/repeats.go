package mcpdoor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
)

const (
	// findable is how long after its end a task is still the answer to a call with the same arguments, unless its client
	// has got that answer.
	findable = 10 * time.Minute
	// maxRemembered is the maximum number of calls whose repetitions are told apart in memory. Without this memory, as
	// after a restart, an intended repetition within findable gets the answer of the first call.
	maxRemembered = 10_000
)

// repeats tells a call that a client makes again because it did not get the answer from one that shall have its own task.
// A message id is made of what the call says and of the number of answers that the client has got to such calls. It is safe
// for concurrent use.
type repeats struct {
	mu       sync.Mutex
	answered map[string]got           // by call; guarded by mu
	tasks    map[string]func()        // what to do when the client has got the result of a task; guarded by mu
	waiting  map[string]chan struct{} // of the message that a call waits for the answer to: closed when it no longer waits; guarded by mu
}

// got says how many answers a client has got to a call.
type got struct {
	answers int
	at      time.Time // of the last one
}

func newRepeats() repeats {
	return repeats{answered: map[string]got{}, tasks: map[string]func(){}, waiting: map[string]chan struct{}{}}
}

// id returns the message id of the call with a number.
func (*repeats) id(key string, n int) string {
	sum := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(n)))
	return "mcp-" + hex.EncodeToString(sum[:16])
}

// leaving is how long it may take until the end of a connection is known.
const leaving = time.Second

// enter notes that a call waits for the answer to a message. The caller must call leave. It reports false if another call
// does, which has not ended within leaving: then it is not one that is made again.
func (r *repeats) enter(ctx context.Context, id string) (leave func(), ok bool) {
	timer := time.NewTimer(leaving)
	defer timer.Stop()
	for {
		r.mu.Lock()
		other := r.waiting[id]
		if other == nil {
			left := make(chan struct{})
			r.waiting[id] = left
			r.mu.Unlock()
			return sync.OnceFunc(func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.waiting, id)
				close(left)
			}), true
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return func() {}, true // the message is not sent
		}
	}
}

// next returns the number of the present call.
func (r *repeats) next(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered[key].answers
}

// done sets the number of the next call.
func (r *repeats) done(key string, next int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answered) >= maxRemembered {
		maps.DeleteFunc(r.answered, func(_ string, g got) bool { return time.Since(g.at) > findable })
	}
	if len(r.answered) >= maxRemembered {
		clear(r.answered)
	}
	r.answered[key] = got{max(next, r.answered[key].answers), time.Now()}
}

// given sets what to do when the client that was given a task has got its result.
func (r *repeats) given(task string, done func()) {
	if done == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tasks) >= maxRemembered {
		clear(r.tasks)
	}
	r.tasks[task] = done
}

// got notes that a client has got the result of a task.
func (r *repeats) got(task string) {
	r.mu.Lock()
	done := r.tasks[task]
	delete(r.tasks, task)
	r.mu.Unlock()
	if done != nil {
		done()
	}
}

// over reports whether a task ended too long ago to be the answer to a call, or was canceled.
func (*repeats) over(task *a2av1.Task) bool {
	s := task.GetStatus()
	return s.GetState() == a2av1.TaskState_TASK_STATE_CANCELED || taskstate.Final(s.GetState()) && time.Since(s.GetTimestamp().AsTime()) > findable
}
