package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// silentWait is the timeout for canceling the task of a peer that has been silent for too long.
const silentWait = 5 * time.Second

// silence ends a call whose peer sends nothing new for too long.
type silence struct {
	after time.Duration // 0 means no limit
	timer *time.Timer   // nil without a limit
	err   *agent.Error  // why the call has ended then
	seen  *a2av1.Task   // the task as it was last read; nil if it was not since the last news
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
		c.silence.seen = nil
	}
}

// read notes how a task was read. It is new if it has changed since it was last read; the first read
// after other news only shows what is known.
func (c *call) read(t *a2av1.Task) {
	if c.silence.timer == nil {
		return
	}
	if c.silence.seen != nil && !proto.Equal(c.silence.seen, t) {
		c.heard()
	}
	c.silence.seen = t
}

// noteSilence records that the task of a silent peer is about to be canceled, before that happens. b is
// that task; without an id if it is not known.
func (c *call) noteSilence(b *teamv1.Bound) error {
	if c.past.silent || c.yield == nil {
		return nil
	}
	b.Silent, c.past.silent = true, true
	if err := c.emit(&teamv1.Event{Kind: &teamv1.Event_Bound{Bound: b}}); err != nil {
		return err
	}
	return agent.Commit(context.WithoutCancel(c.ctx))
}

// afterSilence returns the error of a task that an earlier attempt canceled because the peer was
// silent, and that has been canceled since. The next attempt begins another one.
func (c *call) afterSilence(id string, spent *teamv1.Spent) *agent.Error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "agent %q was silent for too long (idle_timeout), and its task has been canceled", id)
	e.Retry, e.Fresh, e.Spent = true, true, spent
	return e
}

// replays tells events that a peer sends again after its stream was reopened from new ones, for events
// without sequence numbers.
type replays struct {
	seen     map[[sha256.Size]byte]bool // events of all streams
	reopened bool                       // the current stream is not the first
	fresh    bool                       // the current stream has sent a new event
}

// open notes that a stream is opened.
func (r *replays) open() { r.reopened, r.fresh = r.seen != nil, false }

// news reports whether an event is new: it was not sent before, or follows one that was not.
func (r *replays) news(e *teamv1.Event) bool {
	if r.seen == nil {
		r.seen = map[[sha256.Size]byte]bool{}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
	if err != nil {
		return false
	}
	key := sha256.Sum256(b)
	r.fresh = r.fresh || !r.reopened || !r.seen[key]
	r.seen[key] = true
	return r.fresh
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
