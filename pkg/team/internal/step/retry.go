package step

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Retry is how a failing leaf is repeated.
type Retry struct {
	Attempts int32
	Backoff  time.Duration
}

// With returns r with what p sets.
func (r Retry) With(p *teamv1.Retry) Retry {
	if p.GetAttempts() > 0 {
		r.Attempts = p.GetAttempts()
	}
	if d := p.GetBackoff().AsDuration(); d > 0 {
		r.Backoff = d
	}
	return r
}

// retry waits until an attempt may begin, and makes further ones of what failed. Where the
// step ends without an answer, what earlier attempts have open is closed.
func retry(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		for {
			held, err := w.rest(ctx)
			switch {
			case err != nil:
				return Result{Err: withdraw(ctx, w, err)}
			case held:
				return Result{held: true}
			}
			res := next(ctx, w)
			switch {
			case res.Err == nil, res.fatal, errors.Is(res.Err, ErrStopped):
				return res
			case res.unbegun:
				res.Err = withdraw(ctx, w, res.Err)
				return res
			case ctx.Err() == nil && w.mayRetry(res.Err):
				if err := w.retried(res.Err); err != nil {
					return stopped(err)
				}
			case ctx.Err() == nil && w.failedTool(res.Err) != nil:
				return Result{Reply: w.failedTool(res.Err)}
			default:
				return Result{Err: w.endOfAttempt(ctx, res.Err)}
			}
		}
	}
}

// rest waits until the next attempt may begin. held: the run was paused before that,
// and may have been resumed.
func (w *Work) rest(ctx context.Context) (held bool, err error) {
	left := w.NotBefore.Sub(w.by.Run.Now())
	if w.NotBefore.IsZero() || left <= 0 || ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.by.Run.Shutting():
		held = true
	case <-ctx.Done():
	}
	return held, context.Cause(ctx)
}

// mayRetry reports whether an attempt is repeated: only leaves are, under the
// policy of the delegation they work for.
func (w *Work) mayRetry(err error) bool {
	e := agent.AsError(err)
	return w.Target.Leaf && e.Retry && w.Attempts < w.Target.Retry.Attempts && w.repeatable(e)
}

// retried records that the attempt failed and when the next one starts.
func (w *Work) retried(err error) error {
	e := agent.AsError(err)
	w.NotBefore = w.by.Run.Now().Add(backoff(w.by.Run.Seed, w.Scope, w.Attempts, w.Target.Retry.Backoff, e.RetryAfter))
	w.Spent, w.cost.lost = agent.AddSpent(w.Spent, w.cost.lost), nil
	w.Open, w.Unknown = false, !e.Fresh
	if e.Fresh {
		w.Failures++
		w.effect = ""
		w.Recorded = nil
	}
	ev := w.event(&teamv1.Event{Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{
		Attempt: w.Attempts, Error: e.Proto(), Fresh: e.Fresh, NotBefore: timestamppb.New(w.NotBefore), Spent: e.Spent,
	}}})
	w.Asked.Apply(ev)
	return w.emit(ev)
}

// maxBackoff bounds a pause between attempts: it is as good as no further attempt,
// and can be reckoned with.
const maxBackoff = 365 * 24 * time.Hour

// backoff is the pause behind so many attempts: base, doubled each time up to maxBackoff,
// with up to a quarter more at random, and no shorter than the callee asked for.
func backoff(seed int64, scope string, attempts int32, base, atLeast time.Duration) time.Duration {
	d := base
	for range min(attempts-1, 20) {
		d = min(d, maxBackoff/2) * 2
	}
	d = min(d, maxBackoff)
	h := fnv.New64a()
	_, _ = h.Write([]byte(scope))
	random := rand.New(rand.NewPCG(uint64(seed), h.Sum64()+uint64(attempts))) //nolint:gosec // jitter, not a secret
	d += time.Duration(random.Int64N(int64(d)/4 + 1))
	return max(d, atLeast)
}

// endOfAttempt is why a step ends with an attempt that failed: the end of its
// context, where that came. An attempt that has seen it says what it did about it.
func (w *Work) endOfAttempt(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case !w.Target.Leaf || agent.AsError(err).Fresh: // it was over, and all below it
		return cause
	}
	w.Unknown = true
	return withdraw(ctx, w, cause)
}

// withdraw ends what earlier attempts of a step have open, because of cause: a
// member with steps of its own, or with a task of a peer, is called once with
// its context ended, and closes them. It returns why the step ends: cause, or the
// member's word on it.
func withdraw(ctx context.Context, w *Work, cause error) error {
	if w.Target.Agent == nil || gone(cause) {
		return cause
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cancel(cause)
	var err error
	switch reaper, ok := w.Target.Agent.(agent.Reaper); {
	case slices.ContainsFunc(w.Recorded, opens):
		err = attempt(ctx, w).Err
	case w.Unknown && ok && !w.Step.GetDetached():
		err = reaper.Reap(ctx, w.request())
	}
	if errors.Is(err, cause) || errors.Is(err, ErrStopped) {
		return err
	}
	return cause
}

// opens reports whether an event below a step, or of its agent, opens what has to
// be closed.
func opens(ev *teamv1.Event) bool { return ev.GetBound() != nil || ev.GetStarted() != nil }

// gone reports whether a cause means that nothing more is recorded here.
func gone(cause error) bool {
	return errors.Is(cause, agent.ErrShutdown) || errors.Is(cause, agent.ErrFenced) || errors.Is(cause, ErrStopped)
}
