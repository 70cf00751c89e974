package team

import (
	"context"
	"errors"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// spawn runs do for a step in a new goroutine. Its events and its end arrive in p.msgs, which
// collect reads.
func (p *process) spawn(ctx context.Context, st *StepState, do func(context.Context, *step.Work) error) {
	if p.running == nil {
		p.running = map[int]*StepState{}
		p.msgs = make(chan stepMsg)
	}
	ack := make(chan error, 1)
	w := p.workOf(ctx, st, func(ev *teamv1.Event) error {
		select {
		case p.msgs <- stepMsg{index: st.index, ev: ev, ack: ack}:
		case <-p.quit:
			return step.ErrStopped
		}
		select {
		case err := <-ack:
			return err
		case <-p.quit:
			return step.ErrStopped
		}
	})
	p.running[st.index] = st
	p.schedulerWaits = false
	p.wg.Go(func() {
		err := do(ctx, w)
		select {
		case p.msgs <- stepMsg{index: st.index, done: true, err: err}:
		case <-p.quit:
		}
	})
}

// collect waits for one thing from outside the loop and handles it: an event of a running step, its
// end, a new message in the inbox, or the wake-up time of an idle step.
func (p *process) collect(ctx context.Context) error {
	p.mustWait = false
	var ended <-chan struct{} // nil while steps run: these end with their context and report it
	if len(p.running) == 0 {
		ended = ctx.Done()
	}
	select {
	case <-ended:
	case m := <-p.msgs:
		if !m.done {
			err := p.emitEvent(m.ev)
			m.ack <- err
			return err
		}
		delete(p.running, m.index)
		p.schedulerWaits = false
		if m.err != nil && !errors.Is(m.err, step.ErrStopped) {
			return m.err
		}
	case <-p.listener.Wake():
	case <-p.wakeUp():
	}
	return nil
}

// wakeUp returns a channel that receives at the wake-up time of an idle step; nil if no step is
// idle.
func (p *process) wakeUp() <-chan time.Time {
	if p.wakeTime.IsZero() {
		return nil
	}
	return time.After(p.wakeTime.Sub(p.run.Now()))
}
