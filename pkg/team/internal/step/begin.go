package step

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// begin makes the start of an attempt durable. While the run is paused no attempt starts,
// except of a member with steps of its own that has started before: it reads the pause
// itself, and may have canceled steps to close.
func begin(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		resumed := w.by.Run.Resumed()
		ok := w.by.Run.Enter()
		if !ok && (w.Target.Leaf || !w.Open) {
			return Result{held: true, unbegun: true}
		}
		if ok {
			if res, over := w.commence(); over {
				return res
			}
		}
		res := next(ctx, w)
		if w.Target.Leaf {
			w.logCause(res.Err)
		}
		res.held = res.waits() && w.by.Run.PausedSince(resumed)
		return res
	}
}

// commence counts the attempt and makes its start durable. If over is true, no attempt is
// made, and res is the result.
func (w *Work) commence() (res Result, over bool) {
	err := w.by.Counters.take(w)
	if err != nil {
		w.by.Run.Entered()
		return w.refused(err), true
	}
	err = w.commitStart()
	switch {
	case err == nil && w.by.Run.HeldBack(): // the pause did not wait for it
		return Result{held: true, unbegun: true}, true
	case err == nil:
		return Result{}, false
	case w.run.Err() != nil, errors.Is(err, agent.ErrCanceled):
		return Result{Err: err, unbegun: true}, true
	}
	return stopped(err), true
}

// commitStart makes the start durable.
func (w *Work) commitStart() error {
	defer w.by.Run.Entered() // also when the consumer panics
	if !w.Open {
		if err := w.start(); err != nil {
			return err
		}
	}
	if err := agent.Commit(w.run); err != nil {
		if w.run.Err() != nil {
			return context.Cause(w.run)
		}
		return err
	}
	return w.by.Run.Begin(w.Scope) // canceled while the start was made durable
}

// start records that an attempt begins.
func (w *Work) start() error {
	w.Attempts++
	e := &startedEvent{}
	e.started.Attempt, e.started.Key, e.started.Input, e.started.Reserved = w.Attempts, w.key(), w.Checks.given(), w.Reserved
	if w.Target.Model != nil {
		e.started.Model = w.Target.Model.Name()
	}
	if !w.Deadline.IsZero() {
		e.deadline.Seconds, e.deadline.Nanos = w.Deadline.Unix(), int32(w.Deadline.Nanosecond()) //nolint:gosec // less than 1e9
		e.started.Deadline = &e.deadline
	}
	w.Open = true
	e.kind.Started, e.event.Kind = &e.started, &e.kind
	return w.emit(w.event(&e.event))
}

// startedEvent is a Started event in one allocation: each attempt makes one.
type startedEvent struct {
	event    teamv1.Event
	kind     teamv1.Event_Started
	started  teamv1.Started
	deadline timestamppb.Timestamp
}

// refused is the result of a step that is not begun, or not again: a limit does not cover
// it, or the member is not called for now.
func (w *Work) refused(err error) Result {
	e := agent.AsError(err)
	limited := agent.Binds(e, w.by.Path) || e.Reason == agent.ReasonBreakerOpen || e.Reason == agent.ReasonMaxHandoffs
	return Result{Err: err, unbegun: true, rejected: w.Attempts == 0 && limited}
}

// logCause logs why the target of an attempt failed, with its address. A2A callers do
// not see these details.
func (w *Work) logCause(err error) {
	if err == nil {
		return
	}
	var e *agent.Error
	if errors.As(err, &e) && e.Err != nil && e.Code == agent.CodeUnavailable {
		w.by.Log.Warn("attempt failed", zap.String("agent", w.by.Path), zap.String("step", w.Scope), zap.Error(err))
	}
}
