package push

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
)

// session delivers the notifications of one claimed configuration, one after the other, and
// records each delivery.
type session struct {
	*Dispatcher
	claim         runs.PushClaim
	state         runs.PushState
	host, account string // the names under which sessions and slots are counted
}

func (d *Dispatcher) newSession(c runs.PushClaim) *session {
	return &session{Dispatcher: d, claim: c, state: c.PushState, host: "host " + c.Origin(), account: "account " + identity.AccountOf(c.Task.Owner)}
}

func (s *session) configID() configID { return configID{s.claim.Task, s.claim.Config.GetId()} }

func (s *session) names() []string { return []string{"", s.host, s.account} }

// postpone releases a configuration for a while because its host or account has too many
// sessions.
func (s *session) postpone(ctx context.Context) {
	pause := s.Policy.Busy + time.Duration(s.Rand(int64(9*s.Policy.Busy)))
	s.settle(ctx, s.claim, runs.PushStep{PushState: s.state, Then: runs.PushDue, At: s.Pushes.Now().Add(pause)})
}

// run delivers notifications until no new one arrives within Policy.Linger, an attempt
// fails, or ctx ends.
func (s *session) run(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil { // another session starts when the lease expires
			s.Log.Error("panic while delivering notifications", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()), zap.String("task", s.claim.Task.ID))
		}
	}()
	out, err := s.Outbox(ctx, s.claim.Push)
	if err != nil {
		s.stop(ctx, err)
		return
	}
	defer out.Close()
	ctx = s.Traces.Within(ctx, s.claim.Task)
	for {
		n, err := s.next(ctx, out)
		if err == nil || errors.Is(err, errQuiet) {
			s.resetRead(s.configID())
		}
		switch {
		case errors.Is(err, errQuiet):
			s.state.Seen, s.state.Part = out.Seen(), 0
			s.settle(ctx, s.claim, runs.PushStep{PushState: s.state, Then: runs.PushIdle})
			return
		case err != nil:
			s.stop(ctx, err)
			return
		case n == nil:
			s.state.Seen, s.state.Part = out.Seen(), 0
			s.end(ctx)
			return
		}
		if !s.deliver(ctx, n, out) {
			return
		}
	}
}

// Reasons why a session ends.
var (
	errQuiet = errors.New("no new notification")
	errLost  = errors.New("the claim was lost")
)

// next waits up to Policy.Linger for the next notification. If many sessions are open it
// waits for less time.
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
		case !s.extend(ctx):
			return nil, errLost
		}
	}
}

// extend extends the claim by another lease and reports whether it is still held.
func (s *session) extend(ctx context.Context) bool {
	at := s.Pushes.Now().Add(s.Policy.Lease)
	s.claim.Until = at
	return s.settle(ctx, s.claim, runs.PushStep{PushState: s.state, Then: runs.PushHold, At: at})
}

// stop releases the claim. If only this process stops, another one may continue at once. If
// the task cannot be read, the configuration is postponed: with a backoff if the store may
// recover, and for long if the journal is damaged.
func (s *session) stop(ctx context.Context, err error) {
	at := s.Pushes.Now()
	switch {
	case errors.Is(err, errLost), errors.Is(err, a2aerror.TaskNotFound("")): // a configuration is deleted with its task
		return
	case ctx.Err() == nil:
		s.Log.Warn("cannot read a task to notify its webhooks", zap.String("task", s.claim.Task.ID), zap.Error(err))
		pause := s.Policy.Most/10 + time.Duration(s.Rand(int64(s.Policy.Most)))
		if !errors.Is(err, runs.ErrDataLoss) {
			pause = s.Policy.pause(s.failedRead(s.configID()), 0, s.Rand)
		}
		at = at.Add(pause)
	}
	s.settle(ctx, s.claim, runs.PushStep{PushState: s.state, Then: runs.PushDue, At: at})
}

// end records that the task has no further notifications.
func (s *session) end(ctx context.Context) {
	s.state.Ended = true
	s.settle(ctx, s.claim, runs.PushStep{PushState: s.state, Then: runs.PushIdle})
}

