package step

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// errTimeout is the cause of a step's context that ended by the step's deadline.
var errTimeout = agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the step's time ran out")

// deadline bounds the time of a step including all its attempts, from its begin or from the last progress of a tool
// that works for it, and makes the step cancelable by its scope.
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
		b := &bounded{Context: ctx}
		b.end(left)
		return next(agent.WithProgress(b, func() {
			if limit := w.Target.Timeout; time.Until(*b.at.Load()) < limit && expire.Stop() {
				b.end(limit)
				expire.Reset(limit)
			}
		}), w)
	}
}

// bounded is a context that reports the deadline of a step, which can be extended. It has no timer of its own.
type bounded struct {
	context.Context
	at atomic.Pointer[time.Time]
}

// end sets the deadline to a time from now.
func (b *bounded) end(in time.Duration) {
	at := time.Now().Add(in)
	b.at.Store(&at)
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) {
	own := *b.at.Load()
	if at, ok := b.Context.Deadline(); ok && at.Before(own) {
		return at, true
	}
	return own, true
}

// Err implements context.Context.
func (b *bounded) Err() error {
	err := b.Context.Err()
	if err != nil && errors.Is(context.Cause(b.Context), errTimeout) {
		return context.DeadlineExceeded
	}
	return err
}
