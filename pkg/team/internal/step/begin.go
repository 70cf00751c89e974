package step

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/pkg/agent"
)

// begin makes the start of an attempt durable, unless what it uses is halted. While the run is paused
// no attempt starts, with one exception: an agent with steps of its own that has started before is
// called, because it observes the pause itself and may have to close canceled steps.
func begin(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		resumed := w.by.Run.Resumed()
		use, ctx, err := inforce.Of(ctx).Begin(ctx, w.Scope, w.Target.subject(w.Step.GetName(), &w.by.Tools))
		held := errors.Is(err, inforce.ErrHeld)
		if err != nil && !held && failedTool(w.Step, err) == nil { // a halted tool has a result, which the model is told
			return w.refused(err)
		}
		defer use.End()
		ok := !held && w.by.Run.Enter()
		if !ok && (w.Target.Leaf || !w.Open) {
			return Result{paused: true, notStarted: true}
		}
		if ok {
			if res, over := w.commence(use); over {
				return res
			}
			if err != nil {
				return Result{Err: err}
			}
		}
		res := next(ctx, w)
		if res.Err = inforce.By(ctx, res.Err); errors.Is(res.Err, inforce.ErrHeld) {
			return Result{paused: true}
		}
		if w.Target.Leaf {
			w.logCause(res.Err)
		}
		res.paused = res.waits() && w.by.Run.PausedSince(resumed)
		return res
	}
}

// commence counts the attempt and makes its start durable. If over is true, no attempt is made and
// res is the result.
func (w *Work) commence(use *inforce.Use) (res Result, over bool) {
	err := w.by.Counters.take(w)
	if err != nil {
		w.by.Run.Entered()
		return w.refused(err), true
	}
	err = w.commitStart()
	switch {
	case err == nil && w.by.Run.StartsBlocked(): // the run was paused during the commit
		return Result{paused: true, notStarted: true}, true
	case err == nil:
		return haltedStart(w.Step, use)
	case w.run.Err() != nil, errors.Is(err, agent.ErrCanceled):
		return Result{Err: err, notStarted: true}, true
	}
	return stopped(err), true
}

// commitStart records the start and makes it durable. It returns ErrCanceled if the step was
// canceled in the meantime.
func (w *Work) commitStart() error {
	defer w.by.Run.Entered()                      // also when the consumer panics
	if !w.Open || w.Prompt != nil || w.Answered { // a model is called anew after a crash, and bills that call as well; a tool may have its effect after an answer
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
	return w.by.Run.Begin(w.Scope) // fails if the step was canceled during the commit
}

// start records that an attempt begins. An attempt that was interrupted keeps its number.
func (w *Work) start() error {
	if !w.Open {
		w.Attempts++
	}
	e := &startedEvent{}
	e.started.Attempt, e.started.Key, e.started.Input, e.started.Reserved = w.Attempts, w.key(), w.given(), w.Reserved
	if w.Target.Model != nil {
		e.started.Model, e.started.Provider = w.Target.Model.Name(), agent.ProviderOf(w.Target.Model)
	}
	if !w.Deadline.IsZero() {
		e.deadline.Seconds, e.deadline.Nanos = w.Deadline.Unix(), int32(w.Deadline.Nanosecond()) //nolint:gosec // less than 1e9
		e.started.Deadline = &e.deadline
	}
	w.Open = true
	e.kind.Started, e.event.Kind = &e.started, &e.kind
	return w.emit(w.event(&e.event))
}

// startedEvent is a Started event in a single allocation; every attempt makes one.
type startedEvent struct {
	event    teamv1.Event
	kind     teamv1.Event_Started
	started  teamv1.Started
	deadline timestamppb.Timestamp
}

// refused returns the result of an attempt that is not made because of err: a limit does not allow
// it, or a circuit breaker is open. If it is the first attempt, the step ends as REJECTED.
func (w *Work) refused(err error) Result {
	e := agent.AsError(err)
	limited := agent.Binds(e, w.by.Path) || e.Reason == agent.ReasonBreakerOpen || e.Reason == agent.ReasonMaxHandoffs || e.Reason == agent.ReasonHalted
	return Result{Err: err, notStarted: true, rejected: w.Attempts == 0 && limited}
}

// task returns the log field with the id of the task that the step belongs to, an empty one for a step that ends
// before it is run.
func (w *Work) task() zap.Field {
	if w.run == nil {
		return zap.Skip()
	}
	return zap.String("task", agent.From(w.run).Root)
}

// logCause logs the cause of a failed attempt, which may contain addresses. A2A callers do not see
// it.
func (w *Work) logCause(err error) {
	if err == nil {
		return
	}
	var e *agent.Error
	if errors.As(err, &e) && e.Err != nil && e.Code == agent.CodeUnavailable {
		w.by.Log.Warn("attempt failed", w.task(), zap.String("agent", w.by.Path), zap.String("step", w.Scope), zap.Int32("attempt", w.Attempts), zap.Error(err))
	}
}
