package remote

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// silentWait is the timeout for canceling the task of a peer that has been silent for too long.
const silentWait = 5 * time.Second

// silence ends a call whose peer sends nothing new for too long.
type silence struct {
	after time.Duration // 0 means no limit
	timer *time.Timer   // nil without a limit
	err   *agent.Error  // why the call has ended then
	seen  *a2av1.Task   // the task as it was last read; nil if it was not
}

// limitSilence ends the context of the call if heard is not called for a time; 0 means no limit. The
// caller must call stop.
func (c *call) limitSilence(id string, after time.Duration) (stop func()) {
	if after <= 0 {
		return func() {}
	}
	s := &c.silence
	s.after, s.err = after, agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "agent %q sent nothing for %s (idle_timeout)", id, after)
	s.err.Retry = true
	ctx, cancel := context.WithCancelCause(c.ctx)
	c.ctx = ctx
	s.timer = time.AfterFunc(after, func() { cancel(s.err) })
	return func() {
		s.timer.Stop()
		cancel(nil)
	}
}

// heard notes that the peer has sent something new.
func (c *call) heard() {
	if c.silence.timer != nil {
		c.silence.timer.Reset(c.silence.after)
	}
}

// read notes how a task was read. It is new if it has changed since it was last read.
func (c *call) read(t *a2av1.Task) {
	if c.silence.timer != nil && !proto.Equal(c.silence.seen, t) {
		c.silence.seen = t
		c.heard()
	}
}

// silent reports whether cause is that the peer was silent for too long.
func (c *call) silent(cause error) bool {
	return c.silence.err != nil && errors.Is(cause, c.silence.err)
}

// tooSilent returns the error of a call whose peer was silent for too long. w is what became of its
// task. A task that was ended without a result is not continued by the next attempt.
func (c *call) tooSilent(w withdrawn) error {
	e := *c.silence.err
	e.Fresh, e.Spent = w.none || w.confirmed && !w.result, w.spent
	return &e
}

// withinSilence returns the shorter of d and half of the time for which a peer may be silent, so that
// its task is read before that has passed.
func withinSilence(d, limit time.Duration) time.Duration {
	if limit > 0 {
		return min(d, max(limit/2, time.Millisecond))
	}
	return d
}
