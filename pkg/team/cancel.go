package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
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
			if _, busy := p.running[st.index]; busy || closing[st] || st.past.Attempts == 0 && !st.Dropped { // or it never began
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
		if err := p.collect(ctx); err != nil {
			return err
		}
	}
}

// abandon ends an open step that nothing works on. A member may have something
// open of its own, which takes its time: that is done beside the loop.
func (p *process) abandon(ctx context.Context, st *StepState) error {
	if p.gate.called(st.Step) && st.past.Attempts > 0 {
		p.spawn(ctx, st, p.runner.Close)
		return nil
	}
	return p.runner.End(&step.Work{Step: st.Step, Scope: st.Scope, Emit: p.pass, Past: step.Past{Spent: st.past.Spent}},
		step.EndedWith(agent.ErrCanceled, teamv1.Outcome_OUTCOME_CANCELED))
}

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

// cancelDropped cancels the open steps that decisions on record have dropped:
// after a crash also those that nobody came to cancel.
func (p *process) cancelDropped() {
	for st := range p.pending() {
		if st.Dropped {
			p.run.Cancel(st.Scope)
		}
	}
}
