package team

import (
	"context"
	"errors"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// closeSteps ends what is open when the run ends, so that every start has its
// end. What has to be ended elsewhere is ended at the same time.
func (p *process) closeSteps(ctx context.Context) error {
	if len(p.Open()) == 0 {
		return nil
	}
	p.cancel(agent.ErrCanceled)
	closing := map[*StepState]bool{}
	for {
		for _, st := range p.Open() {
			if _, busy := p.running[st.index]; busy || closing[st] || st.attempts == 0 && !st.Dropped { // or it never began
				continue
			}
			closing[st] = true
			if err := p.abandon(ctx, st); err != nil {
				return err
			}
		}
		if len(p.running) == 0 {
			return nil
		}
		if err := p.receive(ctx); err != nil {
			return err
		}
	}
}

// abandon ends an open step that nothing works on. A member may have something
// open of its own, which takes its time: that is done beside the loop.
func (p *process) abandon(ctx context.Context, st *StepState) error {
	if p.gate.called(st.Step) && st.attempts > 0 {
		p.spawn(st, func(child *runner, w *work, emit emitter) error { return child.release(ctx, w, emit) })
		return nil
	}
	return p.emitEnd(&work{step: st.Step, scope: st.Scope, spent: st.wasted}, p.pass, endedWith(agent.ErrCanceled, teamv1.Outcome_OUTCOME_CANCELED))
}

// release has a member close what it has open, and records the end of its step.
func (r *runner) release(ctx context.Context, w *work, emit emitter) error {
	if gone(context.Cause(ctx)) {
		return errStopped
	}
	end := agent.ErrCanceled
	if ex, err := r.executor(ctx, w, emit); err == nil {
		end = r.withdraw(ctx, w, ex, end)
	}
	if errors.Is(end, errStopped) {
		return errStopped
	}
	return r.emitEnd(w, emit, endedWith(end, teamv1.Outcome_OUTCOME_CANCELED))
}

// withdraw ends what earlier attempts of a step have open, because of cause: a
// member with steps of its own, or with a task of a peer, is called once with
// its context ended, and closes them. It returns why the step ends: cause, or the
// member's word on it.
func (r *runner) withdraw(ctx context.Context, w *work, ex *executor, cause error) error {
	if !r.gate.called(w.step) || gone(cause) {
		return cause
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cancel(cause)
	var err error
	switch {
	case slices.ContainsFunc(w.recorded, opens):
		err = ex.attempt(ctx, r.key(w)).err
	case w.unknown && ex.reap != nil:
		err = ex.reap(ctx, r.key(w))
	}
	if errors.Is(err, cause) || errors.Is(err, errStopped) {
		return err
	}
	return cause
}

// opens reports whether an event below a step, or of its agent, opens what has to
// be closed.
func opens(ev *teamv1.Event) bool { return ev.GetBound() != nil || ev.GetStarted() != nil }

// closes reports whether there is something open of a step, or below it, that was
// canceled: it is closed, also of a paused run. A loop asks in each turn, of all that
// stands: the record is not looked at where nothing was canceled.
func (st *StepState) closes(run *agent.Run) bool {
	switch {
	case !run.CancelsIn(st.Scope):
		return false
	case run.Canceled(st.Scope):
		return true
	}
	open := map[string]bool{}
	for _, ev := range st.recorded {
		for _, s := range ev.GetDecided().GetSteps() {
			open[agent.Scope(ev.GetScope(), s.GetId())] = true
		}
		if ev.GetEnded() != nil {
			delete(open, ev.GetScope())
		}
	}
	for scope := range open {
		if run.Canceled(scope) {
			return true
		}
	}
	return false
}

// gone reports whether a cause means that nothing more is recorded here.
func gone(cause error) bool {
	return errors.Is(cause, agent.ErrShutdown) || errors.Is(cause, agent.ErrFenced) || errors.Is(cause, errStopped)
}
