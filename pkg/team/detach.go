package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

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
		return step.DetachedID(s.Root, scope)
	}
	return agent.ChildTask(s.Root, scope)
}
