package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// detachedID is the task of a step that was begun as a task of its own.
func detachedID(root, scope string) string { return (&agent.Run{Root: root}).ID(scope, "detached", 1) }

// detach begins a member's work as a task of its own. The step has then ended:
// nobody waits for it here.
func (r *runner) detach(ctx context.Context, w *work, m *Member, emit emitter) result {
	d := r.run.Detacher
	if d == nil {
		return result{err: agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
			"member %q cannot work by itself: there is no server that keeps its task; serve the team, or use another policy for open delegations", m.ID)}
	}
	s := &teamv1.Spawned{TaskId: detachedID(r.run.Root, w.scope), Agent: m.Agent, Input: w.input, Member: m.ID, Team: r.cfg.ID, Budget: w.reserved}
	if r.traits.WakesOnDetachedEnd {
		s.Lead = r.cfg.ID
	}
	if err := d.Detach(ctx, s); err != nil {
		return result{err: err}
	}
	if err := emit(r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Spawned{Spawned: s}})); err != nil {
		return result{err: errStopped}
	}
	text := "Under way as " + s.GetTaskId() + "."
	return result{reply: &teamv1.Reply{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Reply_Message{Message: agent.NewMessage(text)}}}
}

// Lend implements agent.Lender: a member without a model takes the leader's, and its
// work is repeated as the team says.
func (l *Loop) Lend(ctx context.Context, member string) context.Context {
	by := policy{team: l.limits.retry}
	for i := range l.cfg.Members {
		if m := &l.cfg.Members[i]; m.ID == member {
			by.member = m.Retry
		}
	}
	return l.handDown(ctx, member, by)
}

// detached returns a function that tells how the task of a detached step has ended; nil:
// it has not, or cannot be read. It reads each task once.
func (p *process) detached(ctx context.Context) func(*StepState) *teamv1.Ended {
	var ends map[*StepState]*teamv1.Ended
	return func(st *StepState) *teamv1.Ended {
		if !st.begun() || p.run.Detacher == nil {
			return nil
		}
		if e, ok := ends[st]; ok {
			return e
		}
		e, err := p.run.Detacher.Detached(ctx, p.TaskID(st))
		if err != nil {
			e = nil
		}
		if ends == nil {
			ends = map[*StepState]*teamv1.Ended{}
		}
		ends[st] = e
		return e
	}
}

// begun reports whether the step has become a task of its own.
func (st *StepState) begun() bool {
	return st.Step.GetDetached() && st.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED
}

// EndedAs returns a step as the task that it was begun as has left it, with the end e of
// that task; open when e is nil. Other steps are returned as they are.
func (st *StepState) EndedAs(e *teamv1.Ended) *StepState {
	if !st.begun() {
		return st
	}
	c := *st
	c.Done, c.Outcome, c.Message, c.Err = e != nil, e.GetOutcome(), e.GetReply(), agent.FromProto(e.GetError())
	return &c
}

// TaskID returns the id of the task that a step of the run is: a task of its own where it
// is detached, else one below the task of the run.
func (s *State) TaskID(st *StepState) string { return s.taskID(st.Scope, st.Step.GetDetached()) }

// NextTaskID returns the id of the task that the i-th step of the next decision will be,
// from 0.
func (s *State) NextTaskID(i int, detached bool) string {
	return s.taskID(agent.Scope(s.Scope, s.nextID(i)), detached)
}

func (s *State) taskID(scope string, detached bool) string {
	if detached {
		return detachedID(s.Root, scope)
	}
	return agent.ChildTask(s.Root, scope)
}