// deliver sends one notification. It returns false if the session ends.
func (s *session) deliver(ctx context.Context, n *feed.Notice, out *feed.Outbox) bool {
	slot, err := s.acquire(ctx)
	if err != nil {
		s.stop(ctx, err)
		return false
	}
	ok := false
	defer func() { s.slots.release(slot, ok) }()
	if held, err := s.confirm(ctx); !held {
		if err != nil {
			s.stop(ctx, err)
		}
		return false
	}
	traced, end := s.Traces.Attempt(ctx, s.claim.Task.ID, s.claim.Origin(), n.ID, s.state.Tries)
	r := s.try(traced, n)
	end(r.err)
	if ok = r.err == ""; ok {
		return s.delivered(ctx, n, out)
	}
	if ctx.Err() != nil { // this process stopped the call
		s.stop(ctx, ctx.Err())
		return false
	}
	return s.failed(ctx, n, r)
}

// Keys of Dispatcher.logged, before the name of a host.
const (
	failing   = "failing "
	recovered = "recovered "
)

// about returns the log of a notification. It has the receiver without the path and the query of its URL, which may
// be secret.
func (s *session) about(n *feed.Notice) *zap.Logger {
	return s.Log.With(zap.String("task", s.claim.Task.ID), zap.String("config", s.claim.Config.GetId()), zap.String("notification", n.ID),
		zap.String("receiver", s.claim.Origin()))
}

// acquire waits for a slot. Meanwhile it extends the claim, so that the lease does not expire.
func (s *session) acquire(ctx context.Context) (*slot, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, s.Policy.Lease/2)
		slot, err := s.slots.acquire(wait, s.host, s.account)
		cancel()
		if err == nil || ctx.Err() != nil {
			return slot, err
		}
		if !s.extend(ctx) {
			return nil, errLost
		}
	}
}

// confirm reports whether the claim is held and lasts for a call. A configuration that was
// deleted or replaced must not be called.
func (s *session) confirm(ctx context.Context) (bool, error) {
	if s.claim.Until.Sub(s.Pushes.Now()) < s.Policy.Timeout+s.Policy.Lease/10 {
		return s.extend(ctx), nil
	}
	return s.Pushes.HoldsPush(ctx, s.claim)
}

// delivered records a delivery and reports whether the session continues.
func (s *session) delivered(ctx context.Context, n *feed.Notice, out *feed.Outbox) bool {
	s.Metrics.Delivered(ctx)
	if (s.state.Tries > 0 || s.state.Failing) && s.rarely(recovered+s.host) {
		s.forget(failing + s.host) // so that the next failure is logged
		s.about(n).Warn("a webhook works again", zap.Int("tries", s.state.Tries+1))
	}
	s.state = runs.PushState{Seen: n.Seen, Part: n.Next}
	if out.Ended() {
		s.end(ctx)
		return false
	}
	return s.extend(ctx)
}

// failed schedules the next attempt, or drops the notification and continues with the next
// one.
func (s *session) failed(ctx context.Context, n *feed.Notice, r result) bool {
	now := s.Pushes.Now()
	st := &s.state
	if st.Tries++; st.Tries == 1 {
		st.Since = now
	}
	st.Error = r.err
	s.Metrics.Failed(ctx, r.err)
	log := s.about(n).With(zap.Int("tries", st.Tries), zap.String("error", r.err), zap.NamedError("cause", r.cause))
	if s.rarely(failing + s.host) {
		log.Warn("a webhook fails")
	}
	drop := r.final || s.Policy.exhausted(st.Tries, st.Since, now, st.Failing)
	if r.err == whyNoKey { // nothing was sent, and the owner may come back
		drop = now.Sub(st.Since) >= s.Policy.Age
	}
	if !drop {
		pause := s.Policy.pause(st.Tries, r.retryAfter, s.Rand)
		log.Debug("a notification was not delivered", zap.Duration("pause", pause))
		s.settle(ctx, s.claim, runs.PushStep{PushState: *st, Then: runs.PushDue, At: now.Add(pause)})
		return false
	}
	log.Info("dropped a notification")
	s.Metrics.Dropped(ctx)
	dead := &runs.DeadPush{Config: s.claim.Config.GetId(), Seq: n.Event, Part: n.Part, Tries: st.Tries, Error: r.err, At: now}
	s.state = runs.PushState{Seen: n.Seen, Part: n.Next, Failing: true, Error: r.err}
	step := runs.PushStep{PushState: s.state, Dead: dead, Then: runs.PushHold, At: now.Add(s.Policy.Lease)}
	if r.retryAfter > 0 {
		step.Then, step.At = runs.PushDue, now.Add(min(r.retryAfter, s.Policy.MaxWait))
	}
	s.claim.Until = step.At
	return s.settle(ctx, s.claim, step) && step.Then == runs.PushHold
}
