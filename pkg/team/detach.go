package team

import (
	"context"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
)

// detached returns a function that returns how the task of a detached step ended; nil if it has not
// ended or cannot be read. The function reads each task at most once.
func (p *process) detached(ctx context.Context) func(*StepState) *teamv1.Ended {
	var ends map[*StepState]*teamv1.Ended
	return func(st *StepState) *teamv1.Ended {
		if !st.isDetachedTask() || p.run.Detacher == nil {
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

// isDetachedTask reports whether the step has become a task of its own.
func (st *StepState) isDetachedTask() bool {
	return st.Step.GetDetached() && st.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED
}

// EndedAs returns a copy of a detached step with the end e of the task that it became; if e is nil
// the copy is open. Other steps are returned unchanged.
func (st *StepState) EndedAs(e *teamv1.Ended) *StepState {
	if !st.isDetachedTask() {
		return st
	}
	c := *st
	c.Done, c.Outcome, c.Message, c.Err = e != nil, e.GetOutcome(), e.GetReply(), agent.FromProto(e.GetError())
	return &c
}

// TaskID returns the id of the task that belongs to a step: a root task if the step is detached,
// else a child of the run's task.
func (s *State) TaskID(st *StepState) string { return s.taskID(st.Scope, st.Step.GetDetached()) }

// NextTaskID returns the task id of the i-th step of the next decision; i starts at 0.
func (s *State) NextTaskID(i int, detached bool) string {
	return s.taskID(agent.Scope(s.Scope, s.nextID(i)), detached)
}

func (s *State) taskID(scope string, detached bool) string {
	if detached {
		return step.DetachedID(s.Root, scope)
	}
	return agent.ChildTask(s.Root, scope)
}
