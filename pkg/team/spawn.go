package team

import (
	"context"
	"errors"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// spawn does something for a step in a goroutine of its own.
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
	p.waits = false
	p.wg.Go(func() {
		err := do(ctx, w)
		select {
		case p.msgs <- stepMsg{index: st.index, done: true, err: err}:
		case <-p.quit:
		}
	})
}

// collect takes one thing from outside the loop: an event of a running step, its
// end, or the word that the inbox holds something. Where nothing runs, a step idles
// that looks for the end of tasks of their own.
func (p *process) collect(ctx context.Context) error {
	p.settled = false
	var over <-chan struct{} // what runs ends with its context, and says so
	if len(p.running) == 0 {
		over = ctx.Done()
	}
	select {
	case <-over:
	case m := <-p.msgs:
		if !m.done {
			err := p.pass(m.ev)
			m.ack <- err
			return err
		}
		delete(p.running, m.index)
		p.waits = false
		if m.err != nil && !errors.Is(m.err, step.ErrStopped) {
			return m.err
		}
	case <-p.listener.Wake():
	case <-p.ring():
	}
	return nil
}

// ring receives when a step that idles has waited as long as it may.
func (p *process) ring() <-chan time.Time {
	if p.alarm.IsZero() {
		return nil
	}
	return time.After(p.alarm.Sub(p.run.Now()))
}
