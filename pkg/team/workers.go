package team

import (
	"context"
	"errors"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// workers are the goroutines that work on steps. Their events and ends arrive in msgs, which collect reads. The zero value
// has none.
type workers struct {
	running map[int]*StepState // the steps, by index
	msgs    chan stepMsg
	quit    chan struct{} // closed when the loop ends and reads msgs no more
	wg      sync.WaitGroup
}

// stepMsg is a message from the goroutine of a step to the loop: an event to record, or the end of
// the goroutine. The loop answers an event in ack.
type stepMsg struct {
	index int
	ev    *teamv1.Event
	ack   chan<- error
	done  bool
	err   error
}

// close waits for all goroutines, whose events are not read any more.
func (w *workers) close() {
	close(w.quit)
	w.wg.Wait()
}

// works reports whether a goroutine works on a step.
func (w *workers) works(st *StepState) bool {
	_, busy := w.running[st.index]
	return busy
}

// members counts the running steps of members.
func (w *workers) members() int {
	n := 0
	for _, st := range w.running {
		if st.ByMember() {
			n++
		}
	}
	return n
}

// add adds a step, and returns how the work on it emits its events.
func (w *workers) add(st *StepState) func(*teamv1.Event) error {
	if w.running == nil {
		w.running = map[int]*StepState{}
		w.msgs = make(chan stepMsg)
	}
	w.running[st.index] = st
	ack := make(chan error, 1)
	return func(ev *teamv1.Event) error {
		select {
		case w.msgs <- stepMsg{index: st.index, ev: ev, ack: ack}:
		case <-w.quit:
			return step.ErrStopped
		}
		select {
		case err := <-ack:
			return err
		case <-w.quit:
			return step.ErrStopped
		}
	}
}

// start runs do in a goroutine, for a step that was added.
func (w *workers) start(st *StepState, do func() error) {
	w.wg.Go(func() {
		err := do()
		select {
		case w.msgs <- stepMsg{index: st.index, done: true, err: err}:
		case <-w.quit:
		}
	})
}

// spawn runs do for a step in a new goroutine.
func (p *process) spawn(ctx context.Context, st *StepState, do func(context.Context, *step.Work) error) {
	w := p.workOf(ctx, st, p.workers.add(st))
	p.schedulerWaits = false
	p.workers.start(st, func() error { return do(ctx, w) })
}

// collect waits for one thing from outside the loop and handles it: an event of a running step, its
// end, a new message in the inbox, or the wake-up time of an idle step.
func (p *process) collect(ctx context.Context) error {
	p.mustWait = false
	var ended <-chan struct{} // nil while steps run: these end with their context and report it
	if len(p.workers.running) == 0 {
		ended = ctx.Done()
	}
	select {
	case <-ended:
	case m := <-p.workers.msgs:
		if !m.done {
			err := p.emitEvent(m.ev)
			m.ack <- err
			return err
		}
		delete(p.workers.running, m.index)
		p.schedulerWaits = false
		if m.err != nil && !errors.Is(m.err, step.ErrStopped) {
			return m.err
		}
	case <-p.inbox.listener.Wake():
	case <-p.idle.wakeUp(p.run.Now):
	}
	return nil
}

// idle are the steps that wait for a time, which the scheduler answers itself. The zero value has none.
type idle struct {
	last *StepState // the step that was found idle last
	wake time.Time  // the earliest time; zero if there is none
}

// add adds a step that waits until a time.
func (i *idle) add(st *StepState, until time.Time) {
	i.last = st
	if i.wake.IsZero() || until.Before(i.wake) {
		i.wake = until
	}
}

// wakeUp returns a channel that receives at the earliest time; nil if no step is idle.
func (i *idle) wakeUp(now func() time.Time) <-chan time.Time {
	if i.wake.IsZero() {
		return nil
	}
	return time.After(i.wake.Sub(now()))
}

// closeSteps ends all open steps when the run ends, so that every start on record has its end. Work
// on other servers is canceled at the same time.
func (p *process) closeSteps(ctx context.Context) error {
	if len(p.Open()) == 0 {
		return nil
	}
	p.cancel(agent.ErrCanceled)
	closing := map[*StepState]bool{}
	for {
		for _, st := range p.Open() {
			if p.workers.works(st) || closing[st] || st.past.Attempts == 0 && !st.Dropped { // never started: nothing to end
				continue
			}
			closing[st] = true
			if err := p.closeStep(ctx, st); err != nil {
				return err
			}
		}
		if len(p.workers.running) == 0 {
			return nil
		}
		if err := p.collect(ctx); err != nil {
			return err
		}
	}
}

// closeStep ends an open step that no goroutine works on. An agent that was called may have open
// work of its own, and closing that takes time: it is done in another goroutine.
func (p *process) closeStep(ctx context.Context, st *StepState) error {
	if p.gate.callsAgent(st.Step) && st.past.Attempts > 0 {
		p.spawn(ctx, st, p.runner.Close)
		return nil
	}
	p.runner.Release(&step.Work{Step: st.Step, Scope: st.Scope, Past: step.Past{Failures: st.past.Failures}}, p.toolSets(ctx))
	past := st.past.Copy() // with the cost of an attempt that was interrupted
	return p.runner.End(&step.Work{Step: st.Step, Scope: st.Scope, Emit: p.emitEvent, Past: step.Past{Spent: past.Spent}},
		step.EndedWith(agent.ErrCanceled, teamv1.Outcome_OUTCOME_CANCELED))
}

// hasCanceled reports whether the step, or an open step below it, was canceled. Such steps are
// closed even while the run is paused. Each turn of the loop calls this for all open steps, so it
// scans the record only if something was canceled.
func (st *StepState) hasCanceled(run *agent.Run) bool {
	switch {
	case !run.CancelsIn(st.Scope):
		return false
	case run.Canceled(st.Scope):
		return true
	}
	open := map[string]bool{}
	for _, ev := range st.past.Recorded {
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

// cancelDropped cancels the open steps that recorded decisions have dropped. After a crash this
// includes steps whose cancel the crash prevented.
func (p *process) cancelDropped() {
	for st := range p.pending() {
		if st.Dropped {
			p.run.Cancel(st.Scope)
		}
	}
}
