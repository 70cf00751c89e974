package push

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/a2a"
)

// session looks after one configuration that was claimed: it tells the receiver
// one thing after the other, and puts on record what was told.
type session struct {
	*Dispatcher
	claim         a2a.PushClaim
	state         a2a.PushState
	host, account string // as sessions and slots are counted
}

func (d *Dispatcher) newSession(c a2a.PushClaim) *session {
	return &session{Dispatcher: d, claim: c, state: c.PushState, host: "host " + c.Origin(), account: "account " + a2a.AccountOf(c.Task.Owner)}
}

func (s *session) configID() configID { return configID{s.claim.Task, s.claim.Config.GetId()} }

func (s *session) names() []string { return []string{"", s.host, s.account} }

// later puts off a configuration that there is no room for.
func (s *session) later(ctx context.Context) {
	pause := s.Policy.Busy + time.Duration(s.Rand(int64(9*s.Policy.Busy)))
	s.settle(ctx, s.claim, a2a.PushStep{PushState: s.state, Then: a2a.PushDue, At: s.Pushes.Now().Add(pause)})
}

// run tells the receiver what there is, until it has waited for more in vain, a
// try has failed, or ctx ends.
func (s *session) run(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil { // its lease runs out, then it is tried again
			s.Log.Error("telling a receiver panicked", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()), zap.String("task", s.claim.Task.ID))
		}
	}()
	out, err := s.Outbox(ctx, s.claim.Push)
	if err != nil {
		s.stop(ctx, err)
		return
	}
	defer out.Close()
	for {
		n, err := s.next(ctx, out)
		if err == nil || errors.Is(err, errQuiet) {
			s.read(s.configID())
		}
		switch {
		case errors.Is(err, errQuiet):
			s.state.Seen, s.state.Part = out.Seen(), 0
			s.settle(ctx, s.claim, a2a.PushStep{PushState: s.state, Then: a2a.PushIdle})
			return
		case err != nil:
			s.stop(ctx, err)
			return
		case n == nil:
			s.state.Seen, s.state.Part = out.Seen(), 0
			s.end(ctx)
			return
		}
		if !s.tell(ctx, n, out) {
			return
		}
	}
}

// Reasons why a session ends.
var (
	errQuiet = errors.New("nothing happens")
	errLost  = errors.New("the claim is lost")
)

// next waits for what is told next, for a while.
func (s *session) next(ctx context.Context, out *feed.Outbox) (*feed.Notice, error) {
	until := time.Now().Add(s.Policy.Linger)
	if s.count("") > s.Limits.Sessions/2 {
		until = time.Now().Add(s.Policy.Linger / 100)
	}
	for {
		wait, cancel := context.WithTimeout(ctx, min(time.Until(until), s.Policy.Lease/2))
		n, err := out.Next(wait)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return n, err
		case !time.Now().Before(until):
			return nil, errQuiet
		case !s.hold(ctx):
			return nil, errLost
		}
	}
}

// hold keeps the claim for another lease.
func (s *session) hold(ctx context.Context) bool {
	at := s.Pushes.Now().Add(s.Policy.Lease)
	s.claim.Until = at
	return s.settle(ctx, s.claim, a2a.PushStep{PushState: s.state, Then: a2a.PushHold, At: at})
}

// stop gives the claim up, for somebody else at once where only this process
// stops, and for a while where the task cannot be read: longer each time, as a store
// recovers, and for long at once where it is damaged.
func (s *session) stop(ctx context.Context, err error) {
	at := s.Pushes.Now()
	switch {
	case errors.Is(err, errLost), errors.Is(err, a2a.TaskNotFound("")): // a configuration goes with its task
		return
	case ctx.Err() == nil:
		s.Log.Warn("a task cannot be read for its receivers", zap.String("task", s.claim.Task.ID), zap.Error(err))
		pause := s.Policy.Most/10 + time.Duration(s.Rand(int64(s.Policy.Most)))
		if !errors.Is(err, a2a.ErrDataLoss) {
			pause = s.Policy.pause(s.failedRead(s.configID()), 0, s.Rand)
		}
		at = at.Add(pause)
	}
	s.settle(ctx, s.claim, a2a.PushStep{PushState: s.state, Then: a2a.PushDue, At: at})
}

