package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

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
			if _, busy := p.running[st.index]; busy || closing[st] || st.past.Attempts == 0 && !st.Dropped { // never started: nothing to end
				continue
			}
			closing[st] = true
			if err := p.closeStep(ctx, st); err != nil {
				return err
			}
		}
		if len(p.running) == 0 {
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
