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

// Retry is the retry policy of a leaf: the maximum number of attempts, the first included, and the
// pause before the second attempt.
type Retry struct {
	Attempts int32
	Backoff  time.Duration
}

// With returns r with the fields that p sets. p may be nil.
func (r Retry) With(p *teamv1.Retry) Retry {
	if p.GetAttempts() > 0 {
		r.Attempts = p.GetAttempts()
	}
	if d := p.GetBackoff().AsDuration(); d > 0 {
		r.Backoff = d
	}
	return r
}

// retry waits until an attempt may start, and repeats attempts that failed. If the step ends
// without an answer, it closes what earlier attempts left open.
func retry(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		for {
			paused, err := waitUntil(ctx, w.by.Run, w.NotBefore)
			switch {
			case err != nil:
				return Result{Err: closeOpen(ctx, w, err)}
			case paused:
				return Result{paused: true}
			}
			res := next(ctx, w)
			switch {
			case res.Err == nil, res.fatal, errors.Is(res.Err, ErrStopped):
				return res
			case res.notStarted:
				res.Err = closeOpen(ctx, w, res.Err)
				return res
			}
			var again bool
			var wait time.Duration
			if ctx.Err() == nil {
				again, wait, res.Err = w.askRetry(res.Err)
			}
			switch {
			case again:
				if err := w.recordRetry(res.Err, wait); err != nil {
					return stopped(err)
				}
			case ctx.Err() == nil && w.Prompt != nil:
				again, err := w.continueTruncated(res.Err)
				switch {
				case err != nil:
					return stopped(err)
				case !again:
					return Result{Err: w.endOfTurn(ctx, res.Err)}
				}
			case ctx.Err() == nil && failedTool(w.Step, res.Err) != nil:
				return Result{Reply: failedTool(w.Step, res.Err)}
			default:
				return Result{Err: w.endOfAttempt(ctx, res.Err)}
			}
		}
	}
}

// waitUntil waits until the next attempt may start; a zero time is now. If paused is true, the run was paused
// before that; it may have been resumed since.
func waitUntil(ctx context.Context, run *agent.Run, at time.Time) (paused bool, err error) {
	left := at.Sub(run.Now())
	if at.IsZero() || left <= 0 || ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-run.PauseSignal():
		paused = true
	case <-ctx.Done():
	}
	return paused, context.Cause(ctx)
}

// askRetry reports whether a failed attempt is repeated, and after what time at least. Only leaves are, under the
// policy of the delegation that they work for. If only the retry budget of the account forbids it, the
// returned error says so; otherwise it is err.
func (w *Work) askRetry(err error) (again bool, wait time.Duration, failed error) {
	e := agent.AsError(err)
	id := w.Target.breakerID(w.Step)
	if !w.Target.Leaf || !e.Retry || w.Attempts >= w.Target.Retry.Attempts || e.RetryAfter > maxRetryAfter || id != "" && w.by.openBreaker(id) != "" {
		return false, 0, err
	}
	wait, refusal := w.by.Upstreams.Retry(w.by.Run.Account(), w.Target.Upstream)
	if refusal == nil {
		return true, wait, err
	}
	last := *e
	last.Message += "; it is not tried again: " + refusal.Error()
	return false, 0, &last
}

// recordRetry records that the attempt failed and when the next one starts: after wait at least.
func (w *Work) recordRetry(err error, wait time.Duration) error {
	e := agent.AsError(err)
	next := w.by.Run.Now().Add(backoff(w.by.Run.Seed, w.Scope, w.Attempts, w.Target.Retry.Backoff, max(e.RetryAfter, wait)))
	return w.repeat(&teamv1.Retried{Attempt: w.Attempts, Error: e.Proto(), Fresh: e.Fresh, NotBefore: timestamppb.New(next), Spent: w.cost.lost})
}

// repeat records that another attempt follows.
func (w *Work) repeat(retried *teamv1.Retried) error {
	w.Retry(retried)
	w.cost.lost = nil
	if retried.GetFresh() {
		w.effect = ""
	}
	ev := w.event(&teamv1.Event{Kind: &teamv1.Event_Retried{Retried: retried}})
	w.Asked.Apply(ev)
	if err := w.emit(ev); err != nil {
		return err
	}
	w.cost.release(w.Step)
	return nil
}

// maxBackoff bounds the pause between attempts, so that its computation cannot overflow.
const maxBackoff = 365 * 24 * time.Hour

// backoff returns the pause after a number of attempts: base, doubled for each further attempt up
// to maxBackoff, plus up to a quarter of jitter, and at least atLeast, the pause that the callee
// asked for. The jitter depends only on seed, scope and attempts.
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

// endOfAttempt returns the error that a step ends with after a failed attempt: the cause of its
// context if that has ended, unless the attempt has reported that cause itself.
func (w *Work) endOfAttempt(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case !w.Target.Leaf || agent.AsError(err).Fresh: // nothing is open below it
		return cause
	}
	w.Unknown = true
	return closeOpen(ctx, w, cause)
}

// closeOpen closes what earlier attempts of a step left open, because of cause. An agent with open
// steps of its own, or with a task on a peer, is called once more with an ended context and closes
// them. It returns the error that the step ends with: cause, or the agent's error with that cause.
func closeOpen(ctx context.Context, w *Work, cause error) error {
	if w.Target.Agent == nil || stopsRecording(cause) {
		return cause
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cancel(cause)
	var err error
	w.cost.continues = w.isBound()
	switch reaper, ok := w.Target.Agent.(agent.Reaper); {
	case slices.ContainsFunc(w.Recorded, opens):
		err = attempt(ctx, w).Err
	case w.Unknown && ok && !w.Step.GetDetached():
		err = reaper.Reap(ctx, w.request())
	}
	if errors.Is(err, ErrStopped) {
		return err
	}
	if w.Open && w.cost.lost == nil { // the attempt that a crash interrupted has not been booked
		spent := (*teamv1.Spent)(nil)
		if e := agent.AsError(err); e != nil {
			spent = e.Spent
		}
		w.cost.lost = w.withTaskCost(spent, err)
	}
	if errors.Is(err, cause) {
		return err
	}
	return cause
}

// opens reports whether an event below a step, or of its agent, opens something that has to be
// closed.
func opens(ev *teamv1.Event) bool { return ev.GetBound() != nil || ev.GetStarted() != nil }

// stopsRecording reports whether a cause means that this process must not record anything more for
// the run.
func stopsRecording(cause error) bool {
	return errors.Is(cause, agent.ErrShutdown) || errors.Is(cause, agent.ErrFenced) || errors.Is(cause, ErrStopped)
}
