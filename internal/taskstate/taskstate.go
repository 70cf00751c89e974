// Package taskstate classifies the states of tasks, tells which event ends a run, and maps the outcome of a run to the
// state of its task.
package taskstate

import (
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Final reports whether a state is final: the task has ended and its state no longer
// changes.
func Final(s a2av1.TaskState) bool {
	switch s {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED:
		return true
	case a2av1.TaskState_TASK_STATE_UNSPECIFIED, a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING,
		a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:
	}
	return false
}

// Interrupted reports whether a task in this state waits for people: for input or for
// authentication.
func Interrupted(s a2av1.TaskState) bool {
	return s == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || s == a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
}

// Of returns the state of a task whose run has ended with this outcome.
func Of(o teamv1.Outcome) a2av1.TaskState {
	switch o {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_UNSPECIFIED:
		return a2av1.TaskState_TASK_STATE_COMPLETED
	case teamv1.Outcome_OUTCOME_REJECTED:
		return a2av1.TaskState_TASK_STATE_REJECTED
	case teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_SKIPPED:
		return a2av1.TaskState_TASK_STATE_CANCELED
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT:
	}
	return a2av1.TaskState_TASK_STATE_FAILED
}

// Name returns the name of a state in lower case, such as input-required.
func Name(s a2av1.TaskState) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(s.String(), "TASK_STATE_")), "_", "-")
}

// Word returns the name of an outcome in lower case, such as timed_out.
func Word(o teamv1.Outcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
}

// EndsRun reports whether an event ends its run.
func EndsRun(ev *teamv1.Event) bool { return ev.GetScope() == "" && ev.GetEnded() != nil }
