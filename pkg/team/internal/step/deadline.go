package step

import (
	"context"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// errTimeout: the time of a step ran out.
var errTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the step's time ran out")

// deadline bounds the time of a step with all its attempts, and lets it be canceled by its
// scope.
func deadline(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if w.Deadline.IsZero() && w.Target.Timeout > 0 {
			w.Deadline = w.Begins.Add(w.Target.Timeout)
		}
		ctx, stop := w.context(ctx)
		defer stop()
		return next(ctx, w)
	}
}

// context is the context a step works in: its time, and its cancel by id.
func (w *Work) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := w.by.Run.Cancellable(w.Scope, cancel)
	stop := func() { release(); cancel(nil) }
	if w.Deadline.IsZero() {
		return ctx, stop
	}
	left := w.Deadline.Sub(w.by.Run.Now())
	tctx, tstop := context.WithTimeoutCause(ctx, left, errTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(time.Now().Add(left)) { // the deadline of the run, which may move; tctx has no timer
		late := time.AfterFunc(left, func() { cancel(errTimeout) })
		return tctx, func() { late.Stop(); tstop(); stop() }
	}
	return tctx, func() { tstop(); stop() }
}
