package step

import (
	"context"
	"errors"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// errTimeout is the cause of a step's context that ended by the step's deadline.
var errTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the step's time ran out")

// deadline bounds the time of a step including all its attempts, and makes the step cancelable by
// its scope.
func deadline(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if w.Deadline.IsZero() && w.Target.Timeout > 0 {
			w.Deadline = w.Begins.Add(w.Target.Timeout)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		w.by.Run.RegisterCancel(w.Scope, cancel)
		defer w.by.Run.UnregisterCancel(w.Scope)
		if w.Deadline.IsZero() {
			return next(ctx, w)
		}
		left := w.Deadline.Sub(w.by.Run.Now())
		expire := time.AfterFunc(left, func() { cancel(errTimeout) })
		defer expire.Stop()
		if left <= 0 {
			cancel(errTimeout)
		}
		return next(&bounded{ctx, time.Now().Add(left)}, w)
	}
}

// bounded is a context that reports the deadline of a step. It has no timer of its own.
type bounded struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) {
	if at, ok := b.Context.Deadline(); ok && at.Before(b.at) {
		return at, true
	}
	return b.at, true
}

// Err implements context.Context.
func (b *bounded) Err() error {
	err := b.Context.Err()
	if err != nil && errors.Is(context.Cause(b.Context), errTimeout) {
		return context.DeadlineExceeded
	}
	return err
}