// end notes that nothing comes any more.
func (s *session) end(ctx context.Context) {
	s.state.Ended = true
	s.settle(ctx, s.claim, a2a.PushStep{PushState: s.state, Then: a2a.PushIdle})
}

// tell tells the receiver one thing; false ends the session.
func (s *session) tell(ctx context.Context, n *feed.Notice, out *feed.Outbox) bool {
	slot, err := s.acquire(ctx)
	if err != nil {
		s.stop(ctx, err)
		return false
	}
	well := false
	defer func() { s.slots.release(slot, well) }()
	if ok, err := s.confirm(ctx); !ok {
		if err != nil {
			s.stop(ctx, err)
		}
		return false
	}
	r := s.try(ctx, n)
	if well = r.err == ""; well {
		return s.told(ctx, n, out)
	}
	if ctx.Err() != nil { // it was this process that gave up
		s.stop(ctx, ctx.Err())
		return false
	}
	return s.failed(ctx, n, r)
}

// acquire waits for a slot, without losing the claim.
func (s *session) acquire(ctx context.Context) (*slot, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, s.Policy.Lease/2)
		slot, err := s.slots.acquire(wait, s.host, s.account)
		cancel()
		if err == nil || ctx.Err() != nil {
			return slot, err
		}
		if !s.hold(ctx) {
			return nil, errLost
		}
	}
}

// confirm reports whether the claim is there, and stays for as long as a call may
// take: what was deleted or replaced is not told any more.
func (s *session) confirm(ctx context.Context) (bool, error) {
	if s.claim.Until.Sub(s.Pushes.Now()) < s.Policy.Timeout+s.Policy.Lease/10 {
		return s.hold(ctx), nil
	}
	return s.Pushes.HoldsPush(ctx, s.claim)
}

// told goes on behind what the receiver has taken.
func (s *session) told(ctx context.Context, n *feed.Notice, out *feed.Outbox) bool {
	s.state = a2a.PushState{Seen: n.Seen, Part: n.Next}
	if out.Ended() {
		s.end(ctx)
		return false
	}
	return s.hold(ctx)
}

// failed tries again later, or gives the notification up and goes on with the next.
func (s *session) failed(ctx context.Context, n *feed.Notice, r result) bool {
	now := s.Pushes.Now()
	st := &s.state
	if st.Tries++; st.Tries == 1 {
		st.Since = now
	}
	st.Error = r.err
	log := s.Log.With(zap.String("task", s.claim.Task.ID), zap.String("config", s.claim.Config.GetId()), zap.String("notification", n.ID),
		zap.Int("tries", st.Tries), zap.String("error", r.err), zap.NamedError("cause", r.cause))
	if !s.Policy.spent(st.Tries, st.Since, now, st.Failing) {
		pause := s.Policy.pause(st.Tries, r.retryAfter, s.Rand)
		log.Debug("a receiver did not take a notification", zap.Duration("pause", pause))
		s.settle(ctx, s.claim, a2a.PushStep{PushState: *st, Then: a2a.PushDue, At: now.Add(pause)})
		return false
	}
	log.Info("a notification is given up")
	dead := &a2a.DeadPush{Config: s.claim.Config.GetId(), Seq: n.Event, Part: n.Part, Tries: st.Tries, Error: r.err, At: now}
	s.state = a2a.PushState{Seen: n.Seen, Part: n.Next, Failing: true, Error: r.err}
	step := a2a.PushStep{PushState: s.state, Dead: dead, Then: a2a.PushHold, At: now.Add(s.Policy.Lease)}
	if r.retryAfter > 0 {
		step.Then, step.At = a2a.PushDue, now.Add(min(r.retryAfter, s.Policy.MaxWait))
	}
	s.claim.Until = step.At
	return s.settle(ctx, s.claim, step) && step.Then == a2a.PushHold
}
